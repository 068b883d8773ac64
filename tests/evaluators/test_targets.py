"""Targets that the evaluator's own values complete, against recursions written out by hand, and their fixed point."""

import dataclasses
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.agents.trajectory import Trajectory
from evarl.assessment.behaviour import Behaviour
from evarl.errors import InputError
from evarl.evaluators.configuration import NETWORKS, EvaluatorConfig, NetworkConfig
from evarl.evaluators.evaluator import make_evaluator
from evarl.evaluators.memory import Following, Memory, PolicyRecord
from evarl.evaluators.targets import following, following_cuts, typical_returns
from evarl.worlds.spaces import Box

DISCOUNT = 0.9
STEPS = 5
VALUES = np.random.default_rng(1).normal(size=3 * (STEPS + 2))
"""Values of numbered states; observations are the numbers."""
LIMIT = 100


def numbered(terminated=(), truncated=()) -> Trajectory:
    """One environment whose t-th state is t; a time limit at step t is met in state LIMIT + t, and a new episode follows."""
    ends = np.zeros((2, STEPS, 1), bool)
    ends[0, list(terminated)] = True
    ends[1, list(truncated)] = True
    final = np.zeros((STEPS, 1, 1))
    final[: len(truncated), 0, 0] = [LIMIT + t for t in sorted(truncated)]
    zeros = np.zeros((STEPS, 1))
    return Trajectory(
        observation=np.arange(STEPS, dtype=float)[:, None, None],
        action=zeros,
        log_prob=zeros,
        reward=np.random.default_rng(0).normal(size=(STEPS, 1)),
        terminated=ends[0],
        truncated=ends[1],
        start_label=np.full((STEPS, 1), -1, np.int32),
        final_observation=final,
        last_observation=np.full((1, 1), float(STEPS)),
    )


def value(observation):
    """The value of a numbered state, looked up in a table: states at a time limit come after all others."""
    number = np.asarray(observation, int)
    return VALUES[np.where(number >= LIMIT, number - LIMIT + STEPS + 1, number)]


def lambda_return(trajectory: Trajectory, trace: float, beyond_limit: bool) -> np.ndarray:
    """G_t = r_t + γ ((1 − λ) V(s_{t+1}) + λ G_{t+1}), with the ends one by one."""
    returns, later = np.zeros(STEPS), float(value(STEPS))
    for t in reversed(range(STEPS)):
        onward = float(value(t + 1))
        if trajectory.terminated[t, 0]:
            after = 0.0
        elif trajectory.truncated[t, 0]:
            after = float(value(LIMIT + t)) if beyond_limit else 0.0
        else:
            after = (1.0 - trace) * onward + trace * later
        later = returns[t] = trajectory.reward[t, 0] + DISCOUNT * after
    return returns


ENDS = {
    "cut": {},
    "terminated": {"terminated": (1,)},
    "truncated": {"truncated": (2,)},
    "all": {"terminated": (3,), "truncated": (0, 1)},
    "both in one step": {"terminated": (2,), "truncated": (2,)},
}


@pytest.mark.parametrize("beyond_limit", [False, True], ids=["limit ends", "limit goes on"])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_the_expected_target_is_the_lambda_return(ends, beyond_limit):
    """The sum over all ways in which cuts can be drawn, in float64."""
    trajectory = numbered(**ends)
    patterns = np.array(list(itertools.product([False, True], repeat=STEPS)))
    with jax.enable_x64(True):
        exact = jax.tree.map(jnp.asarray, trajectory)
        cuts = jax.jit(jax.vmap(lambda cut: following_cuts(exact, cut[:, None], DISCOUNT, beyond_limit)))
        found = jax.device_get(cuts(patterns))
    assert found.reward.dtype == np.float64
    targets = (found.reward + found.discount * value(found.observation[..., 0]))[..., 0]
    for trace in (0.0, 0.3, 0.8, 1.0):
        chance = np.where(patterns, 1.0 - trace, trace).prod(axis=1)
        np.testing.assert_allclose(chance @ targets, lambda_return(trajectory, trace, beyond_limit), atol=1e-12)


def test_one_step_and_monte_carlo_are_not_drawn():
    """λ = 0 is one reward and the next value, λ = 1 the return up to where the batch ends; neither depends on the key."""
    trajectory = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if x.dtype == float else None), numbered())
    config = EvaluatorConfig(bootstrap="evaluator")
    whole = following(config, trajectory, DISCOUNT, None)
    one = following(dataclasses.replace(config, trace=0.0), trajectory, DISCOUNT, jax.random.PRNGKey(0))
    np.testing.assert_allclose(one.reward, trajectory.reward)
    np.testing.assert_allclose(one.discount, np.full((STEPS, 1), DISCOUNT), rtol=1e-6)
    np.testing.assert_array_equal(one.observation[:, 0, 0], np.arange(1, STEPS + 1))
    np.testing.assert_array_equal(whole.observation[:, 0, 0], np.full(STEPS, STEPS))
    np.testing.assert_allclose(whole.discount[:, 0], DISCOUNT ** np.arange(STEPS, 0, -1), rtol=1e-6)
    returns = [sum(DISCOUNT ** (i - t) * float(trajectory.reward[i, 0]) for i in range(t, STEPS)) for t in range(STEPS)]
    np.testing.assert_allclose(whole.reward[:, 0], returns, rtol=1e-5)


