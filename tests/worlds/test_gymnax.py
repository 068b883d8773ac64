"""Gymnax's worlds through the adapter."""

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces
from gymnax.environments.classic_control.cartpole import CartPole

from evarl.errors import InputError
from evarl.worlds import Box, Discrete, make_world
from evarl.worlds.gymnax import EXCLUDED, GymnaxWorld, names
from evarl.worlds.world import lenient_promotion

KEY = jax.random.PRNGKey(0)
MINATAR = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]


def step_from(world: GymnaxWorld, action: Any, **physics: Any) -> Any:
    """One step from a start state with some of its numbers replaced."""
    start = world.initial(KEY)
    changed = start.replace(**{name: jnp.asarray(value, getattr(start, name).dtype) for name, value in physics.items()})
    return world.step(KEY, world.begin(changed)[0], action)


def test_names() -> None:
    wanted = {f"gymnax/{game}-MinAtar" for game in MINATAR} | {"gymnax/CartPole-v1", "gymnax/Pendulum-v1"}
    assert wanted <= set(names())
    assert {name.removeprefix("gymnax/") for name in names()} | set(EXCLUDED) == set(gymnax.registered_envs)


@pytest.mark.parametrize("identifier", sorted(EXCLUDED))
def test_excluded_worlds_say_why(identifier: str) -> None:
    with pytest.raises(InputError, match=f"'gymnax/{identifier}' is not allowed, because it {EXCLUDED[identifier]}"):
        make_world(f"gymnax/{identifier}")


@pytest.mark.parametrize(
    ("name", "horizon", "observation", "action"),
    [
        ("Asterix-MinAtar", 1000, Box((10, 10, 4), 0.0, 1.0, "bool"), Discrete(5)),
        ("Freeway-MinAtar", 2500, Box((10, 10, 7), 0.0, 1.0, "bool"), Discrete(3)),
        ("SpaceInvaders-MinAtar", 1000, Box((10, 10, 6), 0.0, 1.0, "bool"), Discrete(4)),
        ("Breakout-MinAtar", 1000, Box((10, 10, 4), 0.0, 1.0, "bool"), Discrete(3)),
        ("Pendulum-v1", 200, Box((3,), (-1.0, -1.0, -8.0), (1.0, 1.0, 8.0)), Box((1,), -2.0, 2.0)),
        ("FrozenLake-misc", 100, Box((16,), 0.0, 1.0), Discrete(4)),
        ("Reacher-misc", 100, Box((8,)), Box((2,), -1.0, 1.0)),
    ],
)
def test_spaces_and_horizon(name: str, horizon: int, observation: Box, action: Box | Discrete) -> None:
    world = make_world(f"gymnax/{name}")
    assert (world.observation_space, world.action_space) == (observation, action)
    assert (world.horizon, world.discount) == (horizon, 0.99)


@pytest.mark.parametrize("name", names())
def test_every_listed_world_keeps_its_types_and_shows_its_space(name: str) -> None:
    """Traced, not run."""
    world = make_world(name)

    def program(key: jax.Array, action: jax.Array) -> Any:
        state, observation = world.reset(key)
        return state, observation, world.step(key, state, action)

    discrete = isinstance(world.action_space, Discrete)
    action = jnp.int32(0) if discrete else jnp.zeros(world.action_space.shape)
    state, first, step = jax.eval_shape(program, KEY, action)
    space = world.observation_space
    for observation in (first, step.observation):
        assert (observation.shape, observation.dtype) == (space.shape, space.dtype)
    assert (step.reward.dtype, step.terminated.dtype, step.truncated.dtype) == (jnp.float32, bool, bool)
    assert step.reward.shape == step.terminated.shape == step.truncated.shape == ()
    assert state == step.state  # shapes, dtypes and weak types
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("name", ["MountainCarContinuous-v0", "Catch-bsuite", "DeepSea-bsuite", "FourRooms-misc"])
def test_steps_are_gymnax_s_own(name: str) -> None:
    """Observation, reward and end of ten steps, next to Gymnax stepped by hand."""
    world = make_world(f"gymnax/{name}")

    @jax.jit
    def both(key: jax.Array) -> Any:
        def body(state: Any, key: jax.Array) -> Any:
            with lenient_promotion():
                action = world.environment.action_space(world.defaults).sample(key)
                theirs = world.environment.step_env(key, state.physics, action, world.defaults)
            ours = world.step(key, state, action)
            return ours.state, (ours[1:4], (theirs[0].astype(jnp.float32), *theirs[2:4]))

        return jax.lax.scan(body, world.reset(key)[0], jax.random.split(key, 10))[1]

    ours, theirs = both(KEY)
    for mine, original in zip(ours, theirs, strict=True):
        assert np.array_equal(mine, original)


