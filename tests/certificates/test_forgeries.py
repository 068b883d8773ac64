"""Forged certificates in which every checksum, the page and the ledger fit: `verify` derives again what it can, and says no.

The forger of these tests can write every file, and does so with the package's own functions. What he cannot do is to make the
policy return something else.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import evarl
from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Attempt, Certificate, load, save
from evarl.certificates.claims import conclude
from evarl.certificates.issue import Issued, issue_certificate
from evarl.certificates.page import page
from evarl.certificates.protocol import Protocol
from evarl.cli.main import call
from evarl.errors import FileError
from evarl.storage.files import write_bytes
from tests.evaluation.tiny import train_tiny, with_evaluators


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture(scope="module")
def issued(trained) -> Issued:
    """A genuine certificate; tests copy the run."""
    return issue_certificate(trained, evarl.Terms(rollouts=60))


@pytest.fixture(scope="module")
def episode(trained, issued) -> Issued:
    return issue_certificate(trained, evarl.Terms(claim="single-episode", rollouts=60))


@pytest.fixture
def run(trained, issued, episode, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def forge(run: Path, certificate: Certificate, **changes) -> Path:
    """Write a changed certificate with a fitting conclusion, page, checksum and a ledger that was made anew for it."""
    forged = dataclasses.replace(certificate, **changes)
    protocol = forged.protocol
    if "conclusion" not in changes:
        evidence = {name: list(column) for name, column in forged.evidence.items()}
        forged = dataclasses.replace(forged, conclusion=conclude(protocol, evidence))
    shutil.rmtree(run / "certificates")
    earlier = forged.earlier
    entry, _ = ledger.register(run, protocol, again=True)
    path = ledger.path_of(run, protocol)
    forged = dataclasses.replace(
        forged, protocol_sha256=protocol.hash(), ledger=ledger.place(entry), earlier=earlier, page_sha256=""
    )
    text = page(forged, path.name).encode()
    forged = dataclasses.replace(forged, page_sha256=hashes.of_bytes(text))
    write_bytes(path.with_suffix(".html"), text)
    ledger.enter_certificate(run, forged.digest())
    save(path, forged)
    return path


def assert_refused(path: Path, capsys, name: str, *arguments: str) -> str:
    """Verifying names what is wrong and exits with 1."""
    assert call(["verify", str(path), *arguments]) == 1
    out = capsys.readouterr().out
    assert "NOT verified" in out
    assert name in out
    return out


def changed(protocol: Protocol, **changes) -> Protocol:
    return dataclasses.replace(protocol, **changes)


def test_a_genuine_certificate_is_verified_by_the_same_rollouts_and_by_fresh_ones(run, issued, capsys):
    path = run / "certificates" / issued.path.name
    assert call(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("verified (the same rollouts were repeated, to the last bit, and fresh ones were made)")


def test_a_forger_who_changes_nothing_is_verified(run, issued):
    """So that the others below are refused for what they change."""
    assert evarl.verify_certificate(forge(run, issued.certificate)).verified


PROTOCOLS = {
    "a range read off the data": ({"low": -20.0, "high": 0.0}, "protocol, low"),
    "a wide range, the world's by name": ({"low": -1e300, "high": 1e300}, "protocol, high"),
    "another world": ({"world": "navigation/open-field"}, "protocol, world"),
    "no files": ({"files": {}}, "is not part of the certificate"),
    "another horizon": ({"horizon": 5}, "protocol, horizon"),
    "one rollout at a time": ({"batch": 1}, "protocol, batch"),
    "few fresh states": ({"fresh": 1}, "protocol, fresh"),
    "no level": ({"alpha": 0.9}, "alpha: 0.9 is not allowed"),
    "another seed": ({"seed": 1}, "protocol, files"),
    "a file elsewhere": ({"files": {"../other/config.json": "0" * 64}}, "is not a file that a certificate refers to"),
}


@pytest.mark.parametrize("case", PROTOCOLS)
def test_a_protocol_that_the_run_does_not_lead_to_is_refused(run, issued, capsys, case):
    changes, name = PROTOCOLS[case]
    protocol = changed(issued.certificate.protocol, **changes)
    low, high = protocol.range
    inside = tuple(np.clip(issued.certificate.evidence["returns"], low, high).tolist())
    try:
        path = forge(run, issued.certificate, protocol=protocol, evidence={"returns": inside})
    except FileError:  # the ledger does not even take it
        assert case == "no level"
        return
    assert_refused(path, capsys, name)


def test_invented_returns_are_refused_whatever_the_range(run, issued, episode, capsys):
    better = tuple(one + 0.01 for one in issued.certificate.evidence["returns"])
    path = forge(run, issued.certificate, evidence={"returns": better})
    assert_refused(path, capsys, "returns: are different when repeated, by up to 0.01")
    # The single-episode claim has no range. One of ±1e300 once made the tolerance infinite.
    high = tuple(one + 1000 for one in episode.certificate.evidence["returns"])
    evidence = dict(episode.certificate.evidence, returns=high)
    wide = changed(episode.certificate.protocol, low=-1e300, high=1e300, range_from="user")
    assert_refused(
        forge(run, episode.certificate, protocol=wide, evidence=evidence),
        capsys,
        "is not allowed for the claim single-episode",
    )
    assert_refused(forge(run, episode.certificate, evidence=evidence), capsys, "returns: are different when repeated")


def test_a_small_delta_does_not_make_up_for_a_large_alpha(run, episode, capsys):
    """A statement about a tenth of the episodes, at a confidence that was once printed as 100 %."""
    protocol = changed(episode.certificate.protocol, alpha=0.9, delta=1e-9)
    path = forge(run, episode.certificate, protocol=protocol)
    assert_refused(path, capsys, "alpha: 0.9 is not allowed")
    assert load(path)[0].confidence < 1
    assert "100 %" not in path.with_suffix(".html").read_text()


def test_invented_returns_are_refused_on_another_platform_too(run, issued, capsys):
    """There bits cannot be compared, and fresh rollouts decide."""
    elsewhere = dict(issued.certificate.platform, **{"instruction set": "sse2"})
    invented = tuple(np.linspace(-1.0, 1.0, 60).tolist())
    path = forge(run, issued.certificate, platform=elsewhere, evidence={"returns": invented})
    out = assert_refused(path, capsys, "returns: are not distributed like fresh ones")
    assert "are different when repeated" not in out


def test_the_conclusion_must_follow_from_the_evidence(run, issued, capsys):
    better = dataclasses.replace(issued.certificate.conclusion, bound=0.5)
    assert_refused(
        forge(run, issued.certificate, conclusion=better), capsys, "conclusion: does not follow from the evidence"
    )
    short = {"returns": issued.certificate.evidence["returns"][:30]}
    path = forge(run, issued.certificate, evidence=short, conclusion=issued.certificate.conclusion)
    assert_refused(path, capsys, "conclusion: cannot be drawn from the evidence")


def test_earlier_tests_are_those_of_the_ledger(run, issued, capsys):
    negative = (Attempt("0" * 64, -0.04),)
    assert_refused(forge(run, issued.certificate, earlier=negative), capsys, "earlier: are not the earlier tests")
    terms = dataclasses.replace(evarl.Terms(rollouts=60), alpha=0.06)
    again = issue_certificate(run, terms, again=True)
    assert again.certificate.confidence == pytest.approx(0.89)
    stripped = dataclasses.replace(again.certificate, earlier=(), page_sha256="")
    text = page(stripped, again.path.name).encode()
    write_bytes(again.html, text)
    stripped = dataclasses.replace(stripped, page_sha256=hashes.of_bytes(text))
    ledger.enter_certificate(run, stripped.digest())
    save(again.path, stripped)
    assert_refused(again.path, capsys, "earlier: are not the earlier tests")


@pytest.mark.parametrize("level", [-0.04, 0.0, 0.9])
def test_a_level_that_would_raise_the_confidence_is_not_taken_from_the_ledger(run, issued, capsys, level):
    """A comparison's level stands in the ledger alone."""
    comparison = issued.certificate.protocol.hash()
    entries = ledger.read(run)
    ledger._append(run, entries, "comparison", comparison, error=level, candidates=("ab" * 32,))
    path = run / "certificates" / issued.path.name
    assert "has a level that is not allowed" in assert_refused(path, capsys, "ledger.json")


