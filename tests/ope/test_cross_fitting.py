"""Doubly robust methods with models that did not see what they correct, and with models of the user."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.cross_fitting import cross_fitted
from evarl.ope.doubly_robust import doubly_robust
from tests.ope.test_estimate import DISCOUNT, EXACT, QUICK, chain_log, one_hot, switching

MEMORY = ope.FQEConfig(hidden_sizes=(64,), steps=1500, learning_rate=3e-3)
"""Enough to learn a hundred rewards by heart."""
DIRECTION = np.random.default_rng(123).normal(size=20).astype(np.float32)


def contexts(seed: int, count: int) -> ope.LoggedData:
    """One step: a context in 20 dimensions, two actions at random, reward 1 for the right one, and noise."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(count, 1, 20)).astype(np.float32)
    action = rng.integers(0, 2, (count, 1))
    return ope.LoggedData.from_arrays(
        observation=seen,
        action=action,
        reward=(action == (seen @ DIRECTION > 0)) + rng.normal(size=(count, 1)),
        log_prob=np.full((count, 1), np.log(0.5)),
        terminated=np.ones((count, 1), bool),
        final_observation=seen[:, 0],
    )


NINE_OF_TEN = ope.TargetPolicy.from_probabilities(
    lambda seen: jnp.where((seen @ DIRECTION > 0)[:, None], jnp.asarray([[0.1, 0.9]]), jnp.asarray([[0.9, 0.1]]))
)
"""Takes the right action with probability 0.9: J = 0.9."""


def dr(data, settings=None, **log):
    settings = settings or ope.Settings(fqe=MEMORY, resamples=100)
    return ope.estimate(ope.Log(data, 1.0, **log), NINE_OF_TEN, settings, ("dr",))["dr"]


def test_values_of_a_trajectory_do_not_depend_on_it():
    data, key = contexts(0, 40), jax.random.PRNGKey(0)
    config = dataclasses.replace(QUICK, steps=30)
    before = cross_fitted(config, data, NINE_OF_TEN, 1.0, 2, key)
    changed = before.fold == 1
    other = data.replace(reward=data.reward + 100.0 * changed[:, None])
    after = cross_fitted(config, other, NINE_OF_TEN, 1.0, 2, key)
    assert np.array_equal(before.values.q[changed], after.values.q[changed])
    assert np.array_equal(before.values.v[changed], after.values.v[changed])
    assert (np.abs(before.values.q - after.values.q)[~changed] > 10).all()
    assert before.fold.sum() == 20


@pytest.mark.slow
def test_a_model_that_learns_by_heart_does_not_bias():
    """The mistake: residuals of the trajectories that were fitted, which are too small to correct the model."""
    held, missed, values = [], [], []
    for seed in range(60):
        log, settings = ope.Log(contexts(seed, 300), 1.0), ope.Settings(fqe=MEMORY, resamples=2)
        one = ope.estimate(log, NINE_OF_TEN, settings, ("dr",))["dr"]
        mistaken = doubly_robust(log.steps(NINE_OF_TEN), log.model(NINE_OF_TEN, settings).values)
        held.append(abs(one.value - 0.9) <= 2 * one.standard_error)
        missed.append(abs(mistaken.value - 0.9) <= 2 * mistaken.standard_error)
        values.append(one.value)
    assert np.mean(held) > 0.86  # 3 standard errors below 0.95
    assert np.mean(missed) < 0.8
    assert np.mean(values) == pytest.approx(0.9, abs=0.04)  # 3 standard errors


def test_the_exact_model_of_the_user_leaves_no_variance():
    """Values of the chain over 5 steps: Q_t(s, a) = 1[s = 1] + γ V_{t+1}(s′), as functions of the step."""
    v = np.zeros((6, 2))
    q = np.zeros((5, 2, 2))
    for t in reversed(range(5)):
        q[t] = np.array([[0.0, 0.0], [1.0, 1.0]]) + DISCOUNT * np.stack([v[t + 1], v[t + 1][::-1]], axis=1)
        v[t] = q[t] @ [0.7, 0.3]
    np.testing.assert_allclose(v[0], EXACT, atol=1e-8)
    own = ope.OwnModel(
        q=lambda seen, action, time: q[time, seen.argmax(axis=1), action],
        v=lambda seen, time: v[time, seen.argmax(axis=1)],
    )
    log = ope.Log(chain_log(200), DISCOUNT, np.stack([one_hot(0), one_hot(1)]), own_model=own)
    settings = ope.Settings(rule="per-start", range=(-50.0, 50.0), resamples=50)
    found = ope.estimate(log, switching(0.3), settings, ("dr", "wdr", "magic"))
    for one in found.values():
        np.testing.assert_allclose(one.state_values, EXACT, atol=1e-6)  # the policy is in float32
        assert one.bellman_error is None
    assert found["dr"].intervals["hoeffding"].low < EXACT.mean() < found["dr"].intervals["hoeffding"].high


