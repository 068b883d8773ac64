"""Certificates as a user meets them: issued, refused, verified, and caught when something was changed."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.tree_util import Partial

import evarl
from evarl import bounds
from evarl.certificates import ledger
from evarl.certificates.certificate import Certificate, load as load_with_signature
from evarl.certificates.certified_policy import open_policy
from evarl.certificates.claims import gather
from evarl.certificates.evidence import PolicyTest
from evarl.certificates.issue import issue_certificate
from evarl.certificates.planning import make_protocol
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.learning.configuration import with_settings
from evarl.simulation import simulator_for
from evarl.storage.tensors import load_arrays, save_tree
from evarl.truth.monte_carlo import true_values
from tests.evaluation.tiny import train_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Eight policies of one kind.

    Tests roll them out at least 256 times, the number in one program, so that it is compiled once.
    """
    return train_tiny(tmp_path_factory.mktemp("trained") / "run", seeds=8).path


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy without certificates."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def load(path: Path) -> Certificate:
    return load_with_signature(path)[0]


def certified(capsys, *arguments: str) -> dict:
    """What the command says, the only line on standard output."""
    code = call(["certify", *arguments, "--json"])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert code == (0 if found["outcome"] in ("certified", "bounded") else 1)
    return found


def test_j_is_bounded_from_returns_alone_where_there_is_one_start_state(run, capsys):
    found = certified(capsys, str(run), "--rollouts", "300", "--alpha", "0.0001")
    certificate = load(Path(found["certificate"]))
    (low, high), evidence = certificate.protocol.range, certificate.evidence
    assert list(evidence) == ["returns"]
    assert len(evidence["returns"]) == 300
    assert found["bound"] == bounds.betting_lower_bound(evidence["returns"], low, high, 0.0001)
    assert certificate.protocol.range_from == "world"
    world, opened = evarl.Run.load(run).world, evarl.Run.load(run)
    act = Partial(opened.learner.agent.act, opened.policy_state(0))
    truth = true_values(
        world, act, simulator_for(world).start_states(jax.random.PRNGKey(5), 1), jax.random.PRNGKey(6), 2000
    )
    assert low < found["bound"] < truth.value[0]
    assert abs(np.mean(evidence["returns"]) - truth.value[0]) < 5 * truth.standard_error[0] * (2000 / 300) ** 0.5


def test_other_claims_are_those_of_the_library(run, capsys):
    episode = certified(capsys, str(run), "--claim", "single-episode", "--rollouts", "300", "--alpha", "0.1")
    kept = load(Path(episode["certificate"])).evidence
    assert episode["bound"] == bounds.order_bound(kept["returns"], kept["values"], 0.1, 0.1).margin
    shortfall = certified(capsys, str(run), "--claim", "evaluator-overstatement", "--rollouts", "300", "--epsilon", "2")
    kept, protocol = (one := load(Path(shortfall["certificate"]))).evidence, one.protocol
    assert (
        shortfall["bound"]
        == bounds.risk_control(kept["returns"], kept["values"], bounds.Range(*protocol.range), 2.0).margin
    )
    error = certified(capsys, str(run), "--claim", "evaluator-error", "--rollouts", "300", "--epsilon", "0.001")
    kept = load(Path(error["certificate"])).evidence
    assert error["outcome"] == "not certified"
    columns = (kept["returns"], kept["others"], kept["values"])
    assert error["bound"] == bounds.rmse_upper_bound(*columns, bounds.Range(*protocol.range))
    assert np.corrcoef(kept["returns"], kept["others"])[0, 1] < 0.5, "two rollouts from a state are independent"
    for one in (episode, shortfall, error):
        assert call(["verify", one["certificate"]]) == 0


def test_a_new_policy_is_bounded_without_deploying_it(run, capsys):
    found = certified(
        capsys, str(run), "--seed", "3", "--alpha", "0.2", "--rollouts", "300", "--from-policies", str(run)
    )
    certificate = load(Path(found["certificate"]))
    assert [one.seed for one in certificate.protocol.calibration] == [0, 1, 2, 4, 5, 6, 7]
    kept = certificate.evidence
    want = bounds.conformal_bound(kept["bounds"], kept["predictions"], 0.2, certificate.protocol.value_error)
    assert found["bound"] == max(kept["prediction"][0] + want.margin, certificate.protocol.range[0])
    assert found["rollouts"] == 0
    assert call(["verify", found["certificate"], "--from-policies", str(run)]) == 0
    assert call(["verify", found["certificate"]]) == 2
    assert "new-policy is verified with the runs of its calibration policies" in capsys.readouterr().err


