"""What every world promises, checked on every world: a batch is rolled out past its horizon once and then examined."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.worlds import Box, Discrete, HostStep, HostWorld, Space, Step, World, WorldState, make_world

pytestmark = pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data`:DeprecationWarning")  # Brax does

JAX_WORLDS = [
    "navigation",
    "navigation/open-field",
    "crossing",
    "tabular/chain",
    pytest.param("gymnax/Asterix-MinAtar", marks=pytest.mark.slow),
    "gymnax/Breakout-MinAtar",
    pytest.param("gymnax/Freeway-MinAtar", marks=pytest.mark.slow),
    pytest.param("gymnax/SpaceInvaders-MinAtar", marks=pytest.mark.slow),
    "gymnax/CartPole-v1",
    "gymnax/Pendulum-v1",
    pytest.param("brax/reacher", marks=pytest.mark.slow),  # tests/worlds/test_brax.py has another one
    pytest.param("brax/halfcheetah", marks=pytest.mark.slow),
    pytest.param("brax/ant", marks=pytest.mark.slow),
]
HOST_WORLDS = [
    "gymnasium/CartPole-v1",
    "gymnasium/Pendulum-v1",
    "gymnasium/FrozenLake-v1",
    "gymnasium/Taxi-v4",
]
COMPILE_FAST = {"xla_backend_optimization_level": 0}
LANES = 4
HORIZON = 5
STEPS = 8
"""Three more than the horizon, to see what a world does when nobody resets it."""


@dataclass(frozen=True)
class Rollout:
    """One world, its compiled programs, and what they returned."""

    world: World
    reset: Callable[..., Any]
    step: Callable[..., Step]
    first: tuple[WorldState, jax.Array]
    steps: list[Step]

    @property
    def alive(self) -> np.ndarray:
        """[step, lane] whether the task had not ended before this step."""
        ended = np.stack([step.terminated for step in self.steps])
        return np.cumsum(ended, axis=0) - ended == 0


def actions(space: Space, count: int, step: int) -> np.ndarray:
    """Random actions, a function of the number of the step."""
    generator = np.random.default_rng(step)
    if isinstance(space, Discrete):
        return generator.integers(space.n, size=count, dtype=np.int32)
    return generator.uniform(*space.bounds(), size=(count, *space.shape)).astype(np.float32)


def keys(number: int) -> jax.Array:
    """One key per lane, a function of the number."""
    return jax.random.split(jax.random.PRNGKey(number), LANES)


def inside(space: Box, values: np.ndarray) -> bool:
    """Whether a batch of values is within the bounds."""
    low, high = space.bounds()
    return bool(((values >= low) & (values <= high)).all())


def equal(left: Any, right: Any) -> bool:
    """Whether two trees hold the same values."""
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, left, right)))


@pytest.fixture(scope="module", params=JAX_WORLDS)
def rollout(request: pytest.FixtureRequest) -> Rollout:
    """Compile reset and step once per world, for a batch, and step past the horizon."""
    world = make_world(request.param, horizon=HORIZON)
    reset, step = (jax.jit(jax.vmap(f), compiler_options=COMPILE_FAST) for f in (world.reset, world.step))
    first = reset(keys(0))
    state, steps = first[0], []
    for number in range(1, STEPS + 1):
        steps.append(step(keys(number), state, actions(world.action_space, LANES, number)))
        state = steps[-1].state
    return Rollout(world, reset, step, first, steps)


def test_observations_are_of_the_announced_space(rollout: Rollout) -> None:
    space = rollout.world.observation_space
    for observation in (rollout.first[1], *(step.observation for step in rollout.steps)):
        assert observation.shape == (LANES, *space.shape)
        assert observation.dtype == space.dtype
    assert inside(space, np.asarray(rollout.first[1]))
    for step, alive in zip(rollout.steps, rollout.alive, strict=True):
        assert inside(space, np.asarray(step.observation)[alive])


def test_rewards_and_ends_are_scalars_of_fixed_dtype(rollout: Rollout) -> None:
    for step in rollout.steps:
        assert (step.reward.shape, step.reward.dtype) == ((LANES,), jnp.float32)
        assert (step.terminated.shape, step.terminated.dtype) == ((LANES,), bool)
        assert (step.truncated.shape, step.truncated.dtype) == ((LANES,), bool)
        assert np.isfinite(step.reward).all()


def test_same_keys_give_the_same_reset_and_the_same_step(rollout: Rollout) -> None:
    again = rollout.reset(keys(0))
    assert equal(again, rollout.first)
    step = rollout.step(keys(1), again[0], actions(rollout.world.action_space, LANES, 1))
    assert equal(step, rollout.steps[0])


def test_lanes_of_a_batch_do_not_depend_on_each_other(rollout: Rollout) -> None:
    turned = jax.tree.map(lambda leaf: leaf[::-1], rollout.first[0])
    step = rollout.step(keys(1)[::-1], turned, actions(rollout.world.action_space, LANES, 1)[::-1])
    assert equal(step, jax.tree.map(lambda leaf: leaf[::-1], rollout.steps[0]))


def test_state_can_be_carried_by_a_scan(rollout: Rollout) -> None:
    world = rollout.world

    def program(key: jax.Array, action: jax.Array) -> Any:
        def body(state: WorldState, key: jax.Array) -> tuple[WorldState, jax.Array]:
            step = world.step(key, state, action)
            return step.state, step.reward

        first = world.reset(key)[0]
        return first, world.step(key, first, action).state, jax.lax.scan(body, first, jax.random.split(key, 3))[1]

    action = jnp.asarray(actions(world.action_space, 1, 0)[0])
    first, second, rewards = jax.eval_shape(program, jax.random.PRNGKey(0), action)
    assert first == second  # shapes, dtypes and weak types
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(first))
    assert rewards.shape == (3,)


def test_truncated_exactly_at_the_horizon_and_never_together_with_terminated(rollout: Rollout) -> None:
    assert rollout.alive[HORIZON - 1].any(), "no episode lasted until the horizon: the check is empty"
    for number, (step, alive) in enumerate(zip(rollout.steps, rollout.alive, strict=True), start=1):
        truncated, terminated = np.asarray(step.truncated), np.asarray(step.terminated)
        assert not (truncated & terminated).any()
        going = alive & ~terminated
        assert (truncated[going] == (number >= HORIZON)).all()


def test_any_state_can_be_begun_at_and_nothing_resets_itself(rollout: Rollout) -> None:
    """Begun anew at step 3, the world goes on as the first rollout did beyond its horizon, but with a clock at 0."""
    begun = 3
    before = rollout.steps[begun - 1]
    state, observation = jax.vmap(rollout.world.begin)(before.state.physics)
    assert equal(observation, before.observation)
    assert state.elapsed.tolist() == [0] * LANES
    for elapsed, number in enumerate(range(begun + 1, STEPS + 1), start=1):
        step = rollout.step(keys(number), state, actions(rollout.world.action_space, LANES, number))
        expected = rollout.steps[number - 1]
        assert equal((step.state.physics, step.observation, step.reward), (expected.state.physics, *expected[1:3]))
        assert step.state.elapsed.tolist() == [elapsed] * LANES
        assert expected.state.elapsed.tolist() == [number] * LANES
        assert (step.truncated == ((elapsed >= HORIZON) & ~step.terminated)).all()
        state = step.state


@pytest.fixture(scope="module", params=HOST_WORLDS)
def host_world(request: pytest.FixtureRequest) -> HostWorld:
    """A host world with a short horizon."""
    world = make_world(request.param, horizon=HORIZON)
    assert isinstance(world, HostWorld)
    return world


def play(world: HostWorld, seeds: list[int]) -> tuple[np.ndarray, list[HostStep]]:
    """One episode per seed, side by side, until the first of them ends."""
    environments = world.open(len(seeds))
    first = np.stack([environments.reset(index, seed) for index, seed in enumerate(seeds)])
    steps: list[HostStep] = []
    while not steps or not (steps[-1].terminated | steps[-1].truncated).any():
        steps.append(environments.step(actions(world.action_space, len(seeds), len(steps))))
    environments.close()
    return first, steps


def test_host_world_shows_what_it_announces(host_world: HostWorld) -> None:
    first, steps = play(host_world, [0, 1])
    space = host_world.observation_space
    for observation in (first, *(step.observation for step in steps)):
        assert (observation.shape, observation.dtype) == ((2, *space.shape), np.dtype(space.dtype))
        assert inside(space, observation)
    for step in steps:
        assert (step.reward.shape, step.reward.dtype) == ((2,), np.float32)
        assert (step.terminated.shape, step.terminated.dtype) == ((2,), bool)
        assert (step.truncated.shape, step.truncated.dtype) == ((2,), bool)


def test_host_episode_is_a_function_of_its_seed_and_its_actions(host_world: HostWorld) -> None:
    first, steps = play(host_world, [3, 4])
    again, steps_again = play(host_world, [3, 4])
    assert equal((first, steps), (again, steps_again))
    environments = host_world.open(2)
    played = [environments.reset(index, 3) for index in (0, 1)]
    environments.step(np.stack([actions(host_world.action_space, 1, 0)[0]] * 2))  # moves the generators
    assert equal([environments.reset(index, 3) for index in (0, 1)], played)
    environments.close()


def test_host_world_is_truncated_exactly_at_the_horizon(host_world: HostWorld) -> None:
    _, steps = play(host_world, [7])
    last = steps[-1]
    assert not any(step.truncated.any() or step.terminated.any() for step in steps[:-1])
    assert last.terminated[0] != last.truncated[0]
    assert len(steps) == HORIZON if last.truncated[0] else len(steps) <= HORIZON


def test_host_world_refuses_a_step_after_the_end(host_world: HostWorld) -> None:
    environments = host_world.open(1)
    action = actions(host_world.action_space, 1, 0)
    with pytest.raises(InputError, match="environment 0 has no episode under way"):
        environments.step(action)
    environments.reset(0, 0)
    done = False
    while not done:
        step = environments.step(action)
        done = bool(step.terminated[0] or step.truncated[0])
    with pytest.raises(InputError, match="environment 0 has no episode under way"):
        environments.step(action)
    environments.reset(0, 0)
    environments.step(action)
    environments.close()


def test_rewards_stay_within_the_range_of_returns(rollout: Rollout) -> None:
    known = make_world(rollout.world.name, horizon=1).return_range()
    if known is None:
        pytest.skip("does not know its range")
    state, rewards = rollout.first[0], []
    for number in range(300):
        step = rollout.step(keys(number), state, actions(rollout.world.action_space, LANES, number))
        rewards.append(step.reward)
        state = rollout.reset(keys(number))[0] if step.terminated.any() else step.state
    assert known[0] <= np.min(rewards)
    assert np.max(rewards) <= known[1]


def test_the_range_of_returns_is_that_of_the_longest_episodes() -> None:
    low, high = make_world("tabular/chain", horizon=3, discount=0.5).return_range()
    assert (low, high) == pytest.approx((0.0, 1.75), abs=1e-4)
    low, high = make_world("navigation", horizon=2, discount=1.0).return_range()
    assert (low, high) == pytest.approx((-2 * 0.9 * 2**0.5, 1.0), abs=1e-4)
    low, high = make_world("gymnax/SpaceInvaders-MinAtar", horizon=2, discount=1.0).return_range()
    assert (low, high) == pytest.approx((0.0, 4.0), abs=1e-4)
    assert make_world("gymnax/CartPole-v1").return_range() is None
