"""Target policies from functions and from policies of other packages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from evarl import ope
from evarl.errors import InputError
from evarl.ope.outside import in_world_units, of_outside
from evarl.ope.policy import TargetPolicy
from evarl.policies import OutsidePolicy, from_numpy
from evarl.worlds.spaces import Box, Discrete
from tests.ope.test_estimate import DISCOUNT, QUICK, chain_log

METHODS = ("pdis", "wis", "fqe-tabular", "fqe")


def probabilities(seen):
    return np.where(np.asarray(seen)[:, :1] > 0, [0.75, 0.25], [0.5, 0.5])


def estimates(policy):
    found = ope.estimate(ope.Log(chain_log(100), DISCOUNT), policy, ope.Settings(fqe=QUICK, resamples=20), METHODS)
    return [one.value for one in found.values()]


@pytest.mark.slow
def test_functions_and_outside_policies_are_the_same_target():
    data = chain_log(100)
    expected = estimates(TargetPolicy.from_probabilities(probabilities))
    logarithms = lambda seen, action: np.log(probabilities(seen)[np.arange(len(seen)), action])  # noqa: E731
    assert estimates(ope.target_policy(probabilities, data)) == expected
    assert estimates(ope.target_policy(logarithms, data)) == pytest.approx(expected, rel=1e-6)
    assert estimates(ope.target_policy(from_numpy(probabilities), data)) == expected
    logits = from_numpy(lambda seen: np.log(probabilities(seen)) + 3.0, "logits")
    assert estimates(ope.target_policy(logits, data)) == pytest.approx(expected, rel=1e-6)
    assert ope.target_policy(NUMPY := ope.uniform_policy(data), data) is NUMPY


def test_the_uniform_policy_has_as_many_actions_as_the_log_shows():
    data = chain_log(20)
    assert ope.uniform_policy(data).probabilities(np.zeros((1, 2))).tolist() == [[0.5, 0.5]]
    assert ope.uniform_policy(data, 4).probabilities(np.zeros((1, 2))).tolist() == [[0.25] * 4]
    with pytest.raises(InputError, match="actions: 1 is not allowed; must be at least 2, since the log has action 1"):
        ope.uniform_policy(data, 1)


def continuous_log(count=60):
    rng = np.random.default_rng(0)
    return ope.LoggedData.from_arrays(
        observation=rng.normal(size=(count, 3, 2)),
        action=rng.uniform(-2, 2, size=(count, 3, 1)),
        reward=rng.normal(size=(count, 3)),
        log_prob=np.full((count, 3), np.log(0.25)),
        final_observation=np.zeros((count, 2)),
    )


SPACE = Box((1,), -2.0, 2.0)


def gaussian(seen):
    return seen[:, :1] * 0.5, np.full((len(seen), 1), -1.0)


def test_densities_of_continuous_actions():
    data = continuous_log()
    seen, action = data.observation[:, 0], data.action[:, 0]
    policy = of_outside(OutsidePolicy(gaussian, "gaussian", "g", action_space=SPACE), data)
    expected = norm.logpdf(action[:, 0], seen[:, 0] * 0.5, np.exp(-1.0))
    np.testing.assert_allclose(policy.log_prob(seen, action), expected, rtol=1e-5)
    drawn = np.asarray(policy.sample(jax.random.PRNGKey(0), np.ones((4000, 2))))
    assert drawn.mean() == pytest.approx(0.5, abs=0.03)
    assert np.abs(drawn).max() <= 2.0


def test_a_squashed_density_integrates_to_one():
    policy = of_outside(OutsidePolicy(gaussian, "squashed", "s", action_space=SPACE), continuous_log())
    places = np.linspace(-2, 2, 20_001)[1:-1]
    seen = np.full((len(places), 2), 0.4)
    density = np.exp(policy.log_prob(seen, places[:, None]))
    assert np.trapezoid(density, places) == pytest.approx(1.0, abs=1e-3)
    drawn = np.asarray(policy.sample(jax.random.PRNGKey(0), np.full((20_000, 2), 0.4)))
    assert (drawn < 0.5).mean() == pytest.approx(np.trapezoid(density[places < 0.5], places[places < 0.5]), abs=0.02)


def test_a_run_in_the_units_of_the_world():
    own = TargetPolicy(
        lambda seen, action: jnp.asarray(norm.logpdf(np.asarray(action)[:, 0], 0.25, 0.5)),
        None,
        lambda key, seen: jnp.full((len(seen), 1), 3.0),
        lambda seen: jnp.full((len(seen), 1), 0.25),
    )
    scaled = in_world_units(own, Box((1,), 0.0, 4.0))
    seen = np.zeros((3, 2))
    action = np.array([[1.0], [2.5], [3.0]])
    np.testing.assert_allclose(scaled.log_prob(seen, action), norm.logpdf(action[:, 0], 2.5, 1.0), rtol=1e-5)
    assert np.asarray(scaled.mode(seen)).ravel().tolist() == [2.5] * 3
    assert np.asarray(scaled.sample(None, seen)).ravel().tolist() == [4.0] * 3  # clipped at the bound
    assert in_world_units(own, Discrete(2)) is own


@pytest.mark.slow
def test_deterministic_continuous_policies_have_fitted_q_evaluation_alone():
    data = continuous_log()
    policy = ope.target_policy(from_numpy(lambda seen: seen[:, :1] * 0.5, "actions"), data)
    same = TargetPolicy(lambda *_: None, None, lambda key, seen: seen[:, :1] * 0.5, lambda seen: seen[:, :1] * 0.5)
    found = [
        ope.estimate(ope.Log(data, 0.9), one, ope.Settings(fqe=QUICK), ("fqe",))["fqe"].value for one in (policy, same)
    ]
    assert found[0] == found[1]
    with pytest.raises(InputError, match=r"policy: is deterministic and its actions are continuous, .*use fqe"):
        ope.estimate(ope.Log(data, 0.9), policy, methods=("pdis",))


def test_log_probabilities_of_continuous_actions_have_importance_sampling_alone():
    data = continuous_log()
    policy = ope.target_policy(lambda seen, action: np.full(len(seen), np.log(0.25)), data)
    returns = np.asarray(data.reward) @ 0.9 ** np.arange(3)
    found = ope.estimate(ope.Log(data, 0.9), policy, methods=("tis",))["tis"].value
    assert found == pytest.approx(returns.mean(), rel=1e-9)
    with pytest.raises(InputError, match="log-probabilities alone were given"):
        ope.estimate(ope.Log(data, 0.9), policy, methods=("fqe",))
    with pytest.raises(InputError, match="must be one of observations and actions here"):
        ope.target_policy(probabilities, data)