def test_a_sequential_test_takes_no_more_rollouts_than_it_needs(run, capsys):
    easy = certified(capsys, str(run), "--threshold", "-49", "--sequential", "--budget", "2000")
    assert easy["outcome"] == "certified"
    assert easy["rollouts"] < 1000
    assert easy["bound"] >= -49
    hopeless = certified(capsys, str(run), "--seed", "1", "--threshold", "0.5", "--sequential", "--budget", "2000")
    assert hopeless["outcome"] == "refuted"
    assert hopeless["bound"] is None
    assert hopeless["statement"].endswith("is below 0.5.")
    unclear = certified(capsys, str(run), "--seed", "2", "--threshold", "-20", "--sequential", "--budget", "2")
    assert (unclear["outcome"], unclear["rollouts"]) == ("out of budget", 2)
    assert call(["verify", easy["certificate"]]) == 0


def test_the_same_terms_give_the_same_certificate_and_a_killed_test_goes_on(run):
    terms = evarl.Terms(rollouts=300)
    first = issue_certificate(run, terms)
    kept = first.path.read_bytes()
    again = issue_certificate(run, terms, again=True)
    assert again.path.read_bytes() == kept
    assert again.origin == "issued before"
    with pytest.raises(InputError, match="and the result is "):
        issue_certificate(run, evarl.Terms(rollouts=301))
    first.path.unlink()  # as if it had been killed while it rolled out
    with pytest.raises(InputError, match="was not finished; the same command as then continues it"):
        issue_certificate(run, evarl.Terms(rollouts=301))
    assert issue_certificate(run, terms).certificate.evidence == first.certificate.evidence


def test_rollouts_depend_on_everything_that_is_fixed(run):
    policy = open_policy(run, 0)
    protocol = make_protocol(policy, evarl.Terms(rollouts=300))

    def returns(protocol):
        return gather(PolicyTest(protocol, policy), print)["returns"]

    assert returns(protocol) == returns(protocol)
    others = (
        {"alpha": 0.04},
        {"low": -51.0},
        {"seed": 1},
        {"files": {}},
        {"threshold": -20.0},
        {"nonce": "chosen by others"},
    )
    for changes in others:
        assert returns(dataclasses.replace(protocol, **changes)) != returns(protocol)


