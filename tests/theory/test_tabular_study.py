"""The program against exact values and finite differences, a small study, and what its findings say to made-up numbers."""

import json

import jax
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.studies.catalogue.tabular import checks, figures, tables
from evarl.theory import tabular_study as study
from evarl.theory.linear import evaluator_weights, loss, quadratic_form, similarity_matrix
from evarl.theory.tabular_summary import TOLERANCE, select, summary
from evarl.truth.exact import optimal_values, policy_values
from evarl.worlds.tabular import Tabular

START = np.full(5, 0.2)
FORM = quadratic_form(evaluator_weights(similarity_matrix(study.SIMILARITY, study.ASSESSED)), START)
BETAS = np.array([0.0, 2.0, 50.0])
EVALUATE = jax.jit(study.evaluate)


@pytest.fixture(scope="module")
def result():
    return study.tabular_study(trials=20, restarts=8)


def problems():
    transitions, rewards = study.random_worlds(1, seed=3)
    return study.initial_logits(1, len(BETAS), seed=3)[0], transitions[0], rewards[0]


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_values_are_the_exact_ones():
    logits, transitions, rewards = problems()
    with jax.enable_x64(True):
        found = EVALUATE(logits, study.Problem(transitions, rewards, FORM, START, BETAS))
        assert found.values.dtype == np.float64
    world = Tabular(transitions, rewards, START, discount=study.DISCOUNT)
    for i in range(len(BETAS)):
        values = policy_values(world, softmax(logits[..., i]))
        np.testing.assert_allclose(found.values[:, i], values, rtol=1e-12)
        assert found.performance[i] == pytest.approx(START @ values, rel=1e-12)
        assert found.loss[i] == pytest.approx(loss(values, FORM), rel=1e-10)


def test_gradient_is_that_of_finite_differences():
    logits, transitions, rewards = problems()
    world = Tabular(transitions, rewards, START, discount=study.DISCOUNT)

    def objective(x, beta):
        values = policy_values(world, softmax(x))
        return START @ values - beta * loss(values, FORM)

    with jax.enable_x64(True):
        found = EVALUATE(logits, study.Problem(transitions, rewards, FORM, START, BETAS))
    for i, beta in enumerate(BETAS):
        for place in np.ndindex(5, 2):
            step = np.zeros((5, 2))
            step[place] = 1e-5
            x = logits[..., i]
            difference = (objective(x + step, beta) - objective(x - step, beta)) / 2e-5
            # V is known to about 1e-14, so differences to 1e-9; β multiplies that by up to 50
            assert found.gradient[*place, i] == pytest.approx(difference, abs=2e-7)


def test_worlds_do_not_depend_on_how_many_there_are():
    few, many = study.random_worlds(2, seed=1), study.random_worlds(5, seed=1)
    np.testing.assert_array_equal(few[0], many[0][:2])
    np.testing.assert_array_equal(few[1], many[1][:2])
    np.testing.assert_array_equal(study.initial_logits(2, 3, 1), study.initial_logits(5, 3, 1)[:2])


def test_a_small_study_shows_the_proposition(result):
    assert jax.numpy.zeros(()).dtype == np.float32  # float64 stays inside
    assert json.loads(json.dumps(result)) == result
    transitions, rewards = study.random_worlds(20, seed=0)
    best = [START @ optimal_values(Tabular(P, r, START), 400) for P, r in zip(transitions, rewards, strict=True)]
    for name, found in result["procedures"].items():
        # Without a penalty the policy is optimal.
        assert found["J"]["mean"][0] == pytest.approx(np.mean(best), abs=1e-6), name
    common = result["procedures"]["common set"]
    assert common["J"]["share"] == common["L"]["share"] == 1.0
    assert common["J"]["largest_violation"] == common["L"]["largest_violation"] == 0.0
    honest = result["procedures"]["best of starts"]
    assert min(honest["J"]["share"], honest["L"]["share"]) >= 0.9
    assert honest["J"]["overall_mean"] > 0.5
    assert honest["L"]["mean"][-1] < 0.5 * honest["L"]["mean"][0]
    assert min(result["gap"]["mean"]) >= 0.0


def test_findings_of_a_small_study(result):
    monotone_loss, monotone_return, bound = checks(result)
    assert monotone_loss.verdict == monotone_return.verdict == "holds"
    assert bound.verdict == "does not hold"
    assert bound.effect == pytest.approx(-10.0, abs=1e-5)
    tradeoff, steps, _ = tables(result)
    assert len(tradeoff.rows) == len(result["betas"]) == len(steps.rows)
    assert all(len(row) == len(table.columns) for table in tables(result) for row in table.rows)
    (figure,) = figures(result)
    assert figure.png.startswith(b"\x89PNG")
    assert b"<svg" in figure.svg
    assert figures(result) == (figure,)


def made_up(numbers):
    """A result whose J and L [trials, betas] are these, with one restart."""
    betas = list(range(numbers.shape[1]))
    about = {"trials": len(numbers), "restarts": 1, "states": 5, "actions": 2, "discount": 0.9}
    return about | summary(numbers[..., None], numbers[..., None], betas, FORM, START)


def noise(trials, betas):
    return np.random.default_rng(0).normal(size=(trials, betas))


@pytest.mark.parametrize(
    ("slope", "deviation", "verdict"),
    [
        ([0, -1, -2, -3], 0.1, "holds"),
        ([0, 0, 0, -3], 0.01, "holds"),  # a step of nothing is no rise
        ([0, 1, 2, 3], 0.1, "does not hold"),
        ([0, -1, -0.8, -3], 0.1, "does not hold"),  # one rise, though all in all it falls
        ([0, -0.1, -0.2, -0.3], 5.0, "undecided"),
        ([0, 0, 0, -3], 1.0, "undecided"),  # all in all it falls, but a step may be a rise
        ([0, -1e-9, 1e-9, 0], 0.0, "undecided"),  # rounding errors are no rise, and nothing falls
    ],
)
def test_verdicts(slope, deviation, verdict):
    numbers = 10 + np.asarray(slope, float) + deviation * noise(40, 4)
    found = checks(made_up(numbers))[:2]
    assert [check.verdict for check in found] == [verdict, verdict]
    for check in found:
        low, high = check.interval
        assert low <= check.effect <= high


def test_noise_alone_is_seldom_called_a_rise():
    rng = np.random.default_rng(1)
    wrong = [checks(made_up(rng.normal(size=(30, 6))))[0].verdict == "does not hold" for _ in range(200)]
    assert np.mean(wrong) < 0.05


def test_a_bound_is_not_proved_by_one_example(result):
    harmless = result | {"bound": result["bound"] | {"slack": 0.5}}
    assert checks(harmless)[2].verdict == "undecided"


def test_the_common_set_is_monotone_whatever_was_trained():
    rng = np.random.default_rng(0)
    chosen = select(rng.normal(size=(50, 4, 3)), rng.uniform(size=(50, 4, 3)), [0.0, 1.0, 2.0, 5.0])
    for numbers in chosen["common set"]:
        assert (np.diff(numbers, axis=1) <= TOLERANCE).all()
    assert not (np.diff(chosen["best of starts"][0], axis=1) <= TOLERANCE).all()


@pytest.mark.parametrize("betas", [[0.0], [1.0, 0.0], [-1.0, 0.0]])
def test_betas_must_increase(betas):
    with pytest.raises(InputError, match="betas"):
        study.tabular_study(2, betas)
