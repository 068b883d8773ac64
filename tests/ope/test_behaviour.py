"""Estimated behaviour policies."""

import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.behaviour import estimated_log_prob
from tests.ope.test_estimate import DISCOUNT, EXACT, chain_log, switching


def test_discrete_actions():
    """Action probabilities that are logistic in the observation are found, in trajectories that were not fitted."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(400, 5, 3))
    logit = seen @ [1.0, -0.5, 0.0] + 0.3
    action = (rng.random((400, 5)) < 1 / (1 + np.exp(-logit))).astype(int)
    fields = {"observation": seen, "action": action, "reward": np.ones((400, 5)), "final_observation": seen[:, 0]}
    found = estimated_log_prob(ope.LoggedData.from_arrays(**fields), 2, np.random.default_rng(1))
    exact = -np.log1p(np.exp(np.where(action == 1, -logit, logit)))
    assert np.abs(found - exact).mean() < 0.1
    uniform = np.abs(np.log(action.mean() * action + (1 - action.mean()) * (1 - action)) - exact).mean()
    assert uniform > 0.25  # what a policy without observations would have


def test_continuous_actions():
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(500, 2, 1))
    mean = np.concatenate([seen, 1 - seen], axis=2)
    action = mean + rng.normal(size=mean.shape) * [0.5, 2.0]
    fields = {"observation": seen, "action": action, "reward": np.ones((500, 2)), "final_observation": seen[:, 0]}
    found = estimated_log_prob(ope.LoggedData.from_arrays(**fields), 2, np.random.default_rng(1))
    z = (action - mean) / [0.5, 2.0]
    exact = (-(z**2) / 2 - np.log([0.5, 2.0]) - np.log(2 * np.pi) / 2).sum(axis=2)
    assert np.abs(found - exact).mean() < 0.1


def test_a_log_without_probabilities():
    data = chain_log(2000, switch=0.4).replace(log_prob=None)
    log = ope.Log(data, DISCOUNT)
    with pytest.raises(InputError, match="log_prob: is missing in the log; pdis requires it, or behaviour=estimate"):
        ope.estimate(log, switching(0.3), methods=("pdis",))
    settings = ope.Settings(behaviour="estimate", range=(-100.0, 100.0))
    for one in ope.estimate(log, switching(0.3), settings, ("pdis", "wis")).values():
        assert one.value == pytest.approx(EXACT.mean(), abs=0.1)
        assert "estimated behaviour policy" in one.estimand
        assert any("the behaviour policy is estimated" in warning for warning in one.warnings)
        assert "hoeffding" not in one.intervals
