"""The engine of host worlds, against plain loops around a small counting world."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from evarl.agents.perturbation import Acted
from evarl.errors import InputError
from evarl.simulation import AssessmentSize, Batch, Mapping, simulator_for
from evarl.simulation.host_acting import ActionError
from evarl.worlds import Box, Discrete, HostEnvironments, HostStep, HostWorld


@dataclass(frozen=True)
class Counter(HostWorld):
    """Shows its reset seed modulo 100 and the number of steps; pays the action; ends after 3 steps, or is truncated after 2
    if the seed is odd."""

    name: str = "counter"
    horizon: int = 3
    discount: float = 0.5
    observation_space: Box = Box((2,))
    action_space: Discrete = Discrete(3)

    def open(self, count):
        return Counters(count)


class Counters(HostEnvironments):
    def __init__(self, count):
        self.state = np.zeros((count, 2), np.float32)

    def reset(self, index, seed, options=None):
        self.state[index] = seed % 100, 0
        return self.state[index].copy()

    def step(self, action):
        self.state[:, 1] += 1
        odd = self.state[:, 0] % 2 == 1
        terminated, truncated = ~odd & (self.state[:, 1] >= 3), odd & (self.state[:, 1] >= 2)
        return HostStep(self.state.copy(), np.asarray(action, np.float32), terminated, truncated)

    def close(self):
        pass


def random_actions(count, key, observation):
    return jax.random.randint(key, observation.shape[:1], 0, count), jnp.zeros(observation.shape[0])


def test_batches_go_on_where_the_last_was_cut(key):
    simulator, batch, act = simulator_for(Counter()), Batch(4, 5, rollouts_per_start=2), Partial(random_actions, 3)
    states = simulator.begin(batch, key, seed=7, index=3)
    states, first = simulator.collect(batch, act, states, key, 3)
    _, second = simulator.collect(batch, act, states, jax.random.PRNGKey(1), 4)
    shown = np.concatenate([first.observation, second.observation])
    done = np.concatenate([first.done, second.done])
    label = np.concatenate([first.start_label, second.start_label])
    np.testing.assert_array_equal(shown[1:, :, 1], np.where(done[:-1], 0, shown[:-1, :, 1] + 1))
    np.testing.assert_array_equal(label[1:] >= 0, done[:-1])
    np.testing.assert_array_equal(shown[:, 0::2], shown[:, 1::2])  # neighbours share their start states
    assert (shown[0, 0] != shown[0, 2]).any()
    np.testing.assert_array_equal(first.reward, first.action)
    assert (first.action[:, 0] != first.action[:, 1]).any()
    seed = int(np.random.SeedSequence([7, 3, 1, 1]).generate_state(1)[0]) % 100
    assert seed in first.observation[:, 2, 0]
    for environment in range(4):
        ends = np.flatnonzero(first.truncated[:, environment])
        final = first.final_observation[: len(ends), environment]
        np.testing.assert_array_equal(final[:, 0], first.observation[ends, environment, 0])
        np.testing.assert_array_equal(final[:, 1], 2)


def test_returns_are_discounted_sums(key):
    simulator = simulator_for(Counter())
    starts = simulator.start_states(key, 5)
    assert starts.drawn == 5
    np.testing.assert_array_equal(starts.observation[:, 0], starts.state % 100)
    discounted, undiscounted = simulator.returns(lambda key, shown: random_actions(1, key, shown + 1), starts, key, 2)
    assert not discounted.any()

    def twos(key, observation):
        return jnp.full(observation.shape[0], 2), jnp.zeros(observation.shape[0])

    discounted, undiscounted = simulator.returns(twos, starts, key, 2, at_once=3)
    steps = np.where(starts.state % 2 == 1, 2, 3)[:, None].repeat(2, axis=1)
    np.testing.assert_allclose(undiscounted, 2 * steps)
    np.testing.assert_allclose(discounted, 4 * (1 - 0.5**steps))


def test_mappings_between_worlds(key):
    """The policy sees its own space and acts in it; the world is given the mapped action."""
    mapping = Mapping(lambda shown: shown[1:], lambda action: 2 - action, Discrete(2))

    def act(key, observation):
        assert observation.shape == (4, 1)
        return jnp.ones(4, jnp.int32), jnp.zeros(4)

    simulator = simulator_for(Counter())
    rollout = simulator.assess(act, np.array([2, 5]), AssessmentSize(3, 2), key, mapping)
    np.testing.assert_array_equal(rollout.observation[:, 0, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(rollout.reward[:, :, 0], [[1, 1], [1, 1], [1, 0]])
    np.testing.assert_array_equal(rollout.alive[:, 1, 1], [True, True, False])
    assert (rollout.action == 1).all()
    np.testing.assert_array_equal(simulator.observations(np.array([2, 5]), mapping), [[0], [0]])


def test_an_action_that_the_world_does_not_have_is_not_taken(key):
    act = Partial(lambda key, observation: (jnp.full(2, 3), jnp.zeros(2)))
    with pytest.raises(
        ActionError, match="the policy takes the action 3 in counter; must be a whole number from 0 to 2"
    ):
        simulator_for(Counter()).assess(act, np.array([2, 5]), AssessmentSize(3, 1), key)


class Tired(Counters):
    """Counters that must not be stepped when their episode has ended, with a context that multiplies rewards."""

    def __init__(self, count):
        super().__init__(count)
        self.ended, self.factor = np.ones(count, bool), np.ones(count, np.float32)

    def reset(self, index, seed, options=None):
        self.ended[index] = False
        return super().reset(index, seed, options)

    def place(self, index, context):
        (self.factor[index],) = context

    def step(self, action):
        assert not self.ended.any()
        step = super().step(action)
        self.ended = step.done
        return step._replace(reward=self.factor * step.reward)


class TiredCounter(Counter):
    def open(self, count):
        return Tired(count)


def counting(offset, key, observation, last, first):
    """The number of the step plus an offset that is each policy's own, modulo 3."""
    begun = jnp.broadcast_to(offset, observation.shape[:1])
    action = begun if last is None else jnp.where(first, begun, (last.taken + 1) % 3)
    return Acted(action, action)


