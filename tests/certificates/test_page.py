"""The certificate as a page: for every claim and outcome it says what is promised, and a browser has nothing to complain of."""

import dataclasses
from html import unescape
from typing import get_args

import numpy as np
import pytest

from evarl.certificates.certificate import Attempt, Certificate, Place
from evarl.certificates.claims import CLAIMS, conclude
from evarl.certificates.hashes import Code
from evarl.certificates.names import DESCRIPTIONS, ClaimName
from evarl.certificates.page import page
from evarl.certificates.protocol import Calibration, Protocol
from tests.studies.browser import complaints, installed, requests, started, width

FILES = {"config.json": "0" * 64, "policy/seed-3.safetensors": "ab" * 32}
BASE = Protocol("mean-return", "navigation", 50, 0.99, 3, FILES, 0.05, 100, low=0.0, high=1.0, range_from="world")
OTHERS = tuple(Calibration(seed, FILES) for seed in range(30))
RETURNS = np.random.default_rng(0).beta(8, 2, 100)
EVIDENCE = {"returns": RETURNS.tolist(), "values": [0.8] * 100, "others": RETURNS[::-1].tolist()}
SITES = dataclasses.replace(
    BASE, claim="site-return", sites=30, contexts=("slip=0:0.3",), low=None, high=None, range_from=None
)
VALUES = dataclasses.replace(BASE, claim="site-value", sites=30, contexts=("slip=0:0.3",), value_error=0.2)
CASES = {
    "mean-return": (BASE, ["returns"]),
    "mean-return, threshold": (dataclasses.replace(BASE, threshold=0.5, range_from="user"), ["returns"]),
    "mean-return, not shown": (dataclasses.replace(BASE, threshold=0.8), ["returns"]),
    "mean-return, refuted": (dataclasses.replace(BASE, threshold=0.99), ["returns"]),
    "mean-return, out of budget": (dataclasses.replace(BASE, threshold=0.8, sequential=True), ["returns"]),
    "mean-return, of several": (dataclasses.replace(BASE, threshold=0.5, candidates=("a", "b")), ["returns"]),
    "single-episode": (
        dataclasses.replace(BASE, claim="single-episode", delta=0.05, low=None, high=None, range_from=None),
        ["returns", "values"],
    ),
    "evaluator-overstatement": (
        dataclasses.replace(BASE, claim="evaluator-overstatement", epsilon=0.1),
        ["returns", "values"],
    ),
    "evaluator-error": (
        dataclasses.replace(BASE, claim="evaluator-error", epsilon=0.01),
        ["returns", "values", "others"],
    ),
    "new-policy": (dataclasses.replace(BASE, claim="new-policy", value_error=0.01, calibration=OTHERS), []),
    "site-return": (SITES, ["returns"]),
    "site-return, share": (dataclasses.replace(SITES, alpha=0.1, delta=0.1), ["returns"]),
    "site-return, site": (dataclasses.replace(SITES, site=("slip=0.2",)), ["returns"]),
    "site-return, threshold": (dataclasses.replace(SITES, site=("drawn:1",), threshold=0.1), ["returns"]),
    "site-return, not shown": (dataclasses.replace(SITES, site=("slip=0.2",), threshold=0.9), ["returns"]),
    "site-value": (dataclasses.replace(VALUES, site=("drawn:1",)), ["bounds"]),
}


def certificate(case: str) -> Certificate:
    protocol, names = CASES[case]
    evidence = {name: EVIDENCE[name] for name in names if name in EVIDENCE}
    if protocol.claim == "new-policy" or protocol.sites:
        column = names[0] if names else "bounds"
        evidence = {column: RETURNS[:30].tolist(), "predictions": [0.8] * 30}
        if protocol.site or not protocol.sites:
            evidence |= {"prediction": [0.8]}
        if protocol.site:
            evidence |= {"context": [0.2]}
    found = conclude(protocol, evidence)
    kept = {name: tuple(column) for name, column in evidence.items()}
    code, earlier = Code("x", None, {}), (Attempt("0", 0.05),)
    place, when = Place(0, "0" * 64), "2026-01-01"
    return Certificate(found, protocol, protocol.hash(), kept, earlier, place, when, code, {}, {}, page_sha256="")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    installed()
    with started(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.parametrize("case", CASES)
def test_it_says_what_is_promised_and_fits_a_phone(driver, tmp_path, case):
    issued = certificate(case)
    source = page(issued, "certificate.json")
    assert issued.conclusion.statement in unescape(source)
    (tmp_path / "page.html").write_text(source)
    requests(driver), complaints(driver)  # what the last page said
    for pixels in (360, 1200):
        width(driver, pixels)
        driver.get((tmp_path / "page.html").as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") <= pixels
        assert driver.execute_script("return [...document.images].every(image => image.naturalWidth > 0)")
    headings = [one.text for one in driver.find_elements("css selector", "h2")]
    assert headings == ["Meaning", "Evidence", "Assumptions", "What would make it invalid", "Provenance"]
    assert issued.conclusion.outcome in driver.find_element("css selector", ".summary").text
    assert all(one.startswith(("file:", "data:")) for one in requests(driver))
    assert not complaints(driver)


def test_a_tick_stands_only_where_something_was_asked_and_holds():
    ticked = {case for case in CASES if "✓" in page(certificate(case), "certificate.json")}
    assert ticked == {
        "mean-return, threshold",
        "mean-return, of several",
        "evaluator-overstatement",
        "site-return, threshold",
    }


def test_outcomes_are_those_expected():
    outcomes = {case: certificate(case).conclusion.outcome for case in CASES}
    assert outcomes == {
        "mean-return": "bounded",
        "mean-return, threshold": "certified",
        "mean-return, not shown": "not certified",
        "mean-return, refuted": "refuted",
        "mean-return, out of budget": "out of budget",
        "mean-return, of several": "certified",
        "single-episode": "bounded",
        "evaluator-overstatement": "certified",
        "evaluator-error": "not certified",
        "new-policy": "bounded",
        "site-return": "bounded",
        "site-return, share": "bounded",
        "site-return, site": "bounded",
        "site-return, threshold": "certified",
        "site-return, not shown": "not certified",
        "site-value": "bounded",
    }


def test_text_is_escaped():
    hostile = "<script>alert(1)</script>"
    issued = certificate("mean-return")
    protocol = dataclasses.replace(issued.protocol, world=hostile, nonce=hostile, files={hostile: hostile})
    conclusion = dataclasses.replace(issued.conclusion, statement=hostile, numbers={hostile: 1.0})
    machine = {hostile: hostile, "list": [hostile], "table": {"inner": hostile}}
    source = page(dataclasses.replace(issued, protocol=protocol, conclusion=conclusion, machine=machine), hostile)
    assert hostile not in source
    assert source.count("&lt;script&gt;alert(1)") >= 8


@pytest.mark.slow
def test_every_claim_is_in_the_registry_and_described():
    assert (
        set(CLAIMS)
        == set(DESCRIPTIONS)
        == set(get_args(ClaimName))
        == {protocol.claim for protocol, _ in CASES.values()}
    )
    assert all(name == claim.name and claim.description for name, claim in CLAIMS.items())
