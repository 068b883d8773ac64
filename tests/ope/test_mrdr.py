"""MRDR: DR is linear in the parameters, its loss is the variance, and the fit makes it small."""

import itertools

import numpy as np
import pytest

from evarl import ope
from evarl.ope.doubly_robust import doubly_robust
from evarl.ope.importance import Steps
from evarl.ope.linear import Features
from evarl.ope.mrdr import TimedQ, control_variates, fit_mrdr, least_variance
from evarl.ope.settings import FQEConfig
from tests.ope.test_exact import estimate, table_policy

SWITCH, BEHAVIOUR, LENGTH = 0.3, 0.5, 3
POLICY = table_policy(np.array([[1 - SWITCH, SWITCH]] * 2))
CONFIG = FQEConfig(time_feature=True)


def enumerated() -> tuple[ope.LoggedData, Steps, np.ndarray]:
    """All trajectories of the two-state chain from state 0, with their probabilities; rewards depend on the action too."""
    actions = np.array(list(itertools.product((0, 1), repeat=LENGTH)))
    state = np.concatenate([np.zeros((len(actions), 1), int), actions.cumsum(axis=1) % 2], axis=1)
    behaviour = np.where(actions == 1, BEHAVIOUR, 1 - BEHAVIOUR)
    reward = state[:, :-1] + 0.5 * actions * (np.arange(LENGTH) + 1)
    data = ope.LoggedData.from_arrays(
        observation=state[:, :-1],
        action=actions,
        reward=reward,
        log_prob=np.log(behaviour),
        truncated=np.eye(LENGTH, dtype=bool)[[-1] * len(actions)],
        final_observation=state[:, -1],
    )
    ratio = np.log(np.where(actions == 1, SWITCH, 1 - SWITCH)) - np.log(behaviour)
    return data, Steps(reward, ratio, np.ones_like(actions, bool), 0.9), behaviour.prod(axis=1)


def exact_value() -> float:
    data, steps, _ = enumerated()
    chance = np.exp(steps.log_ratio + np.asarray(data.log_prob)).prod(axis=1)
    return float(chance @ (steps.reward @ 0.9 ** np.arange(LENGTH)))


def test_the_loss_is_the_variance_of_dr_by_enumeration():
    data, steps, chance = enumerated()
    features = Features.of(CONFIG, data, POLICY)
    x = control_variates(features, data, steps)
    np.testing.assert_allclose(chance @ x, 0.0, atol=1e-7)  # probabilities of the policy have 32 bits
    rng = np.random.default_rng(0)
    nothing = TimedQ(features, np.zeros(LENGTH + 1), np.zeros((2, features.size)))
    plain = doubly_robust(steps, nothing.values_of(data)).contribution
    for _ in range(3):
        beta = rng.normal(size=(2, features.size))
        found = doubly_robust(steps, nothing._replace(beta=beta).values_of(data)).contribution
        np.testing.assert_allclose(found, plain - x @ beta.reshape(-1), rtol=1e-6)
        assert chance @ found == pytest.approx(exact_value(), rel=1e-6)
        variance = chance @ (found - chance @ found) ** 2
        loss = chance @ (plain - x @ beta.reshape(-1) - exact_value()) ** 2
        assert loss == pytest.approx(variance, rel=1e-6)


def test_least_variance_is_found_from_samples():
    data, steps, chance = enumerated()
    features = Features.of(CONFIG, data, POLICY)
    x = control_variates(features, data, steps)
    nothing = TimedQ(features, np.zeros(LENGTH + 1), np.zeros((2, features.size)))
    y = doubly_robust(steps, nothing.values_of(data)).contribution
    root = np.sqrt(chance)
    best = np.linalg.lstsq(root[:, None] * x, root * (y - chance @ y), rcond=None)[0]
    least, none = (chance @ (y - x @ b - chance @ y) ** 2 for b in (best, np.zeros_like(best)))
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(y), size=4000, p=chance)
    found = least_variance(x[drawn], y[drawn], rng)
    variance = chance @ (y - x @ found - chance @ y) ** 2
    assert least <= variance + 1e-12 < least + 0.02 * (none - least) + 1e-9


@pytest.mark.slow
def test_the_fit_varies_less_than_per_decision_importance_sampling():
    data, _, chance = enumerated()
    rng = np.random.default_rng(0)
    many = data.rows(rng.choice(len(chance), size=600, p=chance))
    found = estimate(
        many, POLICY, ("pdis", "dr", "mrdr"), 0.9, fqe=FQEConfig(hidden_sizes=(16,), steps=300, learning_rate=3e-3)
    )
    for one in found.values():
        assert abs(one.value - exact_value()) < 4 * one.standard_error
    assert found["mrdr"].standard_error < 0.5 * found["pdis"].standard_error


def test_few_trajectories_and_weights_that_overflow_have_the_linear_fit():
    data, steps, _ = enumerated()
    rng = np.random.default_rng(0)
    one = fit_mrdr(CONFIG, data, POLICY, steps, rng, 1e-4)
    huge = fit_mrdr(CONFIG, data, POLICY, steps._replace(log_ratio=steps.log_ratio + 1000), rng, 1e-4)
    np.testing.assert_allclose(one.beta, huge.beta)
