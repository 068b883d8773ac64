"""Worlds from Gymnax: MinAtar, classic control, bsuite and a few more."""

import contextlib
import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from jaxtyping import Array, Bool, Float

from evarl.errors import InputError, unknown_name
from evarl.keys import unrolled
from evarl.worlds import classic
from evarl.worlds.contexts import Context, ContextParameter, around, site_values
from evarl.worlds.spaces import Box, Space, as_space
from evarl.worlds.world import (
    Action,
    Key,
    Observation,
    Physics,
    World,
    WorldState,
    bounded_returns,
    lenient_promotion,
    strong,
)

EXCLUDED = {
    "UmbrellaChain-bsuite": "draws part of its observation at random",
    "MNISTBandit-bsuite": "shows an image that its state does not hold",
    "MemoryChain-bsuite": "shows the state before the step, not the one after it",
    "MetaMaze-misc": "shows the last action",
    "PointRobot-misc": "shows the last action",
    "BernoulliBandit-misc": "shows the last action",
    "GaussianBandit-misc": "shows the last action",
}
"""Environments whose observation is not a function of the state, and why: no episode can begin at a given state of theirs."""

MOST_REWARD = {"Asterix-MinAtar": 1.0, "Freeway-MinAtar": 1.0, "Breakout-MinAtar": 1.0}
"""Highest reward of a step, where it follows from the rules of the game; no step of these games has a reward below 0.

Asterix: each row holds one thing, and the player stands in one row. Freeway: one crossing. Breakout: one brick."""

ROWS_OF_A_SHOT = 9
"""Steps that a shot is in flight in Space Invaders, each good for one alien; five steps lie between two, unless they vary."""

IDLE = (
    "max_steps_in_episode",
    "SimpleBandit-bsuite optimal_return",
    "Asterix-MinAtar shot_cool_down",
    "Seaquest-MinAtar ramp_interval",
    "Seaquest-MinAtar enemy_move_interval",
)
"""Numbers of Gymnax's parameters that change nothing: the horizon is evarl's own, regret is not shown, and some are not read."""

SHOWN = ("Seaquest-MinAtar max_oxygen",)
"""Numbers of Gymnax's parameters that could not be hidden, because observations are measured by them."""

ZERO_AT_START = ("time", "last_u", "prev_done")
"""Fields of Gymnax's states that are 0 when an episode begins: its clock, the torque that is drawn, and the end of a game."""


