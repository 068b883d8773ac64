"""Evaluations whose result is known, because the evaluator says what we make it say."""

from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest

import evarl
import evarl.evaluation
import evarl.report
from evarl.evaluation.predictions import BehaviourPredictor, EvaluatorPredictions, oldest_first
from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, SHUFFLED, ZEROED
from evarl.evaluation.scores import MeanAndError
from evarl.evaluators.evaluator import LearntEvaluator
from tests.evaluation.tiny import constant, train_tiny, with_evaluators

QUICK = {"rollouts": 4, "states": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


def test_a_constant_evaluator_is_scored_as_numpy_says(run, tmp_path):
    changed = with_evaluators(run, tmp_path / "constant", constant)
    said = np.array([float(changed.evaluator_state(seed).state.target.mean) for seed in changed.seeds])
    found = evarl.evaluate(changed, **QUICK)
    for kind in ("start", "visited"):
        truths = [seed.queries[kind].truth for seed in found.seeds]
        errors = [c - truth.value for c, truth in zip(said, truths, strict=True)]
        row = found.row(EVALUATOR, kind)
        maes = [np.abs(error).mean() for error in errors]
        mse = np.mean([(e**2 - t.standard_error**2).mean() for e, t in zip(errors, truths, strict=True)])
        assert row.mae.mean == pytest.approx(np.mean(maes), rel=1e-5)
        assert row.mae.standard_error == pytest.approx(abs(maes[0] - maes[1]) / 2, rel=1e-4)
        assert row.bias.mean == pytest.approx(np.mean([error.mean() for error in errors]), rel=1e-5)
        assert row.rmse.mean == pytest.approx(max(0.0, mse) ** 0.5, rel=1e-5)
        assert row.rank_states == MeanAndError(None), "a constant has no ranks"
        for other in (ZEROED, SHUFFLED):
            assert found.row(other, kind).mae.mean == pytest.approx(row.mae.mean), "it does not look at Ξ"


def test_an_evaluator_that_says_the_truth_has_no_error_beyond_the_noise(run, tmp_path):
    first = evarl.evaluate(run, **QUICK)
    truth = {seed.seed: seed.queries["start"].truth for seed in first.seeds}

    def right(seed: int, learnt: LearntEvaluator) -> LearntEvaluator:
        learnt = constant(seed, learnt)
        target = learnt.state.target.replace(mean=jnp.float32(truth[seed].value[0]))
        return learnt.replace(state=learnt.state.replace(target=target))

    found = evarl.evaluate(with_evaluators(run, tmp_path / "right", right), random_seed=1, **QUICK)
    row = found.row(EVALUATOR, "start")
    noise = max(one.standard_error[0] for one in truth.values())
    assert row.mae.mean < 5 * noise
    assert row.rmse.mean < 5 * noise
    again = evarl.evaluate(tmp_path / "right", **QUICK)
    assert again.row(EVALUATOR, "start").mae.mean == pytest.approx(0.0, abs=1e-4), (
        "the same random_seed, the same truth"
    )
    assert again.row(EVALUATOR, "start").rmse.mean == 0.0


def test_one_start_state_gets_the_rollouts_of_all(run):
    found = evarl.evaluate(run, seeds=[1], **QUICK)
    assert found.start_states == "1 distinct of 8 drawn from μ_D"
    (seed,) = found.seeds
    truth = seed.queries["start"].truth
    assert (truth.value.shape, truth.rollouts) == ((1,), 32)
    assert found.discounted == seed.discounted == MeanAndError(float(truth.value[0]), float(truth.standard_error[0]))
    assert found.undiscounted.standard_error > 0
    assert seed.queries["visited"].truth.value.shape == (8,)
    assert seed.queries["visited"].predictions[SHUFFLED].shape == (4, 8), "4 remembered policies of the other seed"
    assert set(seed.queries["start"].predictions) == {EVALUATOR, ZEROED, SHUFFLED, CRITIC, BATCH}


def test_results_of_a_seed_do_not_depend_on_the_others_asked_for(run):
    both, alone = evarl.evaluate(run, **QUICK).seeds[1], evarl.evaluate(run, seeds=[1], **QUICK).seeds[0]
    for kind, queries in both.queries.items():
        for name, said in queries.predictions.items():
            np.testing.assert_array_equal(said, alone.queries[kind].predictions[name])


def test_remembered_policies_come_oldest_first_and_without_empty_slots():
    slots = {"any": jnp.arange(8, dtype=jnp.float32).reshape(4, 2), "tree": jnp.arange(4)}
    for updates, order in {0: [], 3: [0, 1, 2], 4: [0, 1, 2, 3], 6: [2, 3, 0, 1]}.items():
        found = oldest_first(slots, updates)
        assert found["tree"].tolist() == order, "the fifth update is in the first of four slots"
        np.testing.assert_array_equal(found["any"], np.asarray(slots["any"])[order])


@pytest.mark.slow
def test_a_single_seed_is_shuffled_with_its_own_older_policies(tmp_path, key):
    run = train_tiny(tmp_path / "single", seeds=1)
    predictor, learnt = BehaviourPredictor(run), run.evaluator_state(0)
    alone = EvaluatorPredictions(run, [0], None, key, print)
    assessed = alone.assessed(0)
    assert alone.shuffled_with == "older remembered policies of the same seed"
    queries = np.zeros((1, 2), np.float32)
    found = alone.predict(0, queries)
    assert found[SHUFFLED].shape == (3, 1), "four are remembered, and the last is the policy itself"
    own = predictor.predict(learnt.state, assessed.behaviour, queries)
    np.testing.assert_allclose(found[EVALUATOR][0], own, 1e-6)  # another program in float32, which has seven digits
    np.testing.assert_allclose(found[EVALUATOR][0], predictor.value(learnt.state, assessed.behaviour)(queries), 1e-5)


def test_a_passive_run_is_measured_against_its_own_truth(run, tmp_path):
    passive = train_tiny(tmp_path / "passive", beta=0.0, evaluator_mode="colearned")
    found = evarl.evaluate(run, passive=passive, **QUICK)
    own = evarl.evaluate(passive, **QUICK)
    assert found.passive is not None
    assert found.passive.rows == own.rows
    with pytest.raises(evarl.errors.InputError, match="must be a run with β = 0"):
        evarl.evaluate(run, passive=run, **QUICK)


@pytest.mark.parametrize("folder", [evarl.evaluation, evarl.report], ids=lambda folder: folder.__name__)
def test_public_names_are_not_their_modules(folder):
    for _ in range(2):  # the second time, the module has been imported
        assert not [name for name in folder.__all__ if isinstance(getattr(folder, name), ModuleType)]