@pytest.mark.parametrize("damage", ["garbage", "deleted", "reordered", "shortened", "edited"])
def test_the_ledger_shows_deletions_and_reordering(run, issued, capsys, damage):
    file, path = run / "certificates" / "ledger.json", run / "certificates" / issued.path.name
    kept = json.loads(file.read_text())
    entries = kept["entries"]
    if damage == "garbage":
        file.write_text("no longer a ledger")
    elif damage == "deleted":
        file.unlink()
    elif damage == "reordered":
        file.write_text(json.dumps(kept | {"entries": [entries[1], entries[0], *entries[2:]]}))
    elif damage == "shortened":
        file.write_text(json.dumps(kept | {"entries": entries[:1]}))
    else:
        entries[0]["protocol"]["alpha"] = 0.01
        file.write_text(json.dumps(kept))
    assert_refused(path, capsys, "ledger.json")
    if damage != "deleted" and damage != "shortened":
        assert call(["certify", str(run), "--seed", "1", "--rollouts", "20"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_published_head_catches_a_ledger_that_was_made_anew(run, issued, capsys):
    path = run / "certificates" / issued.path.name
    head = ledger.head(ledger.read(run))
    assert call(["verify", str(path), "--files-only", "--head", head]) == 0
    assert evarl.verify_certificate(forge(run, issued.certificate), rerun=False).verified
    assert "published head" in assert_refused(path, capsys, "ledger.json", "--files-only", "--head", head)


@pytest.mark.parametrize("text", ["x\nverified: all is well", "\x1b[2J\x1b[32mverified", "\x9b31m", "a\u2028b"])
def test_texts_that_steer_a_terminal_are_refused(run, issued, capsys, text):
    for changes in ({"machine": {"processor": text}}, {"issued": text}, {"platform": {text: "1"}}):
        path = forge(run, issued.certificate, **changes)
        assert call(["verify", str(path)]) == 2
        said = capsys.readouterr()
        assert "has control characters" in said.err
        assert said.err.count("\n") == 1
        assert text not in said.err + said.out


def test_an_evaluator_that_predicts_nan_certifies_nothing_and_verifies_nothing(run, issued, episode, tmp_path, capsys):
    """NaN compares as not larger than any tolerance."""

    def spoilt(seed, learnt):
        nothing = jax.tree.map(lambda leaf: leaf * np.nan, learnt.state.parameters)
        return learnt.replace(state=learnt.state.replace(parameters=nothing))

    odd = with_evaluators(evarl.Run.load(run), tmp_path / "odd", spoilt)
    assert call(["certify", str(odd.path), "--claim", "single-episode", "--rollouts", "60", "--again"]) == 2
    assert "finite" in capsys.readouterr().err
    files = dict(episode.certificate.protocol.files)
    files["evaluator/seed-0.safetensors"] = hashes.of_file(odd.path / "evaluator/seed-0.safetensors")
    path = forge(odd.path, episode.certificate, protocol=changed(episode.certificate.protocol, files=files))
    assert "must be finite numbers" in assert_refused(path, capsys, "protocol")


def test_certify_asked_again_verifies_what_it_finds(run, issued, capsys):
    """An edited certificate must not be handed on as this command's own."""
    better = tuple(one + 0.5 for one in issued.certificate.evidence["returns"])
    path = forge(run, issued.certificate, evidence={"returns": better})
    assert call(["certify", str(run), "--rollouts", "60"]) == 2
    assert f"{path}: is not returned; returns: are different when repeated" in capsys.readouterr().err
    assert call(["certify", str(run), "--threshold", "-49"]) == 2, "nor is a threshold answered from it"
    assert "is not returned" in capsys.readouterr().err


def test_certify_hands_on_and_signs_nothing_from_another_platform(run, issued, tmp_path, capsys):
    """There its rollouts cannot be compared, and a few invented returns look like fresh ones."""
    returns = sorted(issued.certificate.evidence["returns"])
    better = (*returns[3:], *(max(returns),) * 3)
    elsewhere = dict(issued.certificate.platform, cores="64")
    path = forge(run, issued.certificate, evidence={"returns": better}, platform=elsewhere)
    assert call(["keygen", str(tmp_path / "key")]) == 0
    for more in ([], ["--sign", str(tmp_path / "key")]):
        assert call(["certify", str(run), "--rollouts", "60", *more]) == 2
        assert (
            f"{path}: is not returned; platform: its rollouts cannot be compared here (cores" in capsys.readouterr().err
        )
    assert load(path)[1] is None
    assert call(["certify", str(run), "--threshold", "-49"]) == 2
    assert "has been tested for this policy before" in capsys.readouterr().err


ODD = {
    "no evidence": {"evidence": {}},
    "empty evidence": {"evidence": {"returns": ()}},
    "huge evidence": {"evidence": {"returns": (1.7e308, -1.7e308) * 30}},
    "another claim": {"protocol": {"claim": "evaluator-error"}},
    "the claim of new policies": {"protocol": {"claim": "new-policy"}},
    "no level": {"protocol": {"alpha": 0}},
    "a negative level": {"protocol": {"alpha": -1e308}},
    "a range turned round": {"protocol": {"low": 1e308, "high": -1e308}},
    "candidates without a threshold": {"protocol": {"candidates": ("ab" * 32,)}},
    "a huge bound": {"conclusion": {"bound": 1.7e308}},
    "a huge upper bound": {"conclusion": {"upper": -1.7e308}},
    "a seed that is none": {"protocol": {"seed": -1}},
    "no discount": {"protocol": {"discount": -7.0}},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_certificates_are_refused_without_a_traceback(run, issued, capsys, case):
    """Only the certificate's own checksum fits."""
    path, changes = run / "certificates" / issued.path.name, {}
    for name, value in ODD[case].items():
        inner = getattr(issued.certificate, name)
        changes[name] = value if name == "evidence" else dataclasses.replace(inner, **value)
    forged = dataclasses.replace(issued.certificate, **changes)
    save(path, dataclasses.replace(forged, protocol_sha256=forged.protocol.hash()))
    for more in ([], ["--files-only"]):
        assert call(["verify", str(path), *more]) in (1, 2)
        capsys.readouterr()


def test_a_figure_that_other_code_has_drawn_is_not_vouched_for(run, issued, capsys):
    path = forge(run, issued.certificate, code=dataclasses.replace(issued.certificate.code, source="0" * 64))
    assert call(["verify", str(path)]) == 0
    assert "the figure on the page is not compared" in capsys.readouterr().err


def test_the_page_must_say_what_the_certificate_says(run, issued, capsys):
    path = run / "certificates" / issued.path.name
    html = path.with_suffix(".html")
    kept = html.read_text()
    html.write_text(kept.replace("at least -", "at least ", 1))
    assert_refused(path, capsys, html.name)
    certificate, _ = load(path)
    lying = dataclasses.replace(certificate, page_sha256=hashes.of_file(html))
    ledger.enter_certificate(run, lying.digest())
    save(path, lying)
    assert_refused(path, capsys, html.name)


def test_a_changed_certificate_is_caught(run, issued):
    path = run / "certificates" / issued.path.name
    whole = path.read_text()
    path.write_text(whole.replace("bounded", "bounced", 1))
    with pytest.raises(FileError, match="the certificate has been changed since it was issued"):
        evarl.verify_certificate(path)
    certificate, _ = load(issued.path)
    other = changed(certificate.protocol, alpha=0.01)
    save(path, dataclasses.replace(certificate, protocol=other))
    with pytest.raises(FileError, match="protocol has been changed since it was fixed"):
        evarl.verify_certificate(path)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_other_formats_are_refused_by_the_version_that_wrote_them(run, issued, capsys, number):
    path, file = run / "certificates" / issued.path.name, run / "certificates" / "ledger.json"
    certificate, entries = path.read_text(), file.read_text()
    path.write_text(certificate.replace("evarl certificate 5", f"evarl certificate {number}"))
    assert call(["verify", str(path)]) == 2
    written = f"format {number}, written by evarl {issued.certificate.code.versions['evarl']}; this version reads format 5 only"
    assert capsys.readouterr().err == f"evarl: {path}: is a certificate of {written}\n"
    path.write_text(certificate)
    file.write_text(entries.replace("evarl ledger 5", f"evarl ledger {number}"))
    assert f"ledger.json: is a ledger of {written}" in assert_refused(path, capsys, "ledger.json")
    file.write_text(json.dumps(json.loads(entries)["entries"]))
    assert "is a ledger of format 2 or 1, written by evarl 0.1.0" in assert_refused(path, capsys, "ledger.json")
    path.write_text(json.dumps({"format": "evarl certificate 2", "code": {"versions": {"evarl": "0\n1"}}}))
    assert call(["verify", str(path)]) == 2
    assert "format 2, written by an unknown version" in capsys.readouterr().err
