"""Monte-Carlo values against exact ones, and visited states against exact frequencies."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import stats

from evarl.errors import InputError
from evarl.simulation import StartStates, simulator_for
from evarl.simulation.compiled import _offer, _Reservoir
from evarl.truth.exact import policy_values
from evarl.truth.monte_carlo import mean_squared_error, true_values
from evarl.worlds.gymnasium import make as make_gymnasium
from evarl.worlds.gymnax import make as make_gymnax
from evarl.worlds.navigation import GOAL, Navigation
from evarl.worlds.spaces import Box
from evarl.worlds.tabular import Tabular, chain
from evarl.worlds.world import World, WorldState

SWITCH = np.array([[0.7, 0.3], [0.7, 0.3]])


def random_mdp(horizon=20):
    """Six states, the fifth of which is terminal, and a random policy."""
    rng = np.random.default_rng(0)
    start = np.array([0.4, 0.3, 0.2, 0.1, 0.0, 0.0])
    transitions, rewards = rng.dirichlet(np.ones(6), size=(6, 3)), rng.normal(size=(6, 3))
    world = Tabular(transitions, rewards, start, terminal=np.arange(6) == 4, horizon=horizon)
    return world, rng.dirichlet(np.ones(3), size=6)


def sampled(logits, key, observation):
    action = jax.random.categorical(key, observation @ logits)
    return action, jnp.zeros(observation.shape[0])


def follow(policy):
    """Acts with [S, A] probabilities."""
    return Partial(sampled, jnp.log(jnp.asarray(policy, jnp.float32)))


def always(action):
    return lambda key, observation: (jnp.full(observation.shape[0], action, jnp.int32), jnp.zeros(observation.shape[0]))


def standing(world, physics, elapsed):
    """States of the test's choice, clocks included."""
    states = WorldState(jax.tree.map(jnp.asarray, physics), jnp.asarray(elapsed, jnp.int32))
    return StartStates(states, jax.vmap(world.observation)(states.physics), states.elapsed, states.physics)


def seeds(*numbers):
    """Reset seeds of CartPole."""
    return StartStates(np.array(numbers), np.zeros((len(numbers), 4), np.float32), np.zeros(len(numbers), int), None)


@pytest.mark.parametrize("case", [lambda: (chain(horizon=20), SWITCH), random_mdp])
def test_agrees_with_dynamic_programming_at_every_clock(case, key):
    """All states, with the whole horizon ahead and with 13, 1 and no steps of it left; in several chunks."""
    world, policy = case()
    physics = np.flatnonzero(~world.terminal).astype(np.int32)
    left = np.array([20, 13, 1, 0]).repeat(len(physics))
    states = standing(world, np.tile(physics, 4), world.horizon - left)
    truth = true_values(world, follow(policy), states, key, rollouts=2000, at_once=4096)
    exact = np.concatenate([policy_values(world, policy, steps)[physics] for steps in (20, 13, 1, 0)])
    assert truth.rollouts == 2000
    assert (np.abs(truth.value - exact) <= 4 * truth.standard_error + 1e-6).all()
    assert (truth.standard_error[left == 20] > 0).all()
    assert not truth.value[left == 0].any()
    sums = Tabular(world.transitions, world.rewards, world.start, world.terminal, world.horizon, discount=1.0)
    undiscounted = np.concatenate([policy_values(sums, policy, steps)[physics] for steps in (20, 13, 1, 0)])
    np.testing.assert_allclose(truth.undiscounted, undiscounted, atol=4 * 5 / 2000**0.5)


def test_start_states_follow_their_distribution(key):
    world, policy = random_mdp()
    starts = simulator_for(world).start_states(key, 4000)
    np.testing.assert_array_equal(starts.observation, np.eye(6)[starts.state.physics])
    assert not starts.elapsed.any()
    assert (starts.drawn, starts.distinct, len(starts.queries)) == (4000, 4, 4000)
    assert stats.chisquare(np.bincount(starts.state.physics)[:4], 4000 * world.start[:4]).pvalue > 1e-3
    truth = true_values(world, follow(policy), starts, key, rollouts=2)
    error = truth.value.std() / 4000**0.5
    assert truth.value.mean() == pytest.approx(world.start @ policy_values(world, policy, 20), abs=4 * error)


