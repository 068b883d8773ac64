"""The confidence that a certificate states: for its sentence, whatever was tried before and whoever chose the random seeds."""

import dataclasses
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import evarl
from evarl.certificates import ledger
from evarl.certificates.certificate import load
from evarl.certificates.certified_policy import open_policy
from evarl.certificates.checks import platform_here
from evarl.certificates.claims import conclude, gather
from evarl.certificates.conclusions import decide
from evarl.certificates.evidence import PolicyTest
from evarl.certificates.issue import issue_certificate
from evarl.certificates.planning import make_protocol
from evarl.certificates.protocol import Calibration, Protocol, Terms
from evarl.cli.main import call
from evarl.errors import InputError
from tests.evaluation.tiny import train_tiny

KEY = np.array([1, 2], np.uint32)
BASE = Protocol(
    "mean-return",
    "navigation",
    50,
    0.99,
    0,
    {},
    0.2,
    40,
    threshold=0.5,
    low=0.0,
    high=1.0,
    range_from="world",
    sequential=True,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def run(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def is_true(statement: str, mean: float) -> bool:
    """Whether what a certificate prints holds for J = mean."""
    if found := re.search(r"between (\S+) and (\S+)\.$", statement):
        return float(found[1]) <= mean <= float(found[2])
    if found := re.search(r"is below (\S+)\.$", statement):
        return mean < float(found[1])
    (at_least,) = re.findall(r"is at least (\S+)\.$", statement)
    return mean >= float(at_least)


@pytest.mark.parametrize("sequential", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("shift", [0.0, *(pytest.param(shift, marks=pytest.mark.slow) for shift in (1e-9, -1e-9))])
@pytest.mark.slow
def test_the_printed_sentence_is_false_no_more_often_than_stated(sequential, shift):
    """At J = threshold a separate lower bound and a rejection err twice: 34 % of sentences were false at "80 %"."""
    rng, repetitions = np.random.default_rng(7), 400
    protocol = dataclasses.replace(BASE, sequential=sequential, threshold=0.5 + shift)
    false = 0
    for _ in range(repetitions):
        returns = rng.integers(0, 2, 40).astype(float)  # J = 0.5
        used = decide(protocol, ((one,) for one in returns), controlled=False).rollouts if sequential else 40
        found = conclude(protocol, {"returns": returns[:used].tolist()})
        false += not is_true(found.statement, 0.5)
    assert false / repetitions <= protocol.alpha + 3 * (protocol.alpha * (1 - protocol.alpha) / repetitions) ** 0.5


def test_a_policy_that_falls_short_is_refuted_in_so_many_words(run, capsys):
    assert call(["certify", str(run), "--threshold", "-1", "--rollouts", "200"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "refuted, at confidence 95 %:\nThe mean discounted return J of this policy in navigation (horizon 50, discount 0.99) "
        "is below -1."
    )
    (page,) = (run / "certificates").glob("*.html")
    assert "The threshold is not reached" in page.read_text()


def test_two_valued_returns_have_the_exact_bound():
    protocol = dataclasses.replace(BASE, sequential=False, threshold=None, two_valued=True, alpha=0.05)
    found = conclude(protocol, {"returns": [1.0] * 40})
    assert found.bound == pytest.approx(0.05 ** (1 / 40), rel=1e-12)
    asked = dataclasses.replace(protocol, threshold=0.5)
    assert conclude(asked, {"returns": [0.0] * 40}).outcome == "refuted"
    with pytest.raises(InputError, match="two"):
        conclude(protocol, {"returns": [0.5] * 40})


def test_a_threshold_that_a_bound_answers_is_answered_from_it(run, capsys):
    first = issue_certificate(run, Terms(rollouts=200))
    bound = first.certificate.conclusion.bound
    entries = len(ledger.read(run))
    assert call(["certify", str(run), "--threshold", str(bound - 1), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["certificate"]) == ("certified", str(first.path))
    assert found["confidence"] == 0.95
    assert len(ledger.read(run)) == entries, "nothing was tested"
    assert call(["certify", str(run), "--threshold", str(bound + 0.1)]) == 2, "this one is not answered"
    assert "has been tested for this policy before" in capsys.readouterr().err


def grind(run: Path, count: int, **terms) -> Terms:
    """Terms whose random numbers an issuer likes best, found without leaving a trace in the ledger."""
    policy, means = open_policy(run, 0), {}
    for number in range(count):
        tried = Terms(nonce=f"try {number}", **terms)
        protocol = make_protocol(policy, tried)
        means[tried] = np.mean(gather(PolicyTest(protocol, policy), lambda line: None)["returns"])
    return max(means, key=means.__getitem__)


def test_lucky_random_numbers_help_nobody_whose_verifier_makes_fresh_rollouts(run, capsys):
    lucky = issue_certificate(run, grind(run, 30, rollouts=30))
    # A verifier who takes the issuer's nonce and plan for his own is fooled; others rely on no more than fresh rollouts show.
    protocol = lucky.certificate.protocol
    fooled = evarl.verify_certificate(lucky.path, reliance=evarl.Reliance(nonce=protocol.nonce, plan=protocol.plan))
    assert fooled.made == ["same"]
    assert fooled.conclusion.bound == lucky.certificate.conclusion.bound
    found = evarl.verify_certificate(lucky.path, key=KEY)
    assert found.made == ["same", "fresh"]
    assert found.verified
    assert found.conclusion.bound < lucky.certificate.conclusion.bound
    other = evarl.verify_certificate(lucky.path, reliance=evarl.Reliance(nonce="mine", plan="0" * 64))
    assert list(other.changed) == ["plan", "nonce"]
    with pytest.raises(InputError, match="nonce: is empty"):
        evarl.verify_certificate(lucky.path, reliance=evarl.Reliance(nonce="", plan=protocol.plan))
    assert "There is no nonce" not in lucky.html.read_text()


def test_a_threshold_reached_by_luck_is_not_confirmed(run, capsys):
    policy = open_policy(run, 0)
    protocol = make_protocol(policy, Terms(rollouts=30))
    usual = conclude(protocol, gather(PolicyTest(protocol, policy, key=KEY), lambda line: None)).bound
    lucky = grind(run, 30, rollouts=30, threshold=usual + 1e-6, alpha=0.05)
    issued = issue_certificate(run, lucky)
    assert issued.outcome == "certified"
    key = next(
        key
        for key in (np.array([0, number], np.uint32) for number in range(50))
        if conclude(
            issued.certificate.protocol,
            gather(PolicyTest(issued.certificate.protocol, policy, key=key), lambda line: None),
        ).outcome
        != "certified"
    )
    found = evarl.verify_certificate(issued.path, key=key)
    assert found.changed == {"outcome": "is 'certified' in the certificate; fresh rollouts give 'not certified'"}


def test_another_platform_is_named_and_decided_by_fresh_rollouts(run, monkeypatch, capsys):
    issued = issue_certificate(run, Terms(rollouts=60))
    here = platform_here() | {"instruction set": "sse4_1 sse4_2", "jax_threefry_partitionable": "False"}
    monkeypatch.setattr("evarl.certificates.checks.platform_here", lambda: here)
    assert call(["verify", str(issued.path)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("verified (by fresh rollouts)")
    assert "bits are not compared: instruction set was" in said.err
    assert "bits are not compared: jax_threefry_partitionable was 'True', is 'False'" in said.err


@pytest.mark.slow
def test_equal_configuration_and_seed_is_the_same_policy_whatever_its_bytes(run, tmp_path):
    """Runs begin at seed 0, and vectorisation changes bits."""
    alone = train_tiny(tmp_path / "alone", seed=0, seeds=1)
    with pytest.raises(
        InputError, match=r"alone seed 0 is the same policy as .*run seed 0, by equal configuration and seed"
    ):
        issue_certificate(run, Terms(alpha=0.4), from_policies=[run, alone.path])
    with pytest.raises(InputError, match=r"alone seed 0 is the same policy as .*run seed 0"):
        issue_certificate(run, Terms(alpha=0.4), seed=1, from_policies=[run, alone.path])


@pytest.mark.slow
def test_a_comparison_without_the_candidate_that_failed_is_counted(run, tmp_path, capsys):
    runs = [train_tiny(tmp_path / f"seed-{seed}", seed=seed, seeds=1).path for seed in (0, 10)]
    arguments = ["--threshold", "-40", "--rollouts", "40", "--json"]
    first = call(["compare", *map(str, runs), *arguments])
    assert first in (0, 1)
    candidates = json.loads(capsys.readouterr().out)["candidates"]
    rest = candidates[-1]["run"]
    assert call(["compare", rest, *arguments]) == 2
    assert "some of these policies have been tested or compared before" in capsys.readouterr().err
    assert call(["compare", rest, *arguments, "--again"]) in (0, 1)
    again = json.loads(capsys.readouterr().out)
    assert again["family_wise_error"] == pytest.approx(0.1)
    (row,) = again["candidates"]
    certificate, _ = load(Path(row["certificate"]))
    assert certificate.confidence == pytest.approx(0.9)
    assert call(["verify", row["certificate"]]) in (0, 1)
    capsys.readouterr()
    # The very same comparison is not another one.
    assert call(["compare", rest, *arguments]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["family_wise_error"] == pytest.approx(0.1)


def test_tests_that_are_registered_at_the_same_time_are_all_counted(run):
    """Each holds the ledger's lock while it reads and writes; the chain has all of them, and each counts those before it."""
    protocols = [dataclasses.replace(BASE, nonce=str(number)) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda protocol: ledger.register(run, protocol, again=True), protocols))
    entries = ledger.read(run)
    assert {entry.digest for entry in entries} == {protocol.hash() for protocol in protocols}
    assert sorted(len(earlier) for _, earlier in found) == list(range(16))


def test_a_nonce_is_worth_something_only_to_those_who_knew_the_plan_before(run, capsys):
    """Otherwise the issuer, who has the nonce, still chooses among numbers of rollouts, levels and ranges."""
    arguments = [str(run), "--rollouts", "30", "--alpha", "0.1"]
    assert call(["certify", *arguments, "--plan"]) == 0
    plan = capsys.readouterr().out.split()[-1]
    assert not (run / "certificates").exists(), "nothing is tested"
    assert call(["certify", *arguments, "--nonce", "from the verifier", "--json"]) == 0
    path = json.loads(capsys.readouterr().out)["certificate"]
    assert call(["verify", path, "--nonce", "from the verifier", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rollouts_made"] == ["same", "fresh"]
    assert call(["verify", path, "--nonce", "from the verifier", "--plan", plan, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rollouts_made"] == ["same"]


@pytest.mark.slow
def test_another_range_is_no_free_retry_of_a_comparison(run, capsys):
    arguments = ["compare", str(run), "--threshold", "-40", "--rollouts", "40"]
    assert call([*arguments, "--range", "-51", "1.1"]) in (0, 1)
    assert call([*arguments, "--range", "-51.001", "1.1"]) == 2
    assert "have been tested or compared before" in capsys.readouterr().err


def test_the_same_seed_is_the_same_policy_whatever_its_bytes(run, capsys):
    """Eight spaces in the header of a file change its SHA-256 and nothing else."""
    issue_certificate(run, Terms(rollouts=20))
    file = run / "policy" / "seed-0.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 8).to_bytes(8, "little") + data[8 : 8 + length] + b" " * 8 + data[8 + length :])
    assert call(["certify", str(run), "--rollouts", "20"]) == 2
    assert "has been tested for this policy before" in capsys.readouterr().err


def test_a_threshold_is_answered_under_its_own_assumptions_only(run, capsys):
    issue_certificate(run, Terms(rollouts=200, range=(-60.0, 10.0)))
    assert call(["certify", str(run), "--threshold", "-49"]) == 2
    assert "has been tested for this policy before" in capsys.readouterr().err


def test_a_bound_above_all_possible_returns_is_refused():
    """Predictions that are not like those of the calibration policies, as of evaluators that were made by hand."""
    others = tuple(Calibration(seed, {}) for seed in range(1, 25))
    protocol = dataclasses.replace(
        BASE, claim="new-policy", sequential=False, threshold=None, alpha=0.05, value_error=0.01, calibration=others
    )
    evidence = {"bounds": [0.5] * 24, "predictions": [0.1] * 24, "prediction": [0.9]}
    with pytest.raises(InputError, match="this evaluator is not like those of the calibration policies"):
        conclude(protocol, evidence)


def test_a_setting_that_changes_the_numbers_is_refused_by_name(run, capsys):
    path = issue_certificate(run, Terms(rollouts=20)).path
    with jax.enable_x64(True):
        assert call(["verify", str(path)]) == 2
    assert "jax_enable_x64: is on" in capsys.readouterr().err
