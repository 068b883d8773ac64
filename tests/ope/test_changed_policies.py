"""Policies whose parameters change between calls, as those of an agent that is trained further."""

import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.ope import policy_programs
from evarl.ope.fqe_table import target_actions
from evarl.ope.settings import FQEConfig

METHODS = ("pdis", "fqe-tabular", "fqe-linear", "mis-tabular", "dr")
SETTINGS = ope.Settings(fqe=FQEConfig(steps=200, hidden_sizes=(8,)), resamples=20)


class Agent:
    """Parameters that are replaced, or changed in place."""

    def __init__(self, array):
        self.chance = array([0.5, 0.5])

    def policy(self):
        return ope.TargetPolicy.from_probabilities(lambda seen: jnp.tile(jnp.asarray(self.chance), (len(seen), 1)))

    def host_policy(self):
        return ope.TargetPolicy.from_probabilities(lambda seen: np.tile(self.chance, (len(seen), 1)))


def coin_log(count=400):
    """Two steps; the reward is the action, so that J is twice the probability of action 1."""
    action = np.random.default_rng(0).integers(2, size=(count, 2))
    fields = {"observation": np.zeros((count, 2, 1)), "final_observation": np.zeros((count, 1))}
    fields |= {"action": action, "reward": action.astype(float), "log_prob": np.full((count, 2), np.log(0.5))}
    return ope.Log(ope.LoggedData.from_arrays(**fields), 1.0)


def close(found, expected):
    for name, one in found.items():
        assert one.value == pytest.approx(expected, abs=0.25), name


@pytest.mark.parametrize("same_log", [True, False])
def test_new_parameters_of_the_same_policy_are_seen(same_log):
    agent, log = Agent(jnp.asarray), coin_log()
    policy = agent.policy()
    close(ope.estimate(log, policy, SETTINGS, METHODS), 1.0)
    agent.chance = jnp.asarray([0.2, 0.8])
    close(ope.estimate(log if same_log else coin_log(), policy, SETTINGS, METHODS), 1.6)


def test_parameters_that_are_changed_in_place_are_seen():
    agent, log = Agent(np.asarray), coin_log()
    policy = agent.host_policy()
    close(ope.estimate(log, policy, SETTINGS, METHODS), 1.0)
    bound = ope.guaranteed_lower_bound(log, policy, ope.GuaranteeSettings(least_reward=0.0, truncate=10.0)).value
    agent.chance[:] = [0.8, 0.2]
    close(ope.estimate(log, policy, SETTINGS, METHODS), 0.4)
    less = ope.guaranteed_lower_bound(log, policy, ope.GuaranteeSettings(least_reward=0.0, truncate=10.0)).value
    assert less < 0.4 < bound


def test_a_change_at_states_that_the_last_log_did_not_have_is_seen():
    agent = Agent(lambda chance: jnp.asarray([chance, chance]))
    policy = ope.TargetPolicy.from_probabilities(lambda seen: agent.chance[seen[:, 0].astype(int)])
    data, config, key = coin_log(50).data, FQEConfig(), jnp.zeros(2, jnp.uint32)
    assert target_actions(config, data, policy, key, np.zeros((5, 1), np.float32))[0, 1] == 0.5
    agent.chance = agent.chance.at[1].set(jnp.asarray([0.1, 0.9]))
    assert target_actions(config, data, policy, key, np.ones((5, 1), np.float32))[0, 1] == np.float32(0.9)


def test_draws_of_continuous_actions_follow_the_parameters(key):
    agent = Agent(jnp.asarray)
    draw = lambda key, seen: jnp.full((len(seen), 1), agent.chance[0])  # noqa: E731
    policy = ope.TargetPolicy(lambda seen, action: jnp.zeros(len(seen)), None, draw, lambda seen: draw(None, seen))
    data = coin_log(50).data.replace(action=np.zeros((50, 2, 1), np.float32))
    for chance in (0.5, 0.25):
        agent.chance = jnp.asarray([chance, 1 - chance])
        assert (target_actions(FQEConfig(), data, policy, key) == chance).all()


def test_programs_of_unchanged_policies_are_used_again(monkeypatch):
    made = []
    monkeypatch.setattr(
        policy_programs, "_made", lambda *given, make=policy_programs._made: made.append(1) or make(*given)
    )
    policy, seen = Agent(jnp.asarray).policy(), np.zeros((10, 1), np.float32)
    for count in (10, 20, 5000):
        found = policy_programs.evaluated(policy.probabilities, np.repeat(seen, count, axis=0))
        assert found.shape == (10 * count, 2)
    assert len(made) == 1
