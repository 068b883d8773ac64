"""Brax's worlds: the pool of start states, and peace."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax.extend import core

from evarl.assessment.scenarios import given_states
from evarl.errors import InputError
from evarl.worlds import Box, make_world
from evarl.worlds.brax import BACKENDS, RUN_ONCE, BraxWorld, make, names, quiet
from evarl.worlds.world import lenient_promotion

pytestmark = pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data`:DeprecationWarning")  # Brax does

POOL = 8


@pytest.fixture(scope="module")
def world() -> BraxWorld:
    """The smallest of them, with a pool small enough to be seen whole."""
    return BraxWorld("brax/inverted_pendulum", make("brax/inverted_pendulum").environment, pool_size=POOL)


@pytest.fixture(scope="module")
def first_use(world: BraxWorld) -> tuple[bool, Any]:
    """Whether the pool existed before the first reset, and 64 resets whose program is the first to need it."""
    built = "pool" in vars(world)
    return built, jax.jit(jax.vmap(world.reset))(jax.random.split(jax.random.PRNGKey(3), 64))


def primitives(jaxpr: core.Jaxpr) -> set[str]:
    """Names of all operations of a program, those of its inner programs included."""
    inner = [sub for equation in jaxpr.eqns for sub in core.jaxprs_in_params(equation.params)]
    return {equation.primitive.name for equation in jaxpr.eqns}.union(*map(primitives, inner))


def test_the_pool_is_built_at_first_use_even_inside_a_trace(world: BraxWorld, first_use: tuple[bool, Any]) -> None:
    assert first_use[0] is False
    assert world.pool is world.pool
    leaves = jax.tree.leaves(world.pool)
    assert all(isinstance(leaf, np.ndarray) and len(leaf) == POOL for leaf in leaves)


def test_resets_are_members_of_the_pool_and_all_of_them_occur(world: BraxWorld, first_use: tuple[bool, Any]) -> None:
    state, observation = first_use[1]
    matches = (np.asarray(observation)[:, None] == world.pool.obs[None]).all(-1)  # [reset, member]
    assert (matches.sum(axis=1) == 1).all()
    assert matches.any(axis=0).all()
    member = matches.argmax(axis=1)
    assert np.array_equal(state.physics.pipeline_state.q, world.pool.pipeline_state.q[member])


def test_members_of_the_pool_are_brax_s_own_resets(world: BraxWorld, first_use: tuple[bool, Any]) -> None:
    angles = world.pool.obs[:, :2]
    assert (np.abs(angles) <= 0.01).all()  # inverted_pendulum begins within ±0.01 of upright
    assert len(np.unique(angles, axis=0)) == POOL


def test_a_reset_simulates_nothing(world: BraxWorld, first_use: tuple[bool, Any]) -> None:
    dear = {"scan", "while", "cond", "dot_general", "sin", "cos"}
    reset = primitives(jax.make_jaxpr(world.reset)(jax.random.PRNGKey(0)).jaxpr)
    assert not reset & dear
    with lenient_promotion():
        simulated = primitives(jax.make_jaxpr(world.environment.reset)(jax.random.PRNGKey(0)).jaxpr)
    assert simulated & dear


@pytest.mark.slow
def test_the_task_ends_when_the_pole_falls(world: BraxWorld, first_use: tuple[bool, Any]) -> None:
    state = first_use[1][0]
    step = jax.jit(jax.vmap(world.step), compiler_options=RUN_ONCE)
    keys = jax.random.split(jax.random.PRNGKey(0), 64)
    fallen = []
    for _ in range(12):
        result = step(keys, state, jnp.ones((64, 1)))
        state = result.state
        fallen.append(np.abs(np.asarray(result.observation)[:, 1]) > 0.2)
        assert np.array_equal(result.terminated, fallen[-1])
        assert (result.reward == 1.0).all()
    assert not fallen[0].any()
    assert fallen[-1].any()


def test_a_step_leaves_the_state_it_was_given_alone() -> None:
    """Brax updates the dict of metrics in place."""
    world = make_world("brax/reacher")

    def program(key: jax.Array, action: jax.Array) -> None:
        with lenient_promotion():
            state = world.environment.reset(key)
        before = dict(state.metrics)
        world.transition(key, state, action)
        assert all(state.metrics[name] is value for name, value in before.items())

    jax.eval_shape(program, jax.random.PRNGKey(0), jnp.zeros(2))


def test_spaces_horizon_and_discount() -> None:
    world = make_world("brax/halfcheetah")
    assert world.observation_space == Box((17,))
    assert world.action_space == Box((6,), -1.0, 1.0)
    assert (world.horizon, world.discount, world.pool_size) == (1000, 0.99, 256)


@pytest.mark.slow
def test_backends() -> None:
    assert make_world("brax/reacher").environment.backend == "spring"
    for backend in BACKENDS:
        assert make_world(f"brax/reacher:{backend}").environment.backend == backend
    for wrong in ("brax/reacher:", "brax/reacher:springy", "brax/reacher:spring:mjx"):
        with pytest.raises(InputError, match="Known: brax/reacher:spring, brax/reacher:generalized"):
            make_world(wrong)


def test_names_construct_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brax.envs.get_environment", lambda *_, **__: pytest.fail("constructed"))
    assert {"brax/ant", "brax/halfcheetah", "brax/reacher"} <= set(names())


@pytest.mark.slow
def test_nothing_is_printed_and_no_log_is_written(tmp_path: Path) -> None:
    program = "from evarl.worlds import make_world; make_world('brax/halfcheetah')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_known_noise_still_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        print("Failed to import warp: No module named 'warp'")
        print("something else")
    assert capsys.readouterr().out == "something else\n"
    with quiet():
        handler = mujoco.get_mju_user_warning()
    handler("compiler attribute 'settotalmass' is deprecated and will be removed")  # a warning would be an error here
    with pytest.warns(UserWarning, match="real trouble"):
        handler("real trouble")
    with pytest.raises(RuntimeError, match="broken"), quiet():
        raise RuntimeError("broken")


@pytest.mark.slow
def test_a_state_is_written_by_its_positions_and_velocities(world: BraxWorld) -> None:
    """A member of the pool, from its numbers: the same observation, and the same after a step."""
    member = jax.tree.map(lambda leaf: leaf[3], world.pool)
    numbers = np.concatenate([member.pipeline_state.q, member.pipeline_state.qd])
    assert world.state_fields == ("q0", "q1", "qd0", "qd1")
    found = world.state_from(numbers)
    assert jax.tree.structure(found) == jax.tree.structure(member)
    np.testing.assert_allclose(found.obs, member.obs, rtol=1e-6, atol=1e-7)
    step = jax.jit(world.transition)
    after, expected = (step(jax.random.PRNGKey(0), state, jnp.full(1, 0.5))[0].obs for state in (found, member))
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)
    given = given_states(world, [tuple(numbers.tolist()), (0.5, 0.0, 0.0, 0.0)])
    assert given.obs[1, 0] == np.float32(0.5)
    with pytest.raises(InputError, match=r"has 4 numbers, q0,q1,qd0,qd1"):
        given_states(world, [(0.1, 0.2)])
