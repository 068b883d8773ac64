"""Evaluation over sites of a family of worlds, whose results are known beforehand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from evarl.evaluation.predictors import (
    BATCH,
    BEST,
    BLIND_CRITIC,
    CRITIC,
    EVALUATOR,
    MEAN,
    SHUFFLED,
    TOLD,
    TOLD_CRITIC,
    ZEROED,
)
from evarl.evaluation.results import SITE, Queries
from evarl.evaluation.scores import MeanAndError
from evarl.evaluation.told import told_values
from evarl.learning.configuration import with_settings
from evarl.truth.exact import policy_values
from evarl.worlds.contexts import Context
from evarl.worlds.crossing import START, cell
from tests.evaluation.tiny import constant, train_once, with_evaluators

TINY = {
    "environments": 8,
    "contexts": 4,
    "rollouts_per_start": 2,
    "steps": 10,
    "updates": 6,
    "horizon": 10,
    "agent.hidden_sizes": [8],
    "assessment.horizon": 6,
    "evaluator.network.width": 8,
    "evaluator.network.layers": 1,
    "evaluator.policies": 4,
    "evaluator.warmup": 2,
    "evaluator.initial_steps": 5,
    "evaluator.final_steps": 5,
    "evaluator.transitions": 8,
}
SITES = 12


def train_family(out, **changes) -> evarl.Run:
    config = with_settings(evarl.preset("crossing"), TINY | {"beta": 0.5, "seeds": 1} | changes)
    return train_once(config, out)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_family(tmp_path_factory.mktemp("family") / "run", seeds=2)


@pytest.fixture(scope="module")
def found(run) -> evarl.evaluation.Evaluation:
    return evarl.evaluate(run, sites=SITES)


def queries(found, seed: int = 0) -> Queries:
    return found.seeds[seed].queries[SITE]


def table_of(run: evarl.Run, seed: int) -> np.ndarray:
    """Action probabilities in every cell."""
    probabilities = run.target_policy(seed).probabilities
    assert probabilities is not None
    table = np.asarray(probabilities(jnp.eye(56, dtype=bool)), np.float64)
    return table / table.sum(axis=1, keepdims=True)


def test_the_truth_is_that_of_dynamic_programming(run, found):
    assert found.sites.exact
    assert found.sites.drawn.shape == (SITES, 1)
    assert set(found.sites.drawn.ravel().tolist()) == {np.float32(0.15), np.float32(0.9)}
    for seed in (0, 1):
        policy = table_of(run, seed)
        for context, value in zip(found.sites.drawn, queries(found, seed).truth.value, strict=True):
            expected = policy_values(run.world.at(context), policy, 10)[cell(*START)]
            assert value == pytest.approx(expected, rel=1e-6)
        assert queries(found, seed).truth.standard_error.tolist() == [0.0] * SITES


def test_every_control_is_there_and_a_told_context_leaves_no_error(found):
    assert [row.predictor for row in found.rows] == [
        EVALUATOR,
        ZEROED,
        SHUFFLED,
        MEAN,
        BLIND_CRITIC,
        BATCH,
        TOLD_CRITIC,
        TOLD,
        BEST,
    ]
    told, constant = found.row(TOLD, SITE), found.row(MEAN, SITE)
    assert told.mae.mean == pytest.approx(0.0, abs=1e-12), "every value has been seen on another site"
    assert told.rank_states.mean == pytest.approx(1.0)
    assert constant.rank_states == MeanAndError(None)
    values = [queries(found, seed).truth.value for seed in (0, 1)]
    assert constant.rmse.mean == pytest.approx(np.mean([one.var() for one in values]) ** 0.5)
    assert found.best_without[SITE] in (MEAN, ZEROED, BLIND_CRITIC, BATCH), "not one that is told the context"


def test_an_evaluator_that_ignores_the_test_is_a_constant(run, tmp_path):
    found = evarl.evaluate(with_evaluators(run, tmp_path / "constant", constant), sites=SITES)
    rows = [found.row(name, SITE) for name in (EVALUATOR, ZEROED, SHUFFLED)]
    assert rows[0].mae.mean == pytest.approx(rows[1].mae.mean) == pytest.approx(rows[2].mae.mean)
    assert all(row.rank_states == MeanAndError(None) for row in rows)
    assert rows[0].rmse.mean >= found.row(MEAN, SITE).rmse.mean, "no constant is better than the best"


def test_an_evaluator_that_knows_the_context_has_no_error_until_tests_are_shuffled(run, monkeypatch):
    """Tests are made to show the context itself, and the evaluator to know the value of both."""
    from evarl.evaluation import predictions

    first = queries(evarl.evaluate(run, seeds=[0], sites=SITES)).truth.value
    contexts = evarl.evaluate(run, seeds=[0], sites=SITES).sites.drawn[:, 0]
    low, high = first[contexts < 0.5][0], first[contexts > 0.5][0]
    plain = predictions.BehaviourPredictor.assess

    def shown(self, policy, key, contexts, probes):
        assessed = plain(self, policy, key, contexts, probes)
        return assessed._replace(
            behaviour=jax.tree.map(lambda leaf: 0 * leaf + np.asarray(contexts), assessed.behaviour)
        )

    def predict(self, state, behaviours, queries):
        told = np.asarray(jax.tree.leaves(behaviours)[0])[:, 0] > 0.5
        return np.repeat(np.where(told, high, low)[:, None], queries.shape[1], axis=1)

    monkeypatch.setattr(predictions.BehaviourPredictor, "assess", shown)
    monkeypatch.setattr(predictions.BehaviourPredictor, "predict_sites", predict)
    monkeypatch.setattr("evarl.evaluation.sites._best", lambda *given: {})
    found = evarl.evaluate(run, seeds=[0], sites=SITES)
    knows, shuffled = found.row(EVALUATOR, SITE), found.row(SHUFFLED, SITE)
    assert (knows.mae.mean, knows.rank_states.mean) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0))
    assert knows.skill.mean == pytest.approx(1.0)
    assert shuffled.mae.mean >= 0.9 * found.row(MEAN, SITE).mae.mean, "tests of other sites say nothing about this one"
    assert abs(shuffled.rank_states.mean) < 0.5


def test_the_best_evaluator_is_the_posterior_mean(run, found):
    """Its predictions are mixtures of the two values, and better than any constant."""
    for seed in (0, 1):
        one = queries(found, seed)
        best, values = one.predictions[BEST][0], one.truth.value
        assert (best >= values.min() - 1e-9).all()
        assert (best <= values.max() + 1e-9).all()


def test_results_do_not_depend_on_other_seeds_and_repeat(run, found):
    again = evarl.evaluate(run, seeds=[1], sites=SITES)
    for name, values in queries(found, 1).predictions.items():
        np.testing.assert_array_equal(values, queries(again).predictions[name])
    other = evarl.evaluate(run, seeds=[1], sites=SITES, random_seed=1)
    assert other.sites.drawn.tolist() != again.sites.drawn.tolist()


@pytest.mark.slow
def test_values_are_measured_where_they_are_not_exact(tmp_path):
    changes = {
        "world": "navigation",
        "context": ["slip=0:0.5"],
        "assessment.start_states": "0.2,0.2 0.8,0.2",
        "assessment.scenarios": 2,
    }
    run = train_family(tmp_path / "slip", **changes, critic_sees_context=False)
    found = evarl.evaluate(run, sites=6, rollouts=8)
    assert not found.sites.exact
    truth = queries(found).truth
    assert (truth.value.shape, truth.rollouts) == ((6,), 8)
    assert (truth.standard_error > 0).all()
    assert {row.predictor for row in found.rows} == {EVALUATOR, ZEROED, SHUFFLED, MEAN, CRITIC, BATCH, TOLD}
    assert found.row(TOLD, SITE).mae.mean > 0
    assessed = evarl.assess(run, context={"slip": 0.3}, truth_episodes=16, interval=False)
    assert (assessed.context, assessed.truth.episodes) == ({"slip": 0.3}, 16)
    assert assessed.truth.standard_error > 0
    assert evarl.assess(run, truth_episodes=0, interval=False).truth is None


def test_one_site_is_assessed_and_measured(run, capsys):
    assert call(["assess", str(run.path), "--context", "bridge=0.9", "--seed", "1", "--no-interval", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["context"], told["context_drawn"], told["outside_contexts"], err) == ({"bridge": 0.9}, False, [], "")
    exact = policy_values(run.world.at(0.9), table_of(run, 1), 10)[cell(*START)]
    assert told["truth"] == {
        "value": pytest.approx(exact, rel=1e-6),
        "standard_error": None,
        "episodes": 0,
        "exact": True,
    }
    assert call(["assess", str(run.path), "--context", "bridge=0.5", "--no-interval"]) == 0
    out, err = capsys.readouterr()
    assert "site: bridge=0.5 (given" in out
    assert err.startswith("warning: bridge=0.5 is never drawn in training (bridge=0.15,0.9)")
    drawn = [evarl.assess(run, random_seed=seed, interval=False) for seed in range(6)]
    assert {one.context["bridge"] for one in drawn} == {0.15, 0.9}
    assert all(one.context_drawn and not one.outside_contexts for one in drawn)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["assess", "--context", "bridge=1.5"], "context: bridge=1.5 is not allowed; crossing takes 0 to 1"),
        (["assess", "--context", "plank=0.5"], "context: unknown 'plank'"),
        (["assess", "--context", "bridge=0.1", "--context", "bridge=0.2"], "context: bridge is given twice"),
        (["assess", "--truth-episodes", "-1"], "truth-episodes: -1 is not allowed"),
        (["evaluate", "--sites", "1"], "sites: 1 is not allowed"),
        (["evaluate", "--ope"], "ope: the log of"),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, message, capsys):
    command, *options = arguments
    assert call([command, str(run.path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.slow
def test_the_files_say_what_was_measured(run, tmp_path, capsys):
    file = tmp_path / "mine.json"
    assert call(["evaluate", str(run.path), "--sites", "8", "--random-seed", "7", "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert "8 sites, contexts bridge=0.15,0.9 (random seed 7); exact values by dynamic programming" in out
    assert "rank over sites" in out
    kept = json.loads(file.read_text())
    assert (kept["sites"]["count"], kept["sites"]["contexts"], kept["sites"]["random_seed"]) == (
        8,
        ["bridge=0.15,0.9"],
        7,
    )
    assert len(kept["seeds"][0]["queries"]["site"]["predictions"][EVALUATOR]) == 8
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_passive_run_is_measured_on_the_same_sites(run, found, tmp_path):
    passive = train_family(tmp_path / "passive", beta=0.0, evaluator_mode="colearned")
    both = evarl.evaluate(run, passive=passive, seeds=[0], sites=SITES)
    assert both.passive.sites.drawn.tolist() == both.sites.drawn.tolist() == found.sites.drawn.tolist()
    assert both.passive.rows == evarl.evaluate(passive, sites=SITES).rows


@pytest.mark.slow
def test_what_was_not_fitted_has_no_numbers(run, tmp_path):
    def never(seed, learnt):
        return learnt.replace(
            state=learnt.state.replace(optimizer=jax.tree.map(jnp.zeros_like, learnt.state.optimizer))
        )

    changed = with_evaluators(run, tmp_path / "never", never)
    found = evarl.evaluate(changed, sites=4)
    assert found.row(EVALUATOR, SITE).not_fitted == found.not_fitted is not None
    assert found.row(EVALUATOR, SITE).mae == MeanAndError(None)
    assert found.row(MEAN, SITE).mae.mean is not None
    assert evarl.assess(changed).mean is None


def test_a_critic_that_sees_the_context_is_averaged_unless_it_is_told(run):
    shown = jnp.zeros((3, 56), bool)
    both = [run.value(shown, context=[context]) for context in (0.15, 0.9)]
    np.testing.assert_allclose(run.value(shown), (both[0] + both[1]) / 2, rtol=1e-5)
    assert not np.allclose(both[0], both[1])


def test_regression_on_contexts_is_exact_for_lines_and_near_for_curves():
    contexts = [Context("slip", 0.0, 1.0), Context("wind", -1.0, 1.0)]
    drawn = np.random.default_rng(0).uniform([0.0, -1.0], [1.0, 1.0], (60, 2))
    line = 3 * drawn[:, 0] - drawn[:, 1]
    np.testing.assert_allclose(told_values(contexts, drawn, line), line, atol=1e-4)
    curve = np.sin(3 * drawn[:, 0])
    error = np.abs(told_values(contexts, drawn, curve) - curve).mean()
    assert error < 0.05 < np.abs(curve - curve.mean()).mean()