def test_standard_errors_are_calibrated(key):
    """200 independent repetitions of one estimate."""
    world = chain(horizon=10)
    states = standing(world, np.zeros(200, np.int32), np.zeros(200))
    truth = true_values(world, follow(SWITCH), states, key, rollouts=64)
    z = (truth.value - policy_values(world, SWITCH, 10)[0]) / truth.standard_error
    assert 0.7 < z.var() < 1.4


@pytest.mark.parametrize("chunk", [1, 4, 7, 1000])
def test_chunks_put_every_return_where_it_belongs(chunk, key):
    """Always staying is deterministic: the value of the second state is (1 − γ^left) / (1 − γ), of the first one 0."""
    world = chain(horizon=8)
    states = standing(world, np.array([1, 0, 1, 1, 1], np.int32), [5, 0, 0, 7, 8])
    truth = true_values(world, always(0), states, key, rollouts=3, at_once=chunk)
    left = np.array([3, 0, 8, 1, 0])
    np.testing.assert_allclose(truth.value, (1 - 0.9**left) / (1 - 0.9), rtol=1e-5)
    np.testing.assert_allclose(truth.undiscounted, left, rtol=1e-5)
    np.testing.assert_allclose(truth.standard_error, 0, atol=1e-5)


def test_chunks_do_not_change_the_distribution(key):
    """Nor repeat it: chunks have different keys."""
    world, policy = random_mdp()
    states = standing(world, np.zeros(600, np.int32), np.zeros(600))
    whole, parts = (true_values(world, follow(policy), states, key, rollouts=4, at_once=chunk) for chunk in (2400, 500))
    assert stats.ks_2samp(whole.value, parts.value).pvalue > 1e-3
    assert len(np.unique(parts.value)) > 500


def test_one_program_for_all_chunks_and_all_policies_of_an_agent(key):
    world, traces = chain(horizon=5), []

    def act(logits, key, observation):
        traces.append(observation.shape)
        return sampled(logits, key, observation)

    states = simulator_for(world).start_states(key, 10)
    first = true_values(world, Partial(act, jnp.zeros((2, 2))), states, key, rollouts=5, at_once=20)
    assert set(traces) == {(17, 2)}  # 50 rollouts in 3 chunks
    count = len(traces)
    again = true_values(world, Partial(act, jnp.zeros((2, 2))), states, key, rollouts=5, at_once=20)
    np.testing.assert_array_equal(first.value, again.value)
    true_values(world, Partial(act, jnp.ones((2, 2))), states, key, rollouts=5, at_once=20)
    assert len(traces) == count


def test_navigation_by_hand(key):
    """Walking right: 0.25, 0.45, 0.65, 0.85, then the wall; from (0.65, 0.9) the goal is one step away and ends it."""
    world = Navigation(horizon=7)
    states = standing(world, np.array([[0.05, 0.05], [0.85, 0.05], [0.65, 0.9]], np.float32), [0, 4, 0])
    truth = true_values(world, always(0), states, key, rollouts=2)
    walk = -np.hypot(GOAL[0] - np.array([0.25, 0.45, 0.65, 0.85, 1.0, 1.0, 1.0]), GOAL[1] - 0.05)
    np.testing.assert_allclose(truth.value, [walk @ 0.99 ** np.arange(7), walk[4:] @ 0.99 ** np.arange(3), 0.95], 1e-5)
    np.testing.assert_allclose(truth.undiscounted, [walk.sum(), walk[4:].sum(), 0.95], 1e-5)


class Fading(World):
    """Pays the action it is given, and nothing but NaN once its episode has ended, after the number of steps it holds."""

    name, horizon, discount = "fading", 6, 0.5
    observation_space, action_space = Box((1,)), Box((1,), 0.0, 10.0)

    def initial(self, key):
        return jnp.ones(())

    def transition(self, key, physics, action):
        return physics - 1, jnp.where(physics > 0, action[0], jnp.nan), physics == 1

    def observation(self, physics):
        return physics[None]