@dataclass(frozen=True, eq=False)
class GymnaxWorld(World):
    """A Gymnax environment without its auto-reset and its clock. The physics is the Gymnax `EnvState`.

    The state's own `time` goes on but ends nothing: the horizon is that of this class, and Gymnax's `terminated` does not
    include time. Discrete observations are one-hot.
    """

    name: str
    environment: Environment[Any, Any]
    defaults: Any
    """Gymnax's `EnvParams`."""
    horizon: int
    discount: float = 0.99
    observation_dtype: str = "float32"
    """"bool" for worlds whose observations are zeros and ones, which takes a quarter of the memory."""
    contexts: tuple[Context, ...] = ()
    observation_space: Box = field(init=False)
    action_space: Space = field(init=False)

    def __post_init__(self) -> None:
        with lenient_promotion():
            shown = self.environment.observation_space(self.defaults)
            taken = self.environment.action_space(self.defaults)
        observation_space = as_space(self.name, "observation", shown, spaces, self.observation_dtype)
        object.__setattr__(self, "observation_space", observation_space)
        object.__setattr__(self, "action_space", as_space(self.name, "action", taken, spaces))

    def initial(self, key: Key, context: Array | None = None) -> Physics:
        """Draw a start state by Gymnax's reset."""
        with lenient_promotion():
            _, state = self.environment.reset_env(unrolled(key), self._settings(context))
        return strong(state)

    def begin(self, physics: Physics, context: Array | None = None) -> tuple[WorldState, Observation]:
        """Begin an episode at a given state. What a reset would compute from the context is that of this site."""
        if self.contexts and context is not None and self._set_at_reset:
            own, fresh = jax.tree.leaves(physics), jax.tree.leaves(self.initial(jax.random.PRNGKey(0), context))
            leaves = [fresh[index] if index in self._set_at_reset else leaf for index, leaf in enumerate(own)]
            physics = jax.tree.unflatten(jax.tree.structure(physics), leaves)
        return super().begin(physics, context)

    @cached_property
    def _set_at_reset(self) -> frozenset[int]:
        """Leaves of the state that a reset computes from what varies and from nothing else, such as the speed of a game."""
        known = {one.name: one.default for one in self.parameters}
        default = np.asarray([known[one.name] for one in self.contexts], np.float32)
        sites = [default]
        for index, one in enumerate(self.contexts):
            sites += [np.where(np.arange(len(default)) == index, end, default) for end in (one.low, one.high)]
        with jax.ensure_compile_time_eval():
            keys = jax.random.split(jax.random.PRNGKey(0), 8)
            draw = jax.vmap(jax.vmap(self.initial, (0, None)), (None, 0))
            drawn = jax.tree.map(np.asarray, draw(keys, jnp.asarray(np.stack(sites), jnp.float32)))  # [site, key, ...]
        leaves = enumerate(jax.tree.leaves(drawn))
        return frozenset(i for i, x in leaves if (x == x[:, :1]).all() and not (x == x[:1]).all())

    def transition(
        self, key: Key, physics: Physics, action: Action, context: Array | None = None
    ) -> tuple[Physics, Float[Array, ""], Bool[Array, ""]]:
        """Move by Gymnax's step, without its auto-reset."""
        with lenient_promotion():
            settings = self._settings(context)
            _, state, reward, terminated, _ = self.environment.step_env(unrolled(key), physics, action, settings)
        return strong(state), jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool)

    @property
    def parameters(self) -> tuple[ContextParameter, ...]:  # type: ignore[override]
        """Numbers of Gymnax's `EnvParams`: those of `classic` where the task is known, else all but `IDLE`, `SHOWN`, zeros."""
        if (listed := classic.PARAMETERS.get(self._identifier)) is not None:
            return listed
        fields = {one.name: getattr(self.defaults, one.name) for one in dataclasses.fields(self.defaults)}
        numbers = {name: value for name, value in fields.items() if type(value) in (int, float) and value}
        left_out = {one.removeprefix(f"{self._identifier} ") for one in (*IDLE, *SHOWN)}
        return tuple(around(name, value) for name, value in numbers.items() if name not in left_out)

    @property
    def state_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """Fields of Gymnax's `EnvState` but for `ZERO_AT_START`, where all of them are single numbers."""
        leaves = self._leaves()
        single = leaves and all(getattr(leaf, "shape", None) == () for leaf in leaves.values())
        return tuple(name for name in leaves if name not in ZERO_AT_START) if single else ()

    def state_from(self, numbers: Float[np.ndarray, " n"]) -> Physics:
        """Gymnax's `EnvState` with these numbers, if it is one and the task has not ended there."""
        leaves, counts = self._leaves(), self._counts()
        given = dict.fromkeys(leaves, 0.0) | dict(zip(self.state_fields, numbers.tolist(), strict=True))
        for name in self.state_fields:
            if not jnp.issubdtype(leaves[name].dtype, jnp.floating) and not given[name].is_integer():
                raise ValueError(f"{name} must be a whole number")
            if name in counts and not 0 <= given[name] < counts[name]:
                raise ValueError(f"{name} must be from 0 to {counts[name] - 1}")
        arrays = {name: np.asarray(given[name], leaf.dtype) for name, leaf in leaves.items()}
        state = self._state_template().replace(**arrays)
        with contextlib.suppress(NotImplementedError), lenient_promotion():
            if self.environment.is_terminated(state, self.defaults):
                raise ValueError(classic.ENDED)
        return state

    def _state_template(self) -> Any:
        """Shapes and dtypes of Gymnax's `EnvState`."""
        return jax.eval_shape(self.initial, jax.random.PRNGKey(0))

    def _leaves(self) -> dict[str, Any]:
        """The fields of Gymnax's `EnvState` with their shapes and dtypes."""
        state = self._state_template()
        return {one.name: getattr(state, one.name) for one in dataclasses.fields(state)}

    def _counts(self) -> dict[str, int]:
        """How many values each whole number of Gymnax's `EnvState` has, where Gymnax says so."""
        with contextlib.suppress(NotImplementedError), lenient_promotion():
            found = self.environment.state_space(self.defaults).spaces
            return {name: int(one.n) for name, one in found.items() if isinstance(one, spaces.Discrete)}
        return {}

    @property
    def _identifier(self) -> str:
        return self.name.removeprefix("gymnax/")

    def _settings(self, context: Float[Array, " P"] | None) -> Any:
        """Gymnax's `EnvParams` at one site."""
        if context is None:
            return self.defaults
        values = site_values(self.parameters, self.contexts, context)
        for name in (one.name for one in self.parameters if one.whole):
            values[name] = jnp.asarray(jnp.round(values[name]), jnp.int32)
        return self.defaults.replace(**classic.with_derived(self._identifier, values))

    def return_range(self) -> tuple[float, float] | None:
        """From the highest reward of a step, for games in which it is known."""
        most = MOST_REWARD.get(self._identifier)
        if self._identifier == "SpaceInvaders-MinAtar":
            between = [one.low for one in self.contexts if one.name == "shot_cool_down"]
            most = float(np.ceil(ROWS_OF_A_SHOT / (between or [self.defaults.shot_cool_down])[0]))
        return None if most is None else bounded_returns(0.0, most, self.horizon, self.discount)

    def observation(self, physics: Physics) -> Observation:
        """Gymnax's observation of a state, made without a key or the last action; see `EXCLUDED`."""
        with lenient_promotion():
            shown = self.environment.observe(None, physics, None, self.defaults)
        if not shown.shape and self.observation_space.shape:  # an index
            return jax.nn.one_hot(shown, self.observation_space.size, dtype=self.observation_dtype)
        return shown.astype(self.observation_dtype)


def names() -> list[str]:
    """Names of the worlds of this family, including those added by `gymnax.register`."""
    return [f"gymnax/{identifier}" for identifier in gymnax.registered_envs if identifier not in EXCLUDED]


def make(name: str, **given: Any) -> GymnaxWorld:
    """Build the world called `name`; the horizon is Gymnax's own limit unless given."""
    identifier = name.removeprefix("gymnax/")
    if identifier in EXCLUDED:
        raise InputError(
            f"world: '{name}' is not allowed, because it {EXCLUDED[identifier]}; must be one of {', '.join(names())}"
        )
    if name not in names():
        raise unknown_name("world", name, names())
    with lenient_promotion():
        environment, defaults = gymnax.make(identifier)
    given = {"horizon": int(defaults.max_steps_in_episode)} | given
    dtype = "bool" if identifier.endswith("-MinAtar") else "float32"
    return GymnaxWorld(name, environment, defaults, observation_dtype=dtype, **given)