def test_cart_pole_by_hand() -> None:
    """Pushed right from rest, one Euler step of 0.02 s: θ'' = −(F/m) / (l (4/3 − m_p/m)), x'' = F/m − m_p l θ''/m."""
    world = make_world("gymnax/CartPole-v1")
    step = step_from(world, jnp.int32(1), x=0.0, x_dot=0.0, theta=0.0, theta_dot=0.0)
    push = 10.0 / 1.1
    angular = -push / (0.5 * (4.0 / 3.0 - 0.1 / 1.1))
    linear = push - 0.05 * angular / 1.1
    np.testing.assert_allclose(step.observation, [0.0, 0.02 * linear, 0.0, 0.02 * angular], rtol=1e-6)
    assert (float(step.reward), bool(step.terminated)) == (1.0, False)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gymnax_s_clock_ends_nothing(name: str) -> None:
    world = make_world(f"gymnax/{name}")
    action = jnp.int32(0) if name == "CartPole-v1" else jnp.zeros(1)
    step = step_from(world, action, time=10_000)
    assert (bool(step.terminated), bool(step.truncated)) == (False, False)
    assert int(step.state.elapsed) == 1


def test_a_fall_in_the_last_step_is_no_truncation() -> None:
    world = make_world("gymnax/CartPole-v1", horizon=1)
    fallen, standing = (step_from(world, jnp.int32(0), theta=angle) for angle in (0.3, 0.0))
    assert (bool(fallen.terminated), bool(fallen.truncated)) == (True, False)
    assert (bool(standing.terminated), bool(standing.truncated)) == (False, True)


def test_discrete_observations_are_one_hot() -> None:
    world = make_world("gymnax/FrozenLake-misc")
    state, observation = world.reset(KEY)
    assert observation.tolist() == np.eye(16)[0].tolist()
    moved = world.begin(state.physics.replace(position=jnp.int32(5)))[1]
    assert moved.tolist() == np.eye(16)[5].tolist()


def test_breakout_shows_paddle_ball_trail_and_bricks() -> None:
    """The first frame of MinAtar's Breakout: paddle at (9, 4), ball on row 3 at either side, three rows of ten bricks."""
    observation = np.asarray(make_world("gymnax/Breakout-MinAtar").reset(KEY)[1])
    paddle, ball, trail, bricks = (np.argwhere(observation[..., channel]).tolist() for channel in range(4))
    assert paddle == [[9, 4]]
    assert ball in ([[3, 0]], [[3, 9]])
    assert trail == ball
    assert bricks == [[row, column] for row in (1, 2, 3) for column in range(10)]


def test_unsupported_spaces_are_named() -> None:
    class Odd(CartPole):
        def observation_space(self, params: Any) -> spaces.Dict:
            return spaces.Dict({"a": spaces.Discrete(2)})

    odd = Odd()
    with pytest.raises(InputError, match=r"^world: 'odd' has the observation space Dict\(.*must be Box or Discrete$"):
        GymnaxWorld("odd", odd, odd.default_params, horizon=5)


def test_python_numbers_in_a_state_become_arrays_of_fixed_dtype() -> None:
    class Careless(CartPole):
        def step_env(self, *arguments: Any) -> Any:
            observation, state, *rest = super().step_env(*arguments)
            return observation, state.replace(time=7), *rest

    careless = Careless()
    world = GymnaxWorld("careless", careless, careless.default_params, horizon=5)
    state, _ = jax.eval_shape(world.reset, KEY)
    assert jax.eval_shape(world.step, KEY, state, jnp.int32(0)).state == state


@pytest.mark.slow
def test_two_aliens_can_die_in_one_step_and_no_more_shots_are_ever_in_flight() -> None:
    """What the greatest reward of a step stands on."""
    world = make_world("gymnax/SpaceInvaders-MinAtar")
    shots = np.zeros((10, 10)).tolist()
    shots[8][4] = shots[3][4] = 1.0
    assert step_from(world, jnp.int32(0), f_bullet_map=shots, alien_map=np.eye(10)[4] + np.zeros((10, 1))).reward == 2.0

    def fire(physics: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        physics, _, _ = world.transition(key, physics, jnp.int32(3))
        return physics, physics.f_bullet_map.sum()

    unharmed = world.initial(KEY).replace(alien_map=jnp.zeros((10, 10)).at[0, 0].set(1.0))
    _, flying = jax.lax.scan(fire, unharmed, jax.random.split(KEY, 60))
    assert flying.max() == 2
