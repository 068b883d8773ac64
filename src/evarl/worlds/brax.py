"""Worlds from Brax. `brax/ant` runs on the spring backend; `brax/ant:generalized` and so on choose another."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import mujoco
import numpy as np
from jaxtyping import Array, Bool, Float

from evarl.errors import unknown_name
from evarl.worlds.spaces import Box
from evarl.worlds.world import Action, Key, World, lenient_promotion, strong

NOISE = ("Failed to import warp", "Failed to import mujoco_warp", "compiler attribute 'settotalmass' is deprecated")
"""Beginnings of lines that Brax and MuJoCo always print, though nothing that is used here is missing."""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress `NOISE` and the notices that Brax and JAXopt are no longer developed, and nothing else.

    MuJoCo would also write its warnings into a file MUJOCO_LOG.TXT in the current directory.
    """

    def warn(message: str) -> None:
        if not message.startswith(NOISE):
            warnings.warn(message, stacklevel=2)

    printed, handler = io.StringIO(), mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warn)
    try:
        with warnings.catch_warnings(), redirect_stdout(printed):
            warnings.filterwarnings("ignore", "Brax System, piplines and environments are not actively", UserWarning)
            warnings.filterwarnings("ignore", "JAXopt is no longer maintained", DeprecationWarning)
            yield
    finally:
        mujoco.set_mju_user_warning(handler)
        for line in printed.getvalue().splitlines():
            if not line.startswith(NOISE):
                print(line)


with quiet():
    from brax import envs

IDENTIFIERS = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "walker2d",
)
"""Brax's swimmer is missing: it requires the generalized backend, which there calls a function that JAX no longer has."""

BACKENDS = ("spring", "generalized", "positional", "mjx")
RUN_ONCE = {"xla_backend_optimization_level": 0}
"""Compiler options for a program that runs once: it compiles in half the time."""


@dataclass(frozen=True, eq=False)
class BraxWorld(World):
    """A Brax environment without its wrappers for episodes and auto-reset. The physics is the Brax `State`.

    A Brax reset is a simulation, too expensive to run at every step in case an episode ended there. So start states come
    from a pool that is computed once, on first use, with a fixed key: μ_D is uniform on the `pool_size` states of the pool,
    and a reset is a look-up.
    """

    name: str
    environment: envs.Env
    horizon: int = 1000
    discount: float = 0.99
    pool_size: int = 256
    observation_space: Box = field(init=False)
    action_space: Box = field(init=False)

    def __post_init__(self) -> None:
        with lenient_promotion():
            state = jax.eval_shape(self.environment.reset, jax.random.PRNGKey(0))
        object.__setattr__(self, "observation_space", Box(state.obs.shape))
        object.__setattr__(self, "action_space", Box((self.environment.action_size,), -1.0, 1.0))

    @cached_property
    def pool(self) -> envs.State:
        """The start states, stacked, as NumPy arrays; evaluated at once even if first requested while a program is traced."""
        with jax.ensure_compile_time_eval(), lenient_promotion():
            keys = jax.random.split(jax.random.PRNGKey(0), self.pool_size)
            states = jax.jit(jax.vmap(self.environment.reset), compiler_options=RUN_ONCE)(keys)
        return jax.tree.map(np.asarray, states)

    def initial(self, key: Key) -> envs.State:
        """Draw a state of the pool."""
        index = jax.random.randint(key, (), 0, self.pool_size)
        return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[index], self.pool)

    def transition(
        self, key: Key, physics: envs.State, action: Action
    ) -> tuple[envs.State, Float[Array, ""], Bool[Array, ""]]:
        """Move by Brax's step, which is deterministic."""
        own = jax.tree.map(lambda leaf: leaf, physics)  # Brax writes into the metrics of the state that it is given
        with lenient_promotion():
            state = strong(self.environment.step(own, action))
        return state, state.reward, state.done > 0.5

    def observation(self, physics: envs.State) -> Float[Array, " n"]:
        """The observation that Brax computed along with the state."""
        return physics.obs


def names() -> list[str]:
    """Names of the worlds of this family on their default backend."""
    return [f"brax/{identifier}" for identifier in IDENTIFIERS]


def make(name: str, **given: Any) -> BraxWorld:
    """Build the world called `name`, on the backend after the colon if there is one."""
    world, _, backend = name.partition(":")
    if world not in names():
        raise unknown_name("world", name, names())
    if backend not in (*BACKENDS, "") or name.endswith(":"):
        raise unknown_name("world", name, [f"{world}:{known}" for known in BACKENDS])
    with quiet(), lenient_promotion():
        environment = envs.get_environment(world.removeprefix("brax/"), backend=backend or BACKENDS[0])
    return BraxWorld(name, environment, **given)