def test_nothing_counts_after_the_end_and_actions_are_in_the_worlds_units(key):
    """An action of −0.8 is 1 between 0 and 10; whatever comes after the end, even NaN, is left out."""
    world = Fading()
    states = standing(world, np.array([1.0, 3.0, 9.0], np.float32), [0, 0, 1])
    act = Partial(lambda key, observation: (jnp.full_like(observation, -0.8), jnp.zeros(observation.shape[0])))
    discounted, undiscounted = simulator_for(world).episode_returns(act, states, key)
    np.testing.assert_allclose(undiscounted, [1, 3, 5], rtol=1e-5)
    np.testing.assert_allclose(discounted, [1, 1.75, 1.9375], rtol=1e-5)


def test_the_clock_is_the_only_limit_of_gymnax(key):
    """CartPole pays 1 for every step: the return-to-go is at most what the horizon leaves, and some reach it."""
    world = make_gymnax("gymnax/CartPole-v1", horizon=12, discount=1.0)
    physics = simulator_for(world).start_states(key, 20).state.physics
    states = standing(world, physics, np.arange(20) // 2)

    def act(key, observation):
        return jax.random.randint(key, (observation.shape[0],), 0, 2), jnp.zeros(observation.shape[0])

    truth = true_values(world, act, states, key, rollouts=30)
    assert (truth.value <= 12 - np.arange(20) // 2).all()
    np.testing.assert_allclose(truth.value[8:], 12 - np.arange(8, 20) // 2)  # no pole falls within eight steps


def frequencies(world, policy):
    """[T, S] expected share of each state and clock in the steps of an episode."""
    moves = np.einsum("sa,sat->st", policy, world.transitions) * ~world.terminal[None]
    rows = [world.start]
    for _ in range(world.horizon - 1):
        rows.append(rows[-1] @ moves)
    return np.array(rows) / np.sum(rows)


@pytest.mark.parametrize(
    "case", [pytest.param(lambda: (chain(horizon=5), SWITCH), marks=pytest.mark.slow), lambda: random_mdp(horizon=5)]
)
@pytest.mark.slow
def test_visited_states_have_their_exact_frequencies(case, key):
    world, policy = case()
    found = simulator_for(world).visited_states(follow(policy), key, 2000, environments=1000, episodes=40)
    states = found.state
    np.testing.assert_array_equal(found.observation, np.eye(len(world.start))[states.physics])
    visited = np.zeros((world.horizon, len(world.start)))
    np.add.at(visited, (states.elapsed, states.physics), 1)
    expected = 2000 * frequencies(world, policy)
    assert not visited[expected == 0].any()
    assert stats.chisquare(visited[expected > 0], expected[expected > 0]).pvalue > 1e-3


@pytest.mark.slow
def test_visited_states_are_drawn_without_replacement_where_possible(key):
    """4 environments and 5 steps: 20 steps in all, 4 at each clock; more than 20 are those and some of them again."""
    world = chain(horizon=5)
    visited = simulator_for(world).visited_states
    states = visited(always(1), key, 20, environments=4, episodes=1).state
    np.testing.assert_array_equal(np.bincount(states.elapsed), [4] * 5)
    np.testing.assert_array_equal(states.physics, states.elapsed % 2)
    assert (np.diff(states.elapsed) < 0).any()  # in random order
    states = visited(always(1), key, 50, environments=4, episodes=1).state
    assert (np.bincount(states.elapsed) >= 4).all()
    assert len(states.elapsed) == 50


def test_every_step_is_as_likely_to_be_kept_as_any_other(key):
    """Numbered steps of 3 environments, of which 2, 3, 1 and 2 are alive: pairs of the 8 are equally frequent."""
    alive = jnp.array([[1, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0]], bool)
    numbers = jnp.cumsum(alive.ravel(), dtype=jnp.int32).reshape(4, 3) - 1

    def kept(key):
        reservoir = _Reservoir(WorldState(jnp.full(2, -1, jnp.int32), jnp.zeros(2, jnp.int32)), jnp.int32(0))
        for row, step_key in enumerate(jax.random.split(key, 4)):
            states = WorldState(numbers[row], jnp.zeros(3, jnp.int32))
            reservoir = _offer(reservoir, step_key, states, alive[row])
        return reservoir.kept.physics, reservoir.seen

    pairs, seen = jax.jit(jax.vmap(kept))(jax.random.split(key, 5600))
    assert (seen == 8).all()
    low, high = np.sort(pairs, axis=1).T
    counts = np.bincount(8 * low + high, minlength=64).reshape(8, 8)
    assert not np.tril(counts).any()
    assert stats.chisquare(counts[np.triu_indices(8, k=1)]).pvalue > 1e-3


def test_corrected_error_is_unbiased(key):
    """A prediction that is off by 0.3 everywhere, measured with 4 noisy rollouts a state."""
    world = chain(horizon=10)
    states = standing(world, np.arange(4000, dtype=np.int32) % 2, np.zeros(4000))
    truth = true_values(world, follow(SWITCH), states, key, rollouts=4)
    prediction = policy_values(world, SWITCH, 10)[states.state.physics] + 0.3
    squares = (truth.value - prediction) ** 2
    error = (squares - truth.standard_error**2).std() / 4000**0.5
    assert mean_squared_error(truth, prediction) == pytest.approx(0.09, abs=4 * error)
    assert abs(squares.mean() - 0.09) > 10 * error
    assert mean_squared_error(truth, truth.value) < 0


def cartpole_return(seed, action, horizon, discount):
    environment, total, ended = gymnasium.make("CartPole-v1"), np.zeros(2), False
    environment.reset(seed=seed)
    for t in range(horizon):
        if not ended:
            _, reward, ended, _, _ = environment.step(action)
            total += [discount**t * reward, reward]
    return total


@pytest.mark.parametrize("environments", [1, 2, 16])
def test_cartpole_on_the_host(environments, key):
    """Seeds are rolled once each, in whatever company."""
    world, numbers = make_gymnasium("gymnasium/CartPole-v1", horizon=50, discount=0.9), [3, 1, 4, 15, 9, 2]
    simulator = simulator_for(world)
    returns, again = (
        np.array(simulator.returns(always(1), seeds(*numbers), key, 1, environments))[:, :, 0] for _ in range(2)
    )
    np.testing.assert_array_equal(returns, again)
    if environments == 16:
        np.testing.assert_array_equal(simulator.episode_returns(always(1), seeds(*numbers), key), returns)
    expected = np.stack([cartpole_return(seed, 1, 50, 0.9) for seed in numbers], axis=1)
    np.testing.assert_allclose(returns, expected, rtol=1e-12)
    assert len(set(returns[1])) > 1  # so that some wait while others go on


def test_values_on_the_host(key):
    """A deterministic policy has no standard error; a random one has, and depends on the key alone."""
    world = make_gymnasium("gymnasium/CartPole-v1", horizon=30, discount=0.9)
    truth = true_values(world, always(0), seeds(7, 8), key, rollouts=2)
    np.testing.assert_allclose(truth.value, [cartpole_return(seed, 0, 30, 0.9)[0] for seed in (7, 8)], rtol=1e-12)
    assert not truth.standard_error.any()

    def act(key, observation):
        return jax.random.randint(key, (observation.shape[0],), 0, 2), jnp.zeros(observation.shape[0])

    first, second = (true_values(world, act, seeds(7, 8), key, rollouts=5) for _ in range(2))
    np.testing.assert_array_equal(first.value, second.value)
    assert (first.standard_error > 0).all()


def test_one_rollout_is_refused(key):
    world = chain()
    with pytest.raises(InputError, match="at least 2"):
        true_values(world, always(0), simulator_for(world).start_states(key, 1), key, rollouts=1)