def test_candidates_are_tested_in_the_order_of_their_predictions_until_one_fails(run, capsys):
    assert call(["compare", str(run), "--threshold", "-40", "--rollouts", "300", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert len(found) == 8
    assert [one["predicted"] for one in found] == sorted((one["predicted"] for one in found), reverse=True)
    outcomes = [one["outcome"] for one in found]
    passed = outcomes.index("not certified") if "not certified" in outcomes else len(outcomes)
    assert outcomes[:passed] == ["certified"] * passed
    assert set(outcomes[passed + 1 :]) <= {"not tested"}
    assert found[0]["bound"] == -40, "one level for all protects the threshold, not a bound for each"
    assert call(["verify", found[0]["certificate"]]) == 0


@pytest.mark.parametrize(
    "name", ["config.json", "assessment.safetensors", "policy/seed-0.safetensors", "evaluator/seed-0.safetensors"]
)
def test_a_changed_byte_is_reported_by_name(run, capsys, name):
    found = certified(capsys, str(run), "--claim", "single-episode", "--rollouts", "300")
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(data)
    assert call(["verify", found["certificate"]]) == 1
    out = capsys.readouterr().out
    assert f"{name}: has been changed since the certificate was issued" in out
    (run / name).unlink()
    assert call(["verify", found["certificate"]]) == 1
    assert f"{name}: no such file" in capsys.readouterr().out


REFUSALS = {
    "unknown range": (
        ["--range", "0", "0"],
        "range: [0, 0] is not allowed; must be two finite numbers, the lower one first",
    ),
    "outside the range": (
        ["--range", "-1", "1", "--rollouts", "50"],
        "range: [-1, 1] does not contain all possible returns of navigation, which are from -50.275 to 1.0005; leave --range out",
    ),
    "too few for single-episode": (
        ["--claim", "single-episode", "--rollouts", "58"],
        "returns: there are 58; must be at least 59 for alpha 0.05 and delta 0.05",
    ),
    "too few for mean-return": (
        ["--threshold", "0.9", "--rollouts", "5"],
        r"rollouts: 5 cannot show J ≥ 0.9 at level 0.05 even if each had the greatest possible return; must be at least \d+",
    ),
    "too few policies": (
        ["--from-policies", "{run}"],
        "from-policies: there are 7 other policies; must be at least 24 for alpha 0.05, of which 0.01 goes to the lower "
        "bounds that are used for their true J",
    ),
    "no rollouts": (["--rollouts", "0"], "rollouts: 0 is not allowed; must be 1 to 1,000,000, since each is kept"),
    "absurd rollouts": (
        ["--rollouts", str(10**15)],
        f"rollouts: {10**15} is not allowed; must be 1 to 1,000,000, since each is kept",
    ),
    "checkpoints": (
        ["--from-policies", "{run}/checkpoints"],
        "from-policies: {run}/checkpoints is a file of one run, and checkpoints of one run are not independent policies; must be "
        "directories of finished runs",
    ),
    "the same policies twice": (
        ["--from-policies", "{run}", "{run}", "--alpha", "0.2"],
        "from-policies: {run} seed 1 is the same policy as {run} seed 1, by equal configuration and seed; new-policy requires "
        "policies that were trained independently, each once",
    ),
    "no policies": (
        ["--claim", "new-policy"],
        "from-policies: is missing; new-policy requires runs of other policies that were trained in the same way",
    ),
    "no threshold": (
        ["--sequential"],
        "threshold: is missing; a sequential test requires one",
    ),
    "outside threshold": (
        ["--threshold", "3"],
        "threshold: 3 is not allowed; must be a number between -50.275 and 1.0005, the least and the greatest possible "
        "return",
    ),
    "no epsilon": (
        ["--claim", "evaluator-overstatement"],
        "epsilon: is missing; evaluator-overstatement requires the overstatement that is allowed on average",
    ),
    "no use": (
        ["--epsilon", "1"],
        "epsilon: 1.0 is not allowed for the claim mean-return; only for evaluator-overstatement and evaluator-error",
    ),
    "level": (["--alpha", "1"], "alpha: 1.0 is not allowed; must be a number from 1e-09 to 0.5"),
    "no error at all": (["--alpha", "1e-17"], "alpha: 1e-17 is not allowed; must be a number from 1e-09 to 0.5"),
    "second level": (
        ["--claim", "single-episode", "--delta", "0.9"],
        "delta: 0.9 is not allowed; must be a number from 1e-09 to 0.5",
    ),
    "nonce": (["--nonce", "two\nlines"], "nonce: is not allowed; must be at most 200 printable characters on one line"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_and_why(run, capsys, case):
    arguments, sentence = REFUSALS[case]
    assert call(["certify", str(run), *(one.format(run=run) for one in arguments)]) == 2
    assert capsys.readouterr().err.startswith("evarl: ")
    assert not list(run.glob("certificates/*-*.json")), "nothing is issued"
    call(["certify", str(run), *(one.format(run=run) for one in arguments)])
    said = capsys.readouterr().err.strip().removeprefix("evarl: ")
    literal = "\\" not in sentence
    assert said == sentence.replace("{run}", str(run)) if literal else re.fullmatch(sentence, said), said


def test_a_world_that_does_not_know_its_range_wants_one(run, capsys, monkeypatch):
    monkeypatch.setattr("evarl.worlds.navigation.Navigation.return_range", lambda self: None)
    assert call(["certify", str(run)]) == 2
    assert capsys.readouterr().err == (
        "evarl: range: navigation does not know its possible returns; give --range LO HI from the rules of the task, never from "
        "observed returns, for which no bound would be valid\n"
    )
    assert call(["certify", str(run), "--range", "-1", "1", "--rollouts", "300"]) == 2
    said = (
        r"returns: -[\d.]+ is outside the range \[-1, 1\]; the range must contain every possible rollout and be fixed"
    )
    assert re.search(said, capsys.readouterr().err)
    assert certified(capsys, str(run), "--range", "-51", "1", "--rollouts", "300", "--again")["outcome"] == "bounded"


def test_a_second_test_of_a_claim_is_refused_or_counted(run, capsys):
    first = certified(capsys, str(run), "--rollouts", "300")
    assert call(["certify", str(run), "--rollouts", "301"]) == 2
    assert re.search(
        r"mean-return has been tested for this policy before, at level 0.05, and the result is .*mean-return-seed-0-.*\.json. "
        r"With --again it is tested with new rollouts, and the levels of all tests add up, to a confidence of at most 0.9",
        capsys.readouterr().err,
    )
    second = certified(capsys, str(run), "--rollouts", "301", "--again")
    assert [one.error for one in load(Path(second["certificate"])).earlier] == [0.05]
    assert second["confidence"] == pytest.approx(0.9)
    page = Path(second["page"]).read_text()
    assert "Earlier tests of this claim about this policy: 1." in page
    assert "at confidence 90 %" in page
    assert call(["verify", second["certificate"]]) == 0
    captured = capsys.readouterr()
    assert "at confidence 90 %" in captured.out
    assert "was tested" not in captured.err, "the earlier test is counted already"
    assert call(["verify", first["certificate"]]) == 0
    assert "later tests of mean-return for this policy: 1; " in capsys.readouterr().err
    certified(capsys, str(run), "--claim", "single-episode", "--rollouts", "300")  # another claim is another matter


def test_what_changes_while_it_is_tested_is_not_certified(run, monkeypatch):
    """The protocol is fixed, and then somebody trains on."""
    from evarl.certificates import issue

    def tampering(test, notify):
        found = gather(test, notify)
        with (run / "policy" / "seed-0.safetensors").open("ab") as file:
            file.write(b" ")
        return found

    monkeypatch.setattr(issue, "gather", tampering)
    with pytest.raises(
        InputError, match=r"policy/seed-0\.safetensors changed while the policy was tested; nothing is certified"
    ):
        issue_certificate(run, evarl.Terms(rollouts=300))
    assert not list(run.glob("certificates/*-*.json"))


@pytest.mark.slow
def test_policies_of_another_kind_cannot_calibrate(run, tmp_path):
    other = train_tiny(tmp_path / "other", updates=2)
    with pytest.raises(InputError, match=r"was trained otherwise than .*updates: 6 ≠ 2.*differ by their seeds alone"):
        issue_certificate(run, evarl.Terms(alpha=0.2), from_policies=[other.path])


@pytest.mark.slow
def test_a_run_without_an_evaluator_has_only_j(tmp_path, capsys):
    run = train_tiny(tmp_path / "run", beta=0.0, seeds=1)
    assert certified(capsys, str(run.path), "--rollouts", "300")["rollouts"] == 300
    assert call(["certify", str(run.path), "--claim", "single-episode"]) == 2
    assert "claim: single-episode is about an evaluator, and" in capsys.readouterr().err


def test_the_protocol_is_on_disk_before_the_first_rollout(run, monkeypatch):
    from evarl.certificates import issue

    def looking(test, notify):
        (entry,) = ledger.read(run)
        assert entry.protocol == test.protocol
        return gather(test, notify)

    monkeypatch.setattr(issue, "gather", looking)
    issue_certificate(run, evarl.Terms(rollouts=300))


@pytest.mark.slow
def test_the_evaluator_controls_for_start_states_where_there_are_several(tmp_path, capsys):
    """In a world on the host, which does not know its range."""
    config = evarl.TrainConfig(
        world="gymnasium/CartPole-v1", horizon=20, beta=0.01, updates=2, environments=2, steps=20
    )
    config = with_settings(config, {"evaluator.network.width": 8, "evaluator.network.layers": 1, "evaluator.warmup": 1})
    run = evarl.train(config, out=tmp_path / "run", quiet=True)
    assert call(["certify", str(run.path)]) == 2
    assert "range: gymnasium/CartPole-v1 does not know its possible returns" in capsys.readouterr().err
    found = certified(capsys, str(run.path), "--range", "0", "100", "--rollouts", "16")
    evidence = {name: np.asarray(column) for name, column in load(Path(found["certificate"])).evidence.items()}
    assert set(evidence) == {"returns", "values", "fresh"}
    assert len(np.unique(evidence["fresh"])) > 12, "drawn anew for each rollout"
    columns = evidence["returns"], evidence["values"], evidence["fresh"][:, None]
    assert found["bound"] == bounds.mixture_lower_bound(bounds.EvaluatedRollouts(*columns), bounds.Range(0.0, 100.0))
    assert 0 <= found["bound"] < evidence["returns"].mean() <= 20
    assert call(["verify", found["certificate"]]) == 0
    capsys.readouterr()
    assert call(["certify", str(run.path), "--claim", "evaluator-error", "--range", "0", "20"]) == 2
    assert "evaluator-error requires two independent rollouts from one state" in capsys.readouterr().err


def test_an_evaluator_that_was_never_fitted_is_certified_for_nothing(tmp_path, capsys):
    run = train_tiny(tmp_path / "run", updates=2).path
    for claim in ("single-episode", "evaluator-error"):
        assert call(["certify", str(run), "--claim", claim, "--rollouts", "301"]) == 2
        assert "the evaluator of seed 0 was not fitted" in capsys.readouterr().err
    assert not (run / "certificates").exists(), "a test that cannot be made is not registered"
    assert certified(capsys, str(run), "--rollouts", "300")["outcome"] == "bounded"


def test_a_policy_that_is_not_finite_is_refused_before_a_test_is_registered(run, capsys):
    file = run / "policy" / "seed-0.safetensors"
    tree, about = load_arrays(file)
    save_tree(file, {name: array * np.float32(np.nan) for name, array in tree.items()}, about)
    assert call(["certify", str(run), "--rollouts", "300"]) == 2
    assert "must be finite numbers" in capsys.readouterr().err
    shutil.copy(run / "policy" / "seed-1.safetensors", file)
    assert call(["certify", str(run), "--rollouts", "300"]) == 2
    assert "is the policy of seed 1" in capsys.readouterr().err
    assert not (run / "certificates").exists()


def test_a_certificate_may_travel_without_its_page(run, tmp_path, capsys):
    issued = issue_certificate(run, evarl.Terms(rollouts=300))
    alone = Path(shutil.copy(issued.path, tmp_path / "alone.json"))
    assert call(["verify", str(alone), "--run", str(run)]) == 0
    assert "there is no page beside the certificate" in capsys.readouterr().err


def test_a_ledger_that_was_deleted_beside_certificates_is_missed(run, capsys):
    issue_certificate(run, evarl.Terms(rollouts=300))
    (run / "certificates" / "ledger.json").unlink()
    assert call(["certify", str(run), "--rollouts", "301"]) == 2
    assert "ledger.json: is missing, although there is mean-return-seed-0-" in capsys.readouterr().err


@pytest.mark.slow
def test_a_test_that_takes_hours_is_refused(tmp_path, capsys):
    run = train_tiny(tmp_path / "run", beta=0.0, seeds=1, updates=3, horizon=300_000_000).path
    assert call(["certify", str(run), "--rollouts", "60000"]) == 2
    assert "horizon × rollouts: 300000000 × 60000 is not allowed" in capsys.readouterr().err


def test_fresh_rollouts_test_the_same_predictions(run):
    """V̂ follows from one assessment, which is the protocol's own whatever key the rollouts have."""
    policy = open_policy(run, 0)
    protocol = make_protocol(policy, evarl.Terms(claim="single-episode", rollouts=300))
    first, fresh = (
        gather(PolicyTest(protocol, policy, key=key), print) for key in (protocol.key(), np.array([7, 7], np.uint32))
    )
    assert first["returns"] != fresh["returns"]
    assert first["values"] == fresh["values"], "there is one start state"


@pytest.mark.slow
def test_the_file_of_a_world_is_bound(tmp_path, capsys):
    world = tmp_path / "world.npz"
    moves = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.25, 0.75]]])
    arrays = {"transitions": moves, "rewards": np.array([[0.0, 0.0], [1.0, 2.0]]), "start": np.array([0.5, 0.5])}
    np.savez(world, **arrays)
    config = evarl.TrainConfig(world=f"tabular/{world}", horizon=5, updates=2, environments=2, steps=8)
    run = evarl.train(config, out=tmp_path / "run", quiet=True).path
    found = certified(capsys, str(run), "--rollouts", "300")
    np.savez(world, **(arrays | {"start": np.array([1.0, 0.0])}))
    assert call(["verify", found["certificate"], "--files-only"]) == 1
    assert "protocol, world_sha256" in capsys.readouterr().out
