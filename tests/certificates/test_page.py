"""The certificate as a page: for every claim and outcome it says what is promised, and a browser has nothing to complain of."""

import dataclasses
from html import unescape

import numpy as np
import pytest

from evarl.certificates.certificate import Attempt, Certificate, Place
from evarl.certificates.conclusions import conclude
from evarl.certificates.hashes import Code
from evarl.certificates.page import page
from evarl.certificates.protocol import Calibration, Protocol
from tests.studies.browser import complaints, installed, requests, started, width

FILES = {"config.json": "0" * 64, "policy/seed-3.safetensors": "ab" * 32}
BASE = Protocol("J", "navigation", 50, 0.99, 3, FILES, 0.05, 100, low=0.0, high=1.0, range_from="world")
OTHERS = tuple(Calibration(seed, FILES) for seed in range(30))
RETURNS = np.random.default_rng(0).beta(8, 2, 100)
EVIDENCE = {"returns": RETURNS.tolist(), "values": [0.8] * 100, "others": RETURNS[::-1].tolist()}
CASES = {
    "J": (BASE, ["returns"]),
    "J, threshold": (dataclasses.replace(BASE, threshold=0.5, range_from="user"), ["returns"]),
    "J, not shown": (dataclasses.replace(BASE, threshold=0.8), ["returns"]),
    "J, refuted": (dataclasses.replace(BASE, threshold=0.99), ["returns"]),
    "J, out of budget": (dataclasses.replace(BASE, threshold=0.8, sequential=True), ["returns"]),
    "J, of several": (dataclasses.replace(BASE, threshold=0.5, candidates=("a", "b")), ["returns"]),
    "C2": (
        dataclasses.replace(BASE, claim="C2", delta=0.05, low=None, high=None, range_from=None),
        ["returns", "values"],
    ),
    "C3": (dataclasses.replace(BASE, claim="C3", epsilon=0.1), ["returns", "values"]),
    "C4": (dataclasses.replace(BASE, claim="C4", epsilon=0.01), ["returns", "values", "others"]),
    "C5": (dataclasses.replace(BASE, claim="C5", value_error=0.01, calibration=OTHERS), []),
}


def certificate(case: str) -> Certificate:
    protocol, names = CASES[case]
    evidence = {name: EVIDENCE[name] for name in names}
    if protocol.claim == "C5":
        evidence = {"bounds": RETURNS[:30].tolist(), "predictions": [0.8] * 30, "prediction": [0.8]}
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
    assert headings == ["What this means", "What was seen", "What was assumed", "What would void it", "What it binds"]
    assert issued.conclusion.outcome in driver.find_element("css selector", ".summary").text
    assert all(one.startswith(("file:", "data:")) for one in requests(driver))
    assert not complaints(driver)


def test_a_tick_stands_only_where_something_was_asked_and_holds():
    ticked = {case for case in CASES if "✓" in page(certificate(case), "certificate.json")}
    assert ticked == {"J, threshold", "J, of several", "C3"}


def test_outcomes_are_those_expected():
    outcomes = {case: certificate(case).conclusion.outcome for case in CASES}
    assert outcomes == {
        "J": "bounded",
        "J, threshold": "certified",
        "J, not shown": "not certified",
        "J, refuted": "refuted",
        "J, out of budget": "out of budget",
        "J, of several": "certified",
        "C2": "bounded",
        "C3": "certified",
        "C4": "not certified",
        "C5": "bounded",
    }
