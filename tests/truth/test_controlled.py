"""Controlled rollouts against exact values and exact variances of small worlds."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from evarl.agents.distributions import Categorical, DiagonalGaussian
from evarl.errors import InputError
from evarl.simulation import simulator_for
from evarl.truth.controlled import ControlSettings, _estimated, _walked, controlled_rollouts
from evarl.truth.exact import policy_values
from evarl.worlds.spaces import Box
from evarl.worlds.tabular import Tabular
from evarl.worlds.world import World


def categorical(logits, observation):
    return Categorical(observation @ logits)


def follow(policy):
    """[S, A] probabilities."""
    return Partial(categorical, jnp.log(jnp.asarray(policy, jnp.float32)))


def looked_up(table, observation):
    return observation @ table


def says(values):
    return Partial(looked_up, jnp.asarray(values, jnp.float32))


WRONG = np.array([3.0, -2.0, 5.0, 1.0, 30.0])
"""V̂ that is right nowhere, least of all behind the end, in state 4."""
SETTINGS = {"settings": ControlSettings(resamples=2, fresh=4), "at_once": 10_000}
"""Of the random MDP, so that one compiled program serves all its tests."""


@cache
def random_mdp():
    """Random transitions everywhere, several start states, an end that every step may come to, and a policy."""
    rng = np.random.default_rng(3)
    transitions, rewards = rng.dirichlet(np.ones(5), size=(5, 3)), rng.normal(size=(5, 3))
    start = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    world = Tabular(transitions, rewards, start, terminal=np.arange(5) == 4, horizon=4)
    return world, rng.dirichlet(np.ones(3), size=5)


def value(world, policy):
    return world.start @ policy_values(world, policy, world.horizon)


@pytest.mark.slow
def test_unbiased_for_a_wrong_value(key):
    world, policy = random_mdp()
    found = controlled_rollouts(world, follow(policy), says(WRONG), key, 40_000, **SETTINGS)
    told = found.summary
    assert told.controlled == pytest.approx(value(world, policy), abs=4 * told.controlled_error)
    assert told.plain == pytest.approx(value(world, policy), abs=4 * told.plain_error)
    assert told.variance_ratio == pytest.approx(found.returns.var() / found.estimates.var())
    assert told.plain_error == pytest.approx(found.returns.std(ddof=1) / 200)
    assert (told.rollouts, told.extra_steps) == (40_000, 6)


def test_an_end_forgotten_on_one_side_would_be_seen(key):
    """The test above could not pass if V̂ counted behind ends, but not behind those that are resampled."""
    world, policy = random_mdp()
    start, rows = jax.device_get(
        _walked(simulator_for(world), follow(policy), says(WRONG), key, 10_000, SETTINGS["settings"])
    )
    in_time = np.arange(world.horizon)[:, None] < world.horizon - 1
    ended = rows.mask & (rows.v_next == 0) & in_time
    forgotten = rows._replace(v_next=np.where(ended, WRONG[4], rows.v_next))
    for wrong, table in ((False, rows), (True, forgotten)):
        _, estimates = _estimated(world, start, table)
        off = abs(estimates.mean() - value(world, policy)) / (estimates.std() / 100)
        assert off > 30 if wrong else off < 4


def test_the_same_rollouts_whatever_the_value_and_none_twice(key):
    world, policy = random_mdp()
    one, other = (
        controlled_rollouts(world, follow(policy), says(V), key, 19_999, **SETTINGS) for V in (WRONG, 0 * WRONG)
    )
    np.testing.assert_array_equal(one.returns, other.returns)
    assert one.returns.shape == one.estimates.shape == (19_999,)
    assert (one.estimates[:9_999] != one.estimates[10_000:]).mean() > 0.99


END, LATE = 6, 7
ONWARD = np.array([[2, 3], [3, 2], [4, END], [5, 4], [END, LATE], [LATE, END], [END, END], [LATE, LATE]])


@cache
def layers(random):
    """States 0 and 1 at first, then 2 and 3, then 4 and 5, and time is up: where one is says what time it is.

    Every step may end the episode. With random transitions several states can follow, and there are two start states.
    """
    rng = np.random.default_rng(5)
    transitions = np.eye(8)[ONWARD]
    if random:
        for states, onward in (((0, 1), [2, 3, END]), ((2, 3), [4, 5, END]), ((4, 5), [END, LATE])):
            transitions[np.ix_(states, [0, 1], onward)] = rng.dirichlet(np.ones(len(onward)), size=(2, 2))
    start = np.array([0.3, 0.7, 0, 0, 0, 0, 0, 0]) if random else np.eye(8)[0]
    world = Tabular(transitions, rng.normal(size=(8, 2)), start, terminal=np.arange(8) == END, horizon=3)
    return world, rng.dirichlet(np.ones(2) * 4, size=8)


def true_value(world, policy):
    """V of each state at its time; behind the end and behind the time limit it is anything."""
    V = np.array([policy_values(world, policy, steps) for steps in (3, 2, 1)])
    return np.concatenate([V[0, :2], V[1, 2:4], V[2, 4:6], [50.0, -50.0]])


def test_unbiased_over_all_trajectories(key):
    """Without random transitions G_cv is a function of the trajectory; weighted by their probabilities, all have mean J."""
    world, policy = layers(random=False)
    wrong = says([9, 1, -4, 2, 7, -3, 50, 60])
    walked = _walked(simulator_for(world), follow(policy), wrong, key, 2000, ControlSettings())
    start, rows = jax.device_get(walked)
    _, estimates = _estimated(world, start, rows)
    earned = np.where(rows.mask, rows.reward, 99).T
    paths, first = np.unique(earned, axis=0, return_index=True)
    chances = []
    for path in paths:
        s, chance = 0, 1.0
        for reward in path[path < 99]:
            a = np.argmin(abs(world.rewards[s] - reward))
            s, chance = ONWARD[s, a], chance * policy[s, a]
        chances.append(chance)
    assert sum(chances) == pytest.approx(1, abs=1e-12)
    assert np.std(estimates) > 1
    assert np.dot(chances, estimates[first]) == pytest.approx(value(world, policy), abs=1e-5)


def test_the_true_value_leaves_no_noise_without_dice(key):
    world, policy = layers(random=False)
    found = controlled_rollouts(world, follow(policy), says(true_value(world, policy)), key, 2000, at_once=2000)
    np.testing.assert_allclose(found.estimates, value(world, policy), atol=1e-5)
    assert found.returns.std() > 0.3


@pytest.mark.slow
def test_the_true_value_leaves_the_noise_of_resampling(key):
    """Var_μ V / fresh + Σ_t γ^{2t} E Σ_a π² σ² / M."""
    world, policy = layers(random=True)
    V = true_value(world, policy)
    behind = np.append(V[:6], [0, 0])
    noise = world.discount**2 * (world.transitions @ behind**2 - (world.transitions @ behind) ** 2)
    visited, wanted = world.start, (world.start @ V**2 - (world.start @ V) ** 2) / 8
    for t in range(3):
        wanted += world.discount ** (2 * t) * visited[:6] @ np.sum(policy**2 * noise, axis=1)[:6] / 3
        visited = visited @ np.einsum("sa,sat->st", policy, world.transitions)
    found = controlled_rollouts(world, follow(policy), says(V), key, 40_000, ControlSettings(3, fresh=8), 20_000)
    assert found.estimates.var() == pytest.approx(wanted, rel=0.04)
    assert found.summary.controlled == pytest.approx(value(world, policy), abs=4 * found.summary.controlled_error)


class Paying(World):
    """Pays its action, between 0 and 10, and noise of N(0, 1), three times."""

    name, horizon, discount = "paying", 3, 0.5
    observation_space, action_space = Box((1,)), Box((1,), 0.0, 10.0)

    def initial(self, key):
        return jnp.zeros(())

    def transition(self, key, physics, action):
        return physics + 1, action[0] + jax.random.normal(key), jnp.zeros((), bool)

    def observation(self, physics):
        return physics[None]


def test_continuous_actions_and_dice_in_rewards(key):
    """Actions are 5 + N(0, 1/4): (1/4 + 1/M) / K is left of 1/4 + 1, with any V̂ that knows what is not random."""

    def gaussian(observation):
        return DiagonalGaussian(jnp.zeros_like(observation), jnp.full_like(observation, np.log(0.1)))

    def three_times(observation):
        return 5 * (2 - 0.5 ** (2 - observation[:, 0]))

    found = controlled_rollouts(Paying(), gaussian, three_times, key, 40_000, ControlSettings(2, 4), 20_000)
    assert found.summary.controlled == pytest.approx(5 * 1.75, abs=4 * found.summary.controlled_error)
    assert found.returns.var() == pytest.approx((1 + 1 / 4 + 1 / 16) * 1.25, rel=0.05)
    assert found.summary.variance_ratio == pytest.approx(1.25 / (0.75 / 4), rel=0.05)
    assert found.summary.extra_steps == 2 * 5


def test_refusals(key):
    world, policy = random_mdp()
    with pytest.raises(InputError, match="rollouts: 1 is not allowed"):
        controlled_rollouts(world, follow(policy), says(WRONG), key, 1)
    with pytest.raises(InputError, match="resamples: 0 is not allowed"):
        controlled_rollouts(world, follow(policy), says(WRONG), key, 10, ControlSettings(resamples=0))