def test_a_model_without_time_and_one_that_is_wrong():
    one = dr(
        contexts(0, 200),
        own_model=ope.OwnModel(q=lambda seen, action: 0.0 * action, v=lambda seen: np.zeros(len(seen))),
    )
    pdis = ope.estimate(ope.Log(contexts(0, 200), 1.0), NINE_OF_TEN, methods=("pdis",))["pdis"]
    assert one.value == pytest.approx(pdis.value, rel=1e-12)
    with pytest.raises(InputError, match=r"model\.v: has shape \(1,\) or is not finite; must be 400 finite numbers"):
        dr(contexts(0, 200), own_model=ope.OwnModel(q=lambda seen, action: 0.0 * action, v=lambda seen: np.zeros(1)))


def test_v_of_the_user_is_that_of_the_policy_or_computed():
    """The reward is the action and Q = a, so that V of another policy would add its error to every estimate."""
    data = contexts(0, 400)
    data = data.replace(reward=np.asarray(data.action, np.float64))

    def value(v, policy):
        log = ope.Log(data, 1.0, own_model=ope.OwnModel(lambda seen, action: action.astype(float), v))
        return ope.estimate_many(log, [policy], ope.Settings(resamples=20), ("dr",))[0]["dr"].value

    nine, half = (
        ope.TargetPolicy.from_probabilities(lambda seen, row=row: np.tile(row, (len(seen), 1)))
        for row in ([0.1, 0.9], [0.5, 0.5])
    )
    right = lambda seen: np.full(len(seen), 0.9)  # noqa: E731
    assert value(None, nine) == pytest.approx(0.9, abs=1e-6)
    assert value(right, nine) == pytest.approx(value(None, nine), abs=1e-6)
    for v, policy in ((lambda seen: np.full(len(seen), 0.5), nine), (right, half)):
        with pytest.raises(InputError, match=r"model\.v: differs .* by up to 0\.4, such as .*; leave v out"):
            value(v, policy)


def test_finite_sample_bounds_of_folds():
    """Each of two folds of 100 has an interval with half of the error; J is in both, and so in their mean."""
    settings = ope.Settings(fqe=dataclasses.replace(QUICK, steps=20), range=(-10.0, 10.0), resamples=10)
    one = dr(contexts(0, 200), settings)
    half = 20 * np.sqrt(np.log(2 / (0.05 / 2)) / (2 * 100))
    interval = one.intervals["hoeffding"]
    assert (interval.high - interval.low) / 2 == pytest.approx(half, rel=1e-9)
    assert interval.estimate == pytest.approx(one.value)
    clipped = dr(contexts(0, 200), dataclasses.replace(settings, clip=0.5))
    assert "hoeffding" not in clipped.intervals
    assert "log-ratios are clipped at 0.5, which biases the estimate" in clipped.warnings


@pytest.mark.parametrize("count", [1, 2])
def test_few_trajectories(count):
    data = chain_log(2).rows(np.arange(count))
    settings = ope.Settings(fqe=dataclasses.replace(QUICK, steps=20), resamples=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ope.CollapsedWeights)
        found = ope.estimate(ope.Log(data, DISCOUNT), switching(0.3), settings, ("dr", "wdr", "magic"))
    for method, one in found.items():
        assert np.isfinite(one.value)
        if count == 1 or method == "magic":
            assert one.standard_error is None
            assert not one.intervals
            assert any("no standard error and no interval" in warning for warning in one.warnings)


def test_magic_gives_no_interval(recwarn):
    settings = ope.Settings(fqe=QUICK, range=(-100.0, 100.0), resamples=10)
    one = ope.estimate(ope.Log(chain_log(100), DISCOUNT), switching(0.3), settings, ("magic",))["magic"]
    assert one.standard_error is None
    assert one.intervals == {}
    assert any("the error of the model and of the mixing weights is not known" in told for told in one.warnings)
