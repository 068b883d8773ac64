"""Worlds from Brax. `brax/ant` runs on the spring backend; `brax/ant:generalized` and so on choose another."""

import copy
import inspect
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Bool, Float

from evarl.errors import unknown_name
from evarl.storage.compiled import RUN_ONCE
from evarl.worlds.contexts import Context, ContextParameter, site_values
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
    from brax import contact, envs
    from brax.base import System, Transform

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
MULTIPLIERS = (
    ContextParameter("friction", 1.0, 0.1, 3.0, "multiplies the friction of all contacts"),
    ContextParameter("mass", 1.0, 1.0, 3.0, "multiplies masses and moments of inertia"),
    ContextParameter("gain", 1.0, 0.1, 2.0, "multiplies the gain of all actuators"),
    ContextParameter("weak-actuator", 1.0, 0.0, 1.0, "multiplies the gain of the first actuator"),
)
"""What may vary. Masses only grow: a lighter body than Brax's makes the joints of some environments unstable."""


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
    contexts: tuple[Context, ...] = ()
    observation_space: Box = field(init=False)
    action_space: Box = field(init=False)

    def __post_init__(self) -> None:
        with lenient_promotion():
            state = jax.eval_shape(self.environment.reset, jax.random.PRNGKey(0))
        object.__setattr__(self, "observation_space", Box(state.obs.shape))
        object.__setattr__(self, "action_space", Box((self.environment.action_size,), -1.0, 1.0))

    @cached_property
    def parameters(self) -> tuple[ContextParameter, ...]:  # type: ignore[override]
        """The `MULTIPLIERS` that act in this environment."""
        return tuple(one for one in MULTIPLIERS if one.name not in self._without_effect())

    @cached_property
    def pool(self) -> envs.State:
        """The start states, stacked, as NumPy arrays; evaluated at once even if first requested while a program is traced."""
        with jax.ensure_compile_time_eval(), lenient_promotion():
            keys = jax.random.split(jax.random.PRNGKey(0), self.pool_size)
            states = jax.jit(jax.vmap(self.environment.reset), compiler_options=RUN_ONCE)(keys)
        return jax.tree.map(np.asarray, states)

    def initial(self, key: Key, context: Array | None = None) -> envs.State:
        """Draw a state of the pool."""
        index = jax.random.randint(key, (), 0, self.pool_size)
        return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf)[index], self.pool)

    def transition(
        self, key: Key, physics: envs.State, action: Action, context: Array | None = None
    ) -> tuple[envs.State, Float[Array, ""], Bool[Array, ""]]:
        """Move by Brax's step, which is deterministic."""
        own = jax.tree.map(lambda leaf: leaf, physics)  # Brax writes into the metrics of the state that it is given
        with lenient_promotion():
            environment, own = (self.environment, own) if context is None else self._varied(own, context)
            state = strong(environment.step(own, action))
        return state, state.reward, state.done > 0.5

    @property
    def state_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """Positions and velocities of the joints, in Brax's order: q0, q1, …, qd0, qd1, …."""
        system = self.environment.sys
        return (*(f"q{i}" for i in range(system.q_size())), *(f"qd{i}" for i in range(system.qd_size())))

    def state_from(self, numbers: Float[np.ndarray, " n"]) -> envs.State:
        """The Brax `State` at rest but for these positions and velocities, as after a reset."""
        q, qd = np.split(np.asarray(numbers, np.float32), [self.environment.sys.q_size()])
        first = jax.tree.map(lambda leaf: leaf[0], self.pool)
        with lenient_promotion():
            state = jax.jit(self.environment.pipeline_init, compiler_options=RUN_ONCE)(q, qd)
            taken = (np.zeros(self.action_space.shape, np.float32),) if self._shows_actions() else ()
            shown = self.environment._get_obs(state, *taken)
        return jax.tree.map(np.asarray, strong(first.replace(pipeline_state=state, obs=shown)))

    def _shows_actions(self) -> bool:
        """Whether an observation contains the last action; after a reset that is 0."""
        return "action" in inspect.signature(self.environment._get_obs).parameters

    def _without_effect(self) -> set[str]:
        """Multipliers of what this environment does not have, or does not take from its system.

        The generalized backend keeps the mass matrix in the state, from the step before, and a state in which an episode
        begins has that of another site.
        """
        with quiet(), lenient_promotion():
            touching = jax.eval_shape(lambda: contact.get(self.environment.sys, _at_rest(self.environment.sys)))
        without = {"friction"} if touching is None else set()
        return without | ({"mass"} if self.environment.backend == "generalized" else set())

    def _varied(self, physics: envs.State, context: Float[Array, " P"]) -> tuple[envs.Env, envs.State]:
        """The environment of one site, and a state with its masses.

        Only the simulation is that of the site: observations and rewards are computed as everywhere, because some of Brax's
        show masses and forces.
        """
        site = {one.name: 1.0 for one in MULTIPLIERS} | site_values(self.parameters, self.contexts, context)
        simulated, varied = copy.copy(self.environment), copy.copy(self.environment)
        simulated.sys = system = _multiplied(self.environment.sys, site)
        varied.pipeline_step = simulated.pipeline_step  # a copy's attribute hides the method of its class
        state = physics.pipeline_state
        if self.environment.backend in ("spring", "positional"):  # which keep the masses in the state
            state = state.replace(mass=system.link.inertia.mass ** (1 - system.spring_mass_scale))
        return varied, physics.replace(pipeline_state=state)

    def observation(self, physics: envs.State) -> Float[Array, " n"]:
        """The observation that Brax computed along with the state."""
        return physics.obs


def _multiplied(system: System, by: dict[str, Any]) -> System:
    """A system whose friction, masses and actuators are multiplied, where Brax keeps them and where MuJoCo's MJX does."""
    gains = by["gain"] * jnp.ones(system.act_size()).at[0].set(by["weak-actuator"])
    inertia = system.link.inertia
    return system.replace(
        geom_friction=system.geom_friction * by["friction"],
        link=system.link.replace(inertia=inertia.replace(i=inertia.i * by["mass"], mass=inertia.mass * by["mass"])),
        body_mass=system.body_mass * by["mass"],
        body_inertia=system.body_inertia * by["mass"],
        actuator=system.actuator.replace(gain=system.actuator.gain * gains),
        actuator_gainprm=system.actuator_gainprm * jnp.reshape(gains, (-1, 1)),
    )


def _at_rest(system: System) -> Transform:
    """Transforms of the links of a system, all of them zero."""
    return Transform.zero((system.num_links(),))


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
