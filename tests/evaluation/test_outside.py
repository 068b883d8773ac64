"""Policies of other packages in `evaluate` and `compare`: values that are known beforehand."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.predictors import BEST, EVALUATOR, MEAN, SHUFFLED, TOLD, ZEROED
from evarl.evaluation.results import SITE, START, VISITED
from evarl.policies import from_numpy
from evarl.truth.exact import policy_values
from evarl.worlds.crossing import START as CELL, cell
from tests.evaluation.test_sites import SITES, train_family
from tests.evaluation.tiny import constant, train_tiny, with_evaluators

HEIGHTS = np.array([0.25, 0.45, 0.65, 0.85] + [1.0] * 46)
"""Where a policy that only goes up is after each of the 50 steps in navigation; nothing stands at its left edge."""
UP = float(-(0.99 ** np.arange(50)) @ np.hypot(0.85, HEIGHTS - 0.9))
MODULE = (
    "import numpy as np\ndef up(seen): return np.full(len(seen), 1)\ndef down(seen): return np.full(len(seen), 3)\n"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A module of the user's own in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evaluated_policies.py").write_text(MODULE)


def up():
    return from_numpy(lambda seen: np.full(len(seen), 1), "actions", description="always up")


def test_the_true_value_and_what_every_evaluator_predicts(run):
    """Nothing is random in navigation if the policy is not: `assess` predicts the same."""
    found = evarl.evaluate(run, policy=up(), rollouts=2, states=2)
    assert found.policy == "always up"
    assert found.discounted.mean == pytest.approx(UP, rel=1e-5)
    assert found.discounted.standard_error == pytest.approx(0.0, abs=1e-5)
    expected = [evarl.assess(run, seed, policy=up(), samples=2, interval=False) for seed in run.seeds]
    for seed, one in zip(found.seeds, expected, strict=True):
        start = seed.queries[START]
        assert start.truth.value.tolist() == pytest.approx([UP], rel=1e-5)
        assert start.predictions[EVALUATOR].tolist() == [pytest.approx([one.mean], rel=1e-5)]
        assert seed.assessment == pytest.approx(one.mean_returns.tolist(), rel=1e-5)
        assert set(seed.queries[VISITED].predictions) == {EVALUATOR, ZEROED, SHUFFLED}
        assert seed.queries[VISITED].predictions[SHUFFLED].shape == (2, 2), "the final policies of both seeds"
    assert found.predicted.mean == pytest.approx(np.mean([one.mean for one in expected]), rel=1e-5)
    assert found.shuffled_with == "final policies of the run"
    assert found.policies == {}
    assert "critics, last batches and logs are those of the run's own policies, and are left out" in found.notes[0]


def test_a_final_policy_given_from_outside_is_evaluated_as_itself(run):
    probabilities = run.target_policy(1).probabilities
    again = from_numpy(lambda seen: np.asarray(probabilities(jnp.asarray(seen))))
    own, given = evarl.evaluate(run, [1], states=4), evarl.evaluate(run, [1], states=4, policy=again)
    assert given.discounted.mean == pytest.approx(own.discounted.mean, rel=1e-4)
    for name in (EVALUATOR, ZEROED):
        one, other = (found.row(name, VISITED) for found in (own, given))
        assert other.mae.mean == pytest.approx(one.mae.mean, rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_sites_have_exact_values_where_probabilities_are_known(tmp_path):
    run = train_family(tmp_path / "family")
    uniform = from_numpy(lambda seen: np.full((len(seen), 4), 0.25), description="uniform")
    found = evarl.evaluate(run, policy=uniform, sites=SITES)
    assert found.sites.exact
    assert found.policy == "uniform"
    for context, value in zip(found.sites.drawn, found.seeds[0].queries[SITE].truth.value, strict=True):
        expected = policy_values(run.world.at(context), np.full((56, 4), 0.25), 10)[cell(*CELL)]
        assert value == pytest.approx(expected, rel=1e-6)
    assert [row.predictor for row in found.rows] == [EVALUATOR, ZEROED, SHUFFLED, MEAN, TOLD, BEST]
    assert found.predicted.mean == found.seeds[0].queries[SITE].predictions[EVALUATOR].mean()


@pytest.mark.slow
def test_the_command_evaluate(run, modules, capsys):
    (run.path / "evaluation-outside.json").unlink(missing_ok=True)
    given = ["--policy-import", "evaluated_policies:up", "--rollouts", "2", "--states", "2"]
    assert call(["evaluate", str(run.path), *given]) == 0
    out = capsys.readouterr().out
    assert "predicted from its assessment: " in out
    assert "note: the policy is evaluated_policies:up: critics, last batches and logs" in out
    assert "over 2 seeds' evaluators" in out
    kept = json.loads((run.path / "evaluation-outside.json").read_text())
    assert kept["policy"] == "evaluated_policies:up"
    assert kept["return_discounted"]["mean"] == pytest.approx(UP, rel=1e-5)
    assert not (run.path / "evaluation.json").exists(), "that of the run's own policies is left alone"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ope"], "ope: is about policies of runs; must be left out for a policy of another package"),
        (["--passive", "RUN"], "passive: "),
        (["--policy-sb3", "x.zip"], "policy-import and policy-sb3: only one of them can be given"),
    ],
)
def test_what_does_not_go_with_it_is_one_line(run, modules, arguments, message, capsys):
    arguments = [str(run.path) if one == "RUN" else one for one in arguments]
    assert call(["evaluate", str(run.path), "--policy-import", "evaluated_policies:up", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_run_without_evaluator_cannot_be_asked(tmp_path):
    plain = train_tiny(tmp_path / "plain", beta=0.0, seeds=1)
    with pytest.raises(InputError, match="has no evaluator to be asked about it"):
        evarl.evaluate(plain, policy=up())


def test_compare_with_an_outside_policy(run, tmp_path):
    """Always up returns the same in every episode: it reaches what is below that, and nothing above."""
    directory = evarl.outside_directory(tmp_path / "up", up(), "navigation", discount=run.config.discount)
    found = evarl.compare_policies([run, directory], evarl.Terms(threshold=UP - 4, rollouts=400))
    (one,) = (candidate for candidate in found if candidate.outside)
    assert (one.run, one.outside, len(found)) == (str(directory.path), "always up", 3)
    predicted = [candidate.predicted for candidate in found]
    assert predicted == sorted(predicted, reverse=True)
    assert one.predicted == pytest.approx(evarl.assess(run, policy=up(), interval=False).mean, rel=1e-5)
    if one.issued is not None:  # those before it were certified
        assert one.certified
        assert one.issued.certificate.evidence["returns"] == pytest.approx([UP] * 400, rel=1e-5)
        reliance = evarl.Reliance(policy=up())
        assert evarl.verify_certificate(one.issued.path, rerun=False, reliance=reliance).verified


@pytest.mark.slow
def test_the_command_compare(run, modules, tmp_path, capsys):
    given = ["--policy-import", "evaluated_policies:down", "--rollouts", "100", "--json"]
    assert call(["compare", str(run.path), "down", *given, "--threshold", "-46", "--again"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)["candidates"]
    (one,) = (row for row in found if row["outside"])
    assert (one["run"], one["outside"]) == ("down", "function evaluated_policies:down (actions)")
    assert evarl.Run.load("down").config.discount == run.config.discount
    assert call(["compare", "down", *given, "--threshold", "-46"]) == 2
    assert "runs: 'down' is the directory of the policy; must be one or more runs before it" in capsys.readouterr().err
    assert call(["compare", str(run.path), "down", "--threshold", "-46"]) == 2
    assert "down: is about an outside policy, and files do not decide what is executed" in capsys.readouterr().err
    assert call(["compare", "down", str(run.path), *given, "--threshold", "-46"]) == 2
    assert "was trained here; the last must be a directory for the policy given" in capsys.readouterr().err


def test_a_directory_for_another_discount_is_refused_before_the_policy_is_loaded(run, modules, capsys):
    evarl.outside_directory("undiscounted", up(), "navigation")
    arguments = ["compare", str(run.path), "undiscounted", "--policy-sb3", "no such file.zip", "--threshold", "-46"]
    assert call(arguments) == 2
    message = "undiscounted: holds a policy with discount 1.0, and discount 0.99 is needed here; give another directory"
    assert capsys.readouterr().err == f"evarl: {message}\n"


@pytest.mark.parametrize(
    ("beyond", "order"),
    [((1.0, -0.5), [("own", 1), ("own", 0), ("up", 0)]), ((0.01, 0.02), [("own", 0), ("own", 1), ("up", 0)])],
    ids=["far beyond what is possible comes last", "a little beyond is as good as the best"],
)
def test_impossible_predictions_do_not_decide_the_order(beyond, order, run, modules):
    """Evaluators that always say the same: the greatest possible return, and some share of the range more."""
    low, high = run.world.return_range()

    def saying(seed, learnt):
        learnt = constant(seed, learnt)
        mean = 0 * learnt.state.target.mean + high + beyond[seed] * (high - low)
        return learnt.replace(state=learnt.state.replace(target=learnt.state.target.replace(mean=mean)))

    own = with_evaluators(run, Path("own"), saying)
    directory = evarl.outside_directory("up", up(), "navigation", discount=run.config.discount)
    lines = []
    terms = evarl.Terms(threshold=high - 0.1 * (high - low), rollouts=100)  # none reaches it
    found = evarl.compare_policies([directory, own], terms, again=True, notify=lines.append)
    assert [(one.run, one.seed) for one in found] == order
    assert [one.issued is None for one in found] == [False, True, True]
    assert sum(f"possible returns, {low:g} to {high:g}; it comes last" in line for line in lines) == 2 * (
        beyond[0] == 1
    )


@pytest.mark.slow
def test_the_table_says_why_a_candidate_was_not_tested(run, modules, capsys):
    threshold = str(run.world.return_range()[1] - 1)
    given = ["--policy-import", "evaluated_policies:down", "--threshold", threshold, "--rollouts", "300", "--again"]
    assert call(["compare", str(run.path), "down", *given]) == 1
    assert capsys.readouterr().out.count("not tested: an earlier candidate failed") == 2
    assert call(["compare", str(run.path), "down", *given, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["candidates"]
    assert [row.get("reason") for row in rows] == [None, *["an earlier candidate failed"] * 2]