def test_several_policies_play_whole_episodes_side_by_side(key):
    """Each remembers its own last action; an episode that has ended is not stepped, and nothing is paid after it."""
    simulator, keys = simulator_for(TiredCounter()), jax.random.split(key, 3)
    acts, factors = Partial(counting, jnp.arange(3)), jnp.array([[1.0], [2.0], [4.0]])
    for contexts in (None, factors):
        played = simulator.episodes_each(acts, 8, keys, contexts)
        assert played.observation.shape == (3, 3, 8, 1, 2)
        odd = np.asarray(played.observation[:, 0, :, 0, 0]) % 2 == 1
        assert 0 < odd.sum() < odd.size
        np.testing.assert_array_equal(played.alive[:, :2], True)
        np.testing.assert_array_equal(played.alive[:, 2, :, 0], ~odd)
        actions = (np.arange(3)[:, None] + np.arange(3)[None]) % 3  # [policies, steps]
        paid = actions[:, :, None] * (1 if contexts is None else np.asarray(factors)[:, :, None])
        paid = np.where(played.alive[..., 0], paid, 0)
        np.testing.assert_array_equal(played.reward[..., 0], paid)
        to_go = jax.vmap(lambda one: one.rewards_to_go(0.5))(played)[..., 0]
        np.testing.assert_allclose(to_go[:, 0], paid[:, 0] + 0.5 * paid[:, 1] + 0.25 * paid[:, 2])
        np.testing.assert_allclose(to_go[:, 2], paid[:, 2])
        assert not played.log_prob.any()
    again = simulator.episodes_each(acts, 8, keys, factors)
    jax.tree.map(np.testing.assert_array_equal, again, played)
    starts = np.asarray(played.observation[:, 0, :, 0, 0])
    assert (starts[0] != starts[1]).any(), "each policy has reset seeds of its own"


def test_several_policies_take_an_assessment_side_by_side(key):
    """As each of them would alone."""
    mapping, size = Mapping(lambda shown: shown[1:], lambda action: 2 - action, Discrete(3)), AssessmentSize(3, 2)
    simulator, starts = simulator_for(Counter()), np.array([2, 5, 8])
    same = lambda action, key, observation, *_: Acted(*2 * (jnp.broadcast_to(action, observation.shape[:1]),))  # noqa: E731
    found = simulator.assess_each(Partial(same, jnp.arange(2)), starts, size, jax.random.split(key), mapping)
    assert found.observation.shape == (2, 3, 3, 2, 1)
    for policy in range(2):
        act = lambda key, shown: (jnp.full(shown.shape[0], policy), jnp.zeros(shown.shape[0]))  # noqa: B023, E731
        alone = simulator.assess(act, starts, size, key, mapping)
        for name in ("reward", "alive"):
            np.testing.assert_array_equal(getattr(found, name)[policy], getattr(alone, name))
        under_way = np.asarray(alone.alive)
        np.testing.assert_array_equal(found.observation[policy][under_way], alone.observation[under_way])
        np.testing.assert_array_equal(found.action[policy][under_way], policy)


def test_visited_states_are_refused(key):
    with pytest.raises(InputError, match="counter: is not a world in JAX, so episodes cannot begin at visited states"):
        simulator_for(Counter()).visited_states(Partial(random_actions, 3), key, 2)


def test_what_is_no_world_is_refused():
    with pytest.raises(TypeError, match="str: is not a world"):
        simulator_for("navigation")
