"""Collecting experience: what is kept, where episodes end, and that a resume of collecting is seamless."""

import jax
import jax.numpy as jnp
import numpy as np

from evarl.simulation import Batch, simulator_for
from evarl.simulation.episodes import EpisodeClock, episode_statistics, final_slots
from evarl.worlds.navigation import START, Navigation
from evarl.worlds.tabular import Tabular

RIGHT = 0


def collected(world, act, key, environments, steps):
    """A batch from fresh environments."""
    simulator, batch = simulator_for(world), Batch(environments, steps)
    return jax.jit(lambda key: simulator.collect(batch, act, simulator.begin(batch, key), key)[1])(key)


def always_right(key, observation):
    count = observation.shape[0]
    return jnp.full(count, RIGHT, jnp.int32), jnp.zeros(count)


def test_walking_right_by_hand(key):
    """From (0.05, 0.05): 0.25, 0.45, 0.65, 0.85, then the wall; below both obstacles, so nothing bounces."""
    world = Navigation(horizon=7)
    trajectory = collected(world, always_right, key, 2, 16)
    expected = np.array([0.05, 0.25, 0.45, 0.65, 0.85, 1.0, 1.0])
    for first in (0, 7):
        np.testing.assert_allclose(trajectory.observation[first : first + 7, 1, 0], expected, atol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(trajectory.truncated[:, 0]), [6, 13])
    assert not trajectory.terminated.any()
    distance = np.hypot(0.9 - 0.25, 0.9 - 0.05)
    np.testing.assert_allclose(trajectory.reward[0], -distance, rtol=1e-5)
    # two of the three slots are used, and they hold where the time ran out, not the start that follows
    assert trajectory.final_observation.shape == (3, 2, 2)
    np.testing.assert_allclose(trajectory.final_observation[:2, 0], [[1.0, 0.05]] * 2, atol=1e-6)
    np.testing.assert_allclose(trajectory.last_observation[0], [0.45, 0.05], atol=1e-6)


def test_after_an_end_comes_a_fresh_start(key):
    world = Navigation(horizon=3)
    trajectory = collected(world, always_right, key, 1, 9)
    np.testing.assert_allclose(trajectory.observation[::3, 0], [START] * 3, rtol=1e-6)


def test_two_batches_are_one_long_walk(key):
    """Environments go on where the batch was cut."""
    world = Navigation(horizon=7)
    simulator, batch = simulator_for(world), Batch(1, 5)
    collect = jax.jit(lambda states: simulator.collect(batch, always_right, states, key))
    states, first = collect(simulator.begin(batch, key))
    _, second = collect(states)
    whole = collected(world, always_right, key, 1, 10)
    joined = jnp.concatenate([first.observation, second.observation])
    np.testing.assert_array_equal(joined, whole.observation)


def test_terminated_steps_do_not_use_slots(key):
    """An MDP that always ends at once terminates every step and truncates none."""
    world = Tabular(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones(1), terminal=np.ones(1), horizon=1)
    trajectory = collected(world, lambda k, o: (jnp.zeros(3, jnp.int32), jnp.zeros(3)), key, 3, 4)
    assert trajectory.terminated.all()
    assert not trajectory.truncated.any()
    assert not trajectory.final_observation.any()


def test_slots_suffice():
    assert [final_slots(10, h) for h in (1, 3, 9, 10, 11)] == [10, 4, 2, 1, 1]


def test_transition_frequencies_of_a_random_mdp(key):
    """Counts of (s, a) → s' agree with the arrays (each within 4.5 standard errors)."""
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(3), size=(3, 2))
    world = Tabular(transitions, np.zeros((3, 2)), np.array([0.2, 0.3, 0.5]), horizon=10_000)

    def uniform(key, observation):
        return jax.random.randint(key, (observation.shape[0],), 0, 2), jnp.zeros(observation.shape[0])

    trajectory = collected(world, uniform, key, 500, 60)
    states, actions = np.asarray(trajectory.observation).argmax(axis=-1), np.asarray(trajectory.action)
    np.testing.assert_allclose(np.bincount(states[0], minlength=3) / 500, [0.2, 0.3, 0.5], atol=4.5 * 0.5 / 500**0.5)
    for s in range(3):
        for a in range(2):
            chosen = (states[:-1] == s) & (actions[:-1] == a)
            frequency = np.bincount(states[1:][chosen], minlength=3) / chosen.sum()
            np.testing.assert_allclose(frequency, transitions[s, a], atol=4.5 * 0.5 / chosen.sum() ** 0.5)


def test_episode_statistics_across_batches():
    """Two environments, γ = 0.5: episodes of rewards (1, 2, 4) and (8,), the first one split between two batches."""
    clock = EpisodeClock.create(2)
    done = jnp.array([[False, True], [False, False]])
    clock, first = episode_statistics(clock, jnp.array([[1.0, 8.0], [2.0, 1.0]]), done, 0.5)
    assert int(first["episodes"]) == 1
    assert float(first["return"]) == 8.0
    clock, second = episode_statistics(clock, jnp.array([[4.0, 1.0]]), jnp.array([[True, False]]), 0.5)
    assert float(second["return"]) == 7.0
    assert float(second["discounted_return"]) == 1.0 + 1.0 + 1.0
    assert float(second["episode_length"]) == 3.0
    _, third = episode_statistics(clock, jnp.ones((1, 2)), jnp.zeros((1, 2), bool), 0.5)
    assert np.isnan(third["return"])


def test_in_a_family_of_worlds_first_episodes_count():
    """Of the second episode of an environment nothing is known unless it is short; contexts were just drawn."""
    reward = jnp.asarray([[1.0, 2.0], [1.0, 2.0], [5.0, 2.0], [7.0, 2.0]])
    done = jnp.asarray([[False, False], [True, False], [True, False], [False, True]])
    clock, found = episode_statistics(EpisodeClock.create(2, contexts=True), reward, done, 1.0)
    assert (int(found["episodes"]), float(found["return"])) == (2, 5.0)
    assert clock.finished.tolist() == [2, 1]
    clock, found = episode_statistics(clock, reward, done, 1.0)
    assert int(found["episodes"]) == 0