def test_typical_returns_have_the_mean_of_a_constant_reward():
    """Where every reward is 1 all returns are 1 / (1 − γ), however soon they are cut."""
    for n in (1, 5):
        part = jnp.full((4, 3), 1.0 - DISCOUNT**n)
        found = typical_returns(Following(part / (1.0 - DISCOUNT), 1.0 - part, jnp.zeros((4, 3, 2))))
        np.testing.assert_allclose(found, np.full((4, 3), 1.0 / (1.0 - DISCOUNT)), rtol=1e-5)


def test_typical_returns_have_the_variance_of_independent_rewards():
    """Var(Σ γ^i r_i) = Var(r) / (1 − γ²), from single rewards."""
    reward = jnp.asarray(np.random.default_rng(0).normal(2.0, 3.0, size=1000), jnp.float32)
    found = typical_returns(Following(reward, jnp.full(1000, DISCOUNT), jnp.zeros((1000, 2))))
    np.testing.assert_allclose(found.mean(), reward.mean() / (1.0 - DISCOUNT), rtol=1e-4)
    np.testing.assert_allclose(found.std(), reward.std() / np.sqrt(1.0 - DISCOUNT**2), rtol=1e-4)


# --- The fixed point


class TableOfValues(nn.Module):
    """One number for each state, given by a one-hot observation; the behaviour is not used."""

    config: object
    dtype: object = jnp.float32

    @nn.compact
    def __call__(self, scenarios, behaviour, queries):
        return queries @ self.param("values", nn.initializers.zeros, (queries.shape[1],), self.dtype)


REWARDS = np.array([1.0, -2.0, 5.0, 0.5])
RING = Box((4,), 0.0, 1.0, "bool")


def around(steps: int) -> Trajectory:
    """Four environments in a ring of four states, one from each state; every batch cuts the episode after `steps` steps."""
    state = (np.arange(steps + 1)[:, None] + np.arange(4)[None]) % 4
    seen, never, zeros = np.eye(4, dtype=bool)[state], np.zeros((steps, 4), bool), np.zeros((steps, 4), np.float32)
    reward, label = REWARDS[state[:-1]].astype(np.float32), np.full((steps, 4), -1, np.int32)
    trajectory = Trajectory(seen[:-1], zeros, zeros, reward, never, never, label, seen[:1], seen[-1])
    return jax.tree.map(jnp.asarray, trajectory)


def fitted(config: EvaluatorConfig, record: PolicyRecord, steps: int) -> np.ndarray:
    """Values of the four states after fitting."""
    evaluator = make_evaluator(config, RING, jnp.zeros((1, 4), bool), Behaviour(jnp.zeros(1)))
    memory = Memory(jax.tree.map(lambda x: x[None], record))
    state = evaluator.rescale(evaluator.init(jax.random.PRNGKey(0)), record, jnp.ones(()))
    state, _ = jax.jit(evaluator.fit)(state, memory, jnp.int32(1), jnp.int32(steps), jax.random.PRNGKey(1), True)
    return np.asarray(evaluator.predict(state, record.behaviour, jnp.eye(4, dtype=bool)), np.float64)


@pytest.mark.parametrize(("trace", "interval"), [(1.0, 1), (0.0, 1), (0.5, 20)])
def test_own_values_lead_to_the_exact_values_of_a_ring(trace, interval, monkeypatch):
    """Two steps of each episode are seen. The critic is wrong everywhere: the values that it leads to are wrong as well.

    No distance from the exact values can be larger than the greatest Bellman error over 1 − γ, which fitting makes small.
    """
    monkeypatch.setitem(NETWORKS._entries, "table", TableOfValues)
    batch, flat = around(2), lambda x: x.reshape(8, *x.shape[2:])
    exact = np.linalg.solve(np.eye(4) - DISCOUNT * np.roll(np.eye(4), 1, axis=1), REWARDS)
    config = EvaluatorConfig(
        NetworkConfig("table"),
        learning_rate=0.1,
        batch_size=64,
        final_steps=1,
        bootstrap="evaluator",
        trace=trace,
        target_interval=interval,
    )
    onward = jax.tree.map(flat, following(config, batch, DISCOUNT, jax.random.PRNGKey(0)))
    wrong = onward.reward + onward.discount * 30.0
    record = PolicyRecord(flat(batch.observation), wrong, Behaviour(jnp.zeros(1)), following=onward)
    own = fitted(config, record, 3000)
    residual = np.abs(REWARDS + DISCOUNT * np.roll(own, -1) - own).max()
    assert residual < 0.02
    assert np.abs(own - exact).max() <= residual / (1.0 - DISCOUNT) + 1e-5
    by_critic = dataclasses.replace(config, bootstrap="critic", trace=1.0, target_interval=1)
    led_astray = fitted(by_critic, record.replace(following=None), 1000)
    means = [np.asarray(wrong)[np.asarray(record.observation[:, state])].mean() for state in range(4)]
    np.testing.assert_allclose(led_astray, means, atol=0.2)
    assert np.abs(led_astray - exact).min() > 5.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"trace": 0.5}, "evaluator.trace: 0.5 needs evaluator.bootstrap evaluator; must be 1.0"),
        ({"truncation": "bootstrap"}, "evaluator.truncation: bootstrap needs evaluator.bootstrap evaluator"),
        ({"target_interval": 5}, "evaluator.target-interval: 5 needs evaluator.bootstrap evaluator; must be 1"),
        ({"trace": 1.5, "bootstrap": "evaluator"}, "evaluator.trace: 1.5 is not allowed"),
        ({"states": "start", "bootstrap": "evaluator"}, "does not go with evaluator.states start"),
    ],
)
def test_what_cannot_work_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        EvaluatorConfig(**settings).validate()
