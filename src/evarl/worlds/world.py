"""Interfaces of worlds: `World` runs inside compiled programs, `HostWorld` in Python.

A compiled world is described by three pure functions of its *physics* (an arbitrary pytree): how it begins, how it moves and
what it shows. This module adds the clock: every world has a horizon, and reaching it (`truncated`) is distinguished from an end
that belongs to the task (`terminated`). Worlds do not reset themselves; simulators do.

A family of worlds has `contexts`. There, how a world begins and moves may also depend on a hidden context, which is carried in
the state; what it shows may not.
"""

import abc
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from evarl.errors import InputError
from evarl.worlds.contexts import Context, ContextParameter
from evarl.worlds.spaces import Box, OwnSpaces, Space

Key = PRNGKeyArray | UInt32[Array, "2"]
"""Old-style keys are used throughout, because Brax accepts no others."""

Physics = Any
Observation = Array
Action = Array


class WorldState(struct.PyTreeNode):
    """Everything the future of an episode depends on: the physics, the clock and the context."""

    physics: Physics
    elapsed: Int[Array, ""]
    """Steps taken since the episode began."""
    context: Float[Array, " P"] | None = None
    """Hidden numbers of this site, one for each of the world's `contexts`; None where there are none."""


class Step(NamedTuple):
    """Result of one step of a compiled world; stacked over environments when the step is vmapped."""

    state: WorldState
    observation: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    """Whether the task ended the episode."""
    truncated: Bool[Array, ""]
    """Whether the time limit ended it."""

    @property
    def done(self) -> Bool[Array, "..."]:
        """Whether the episode ended, for either reason."""
        return self.terminated | self.truncated


class AnyWorld(abc.ABC):
    """What compiled and host worlds have in common: spaces, horizon and discount, known before the first step."""

    name: str
    observation_space: Box
    action_space: Space
    horizon: int
    discount: float
    can_restart: ClassVar[bool]
    """Whether an episode can begin at any state, with new randomness each time."""
    environment_bytes: ClassVar[int]
    """Memory that each open environment takes outside of compiled programs, at least."""
    parameters: tuple[ContextParameter, ...] = ()
    """What may vary from site to site."""
    contexts: tuple[Context, ...] = ()
    """What does vary, and how it is drawn; empty for a single world."""
    state_fields: tuple[str, ...] = ()
    """Names of the numbers by which a state is written where it is no single array; empty if there is no such way."""
    own_spaces: OwnSpaces | None = None
    """Observations and actions as the environment itself has them, where they are not in the spaces above."""

    def vary(self, contexts: tuple[Context, ...]) -> Self:
        """The family of worlds in which these contexts are hidden."""
        if not dataclasses.is_dataclass(self) or "contexts" not in {f.name for f in dataclasses.fields(self)}:
            raise InputError(f"context: {self.name} cannot vary; a world with contexts is a dataclass with that field")
        return dataclasses.replace(self, contexts=contexts)

    def state_from(self, numbers: Float[np.ndarray, " n"]) -> Any:
        """The start state that these numbers describe, one for each of `state_fields`.

        Raises a ValueError that says what must be different if no episode can begin there.
        """
        raise NotImplementedError

    def return_range(self) -> tuple[float, float] | None:
        """Lowest and highest discounted return that any policy can have; None where they are not known."""
        return None


class World(AnyWorld):
    """A world in JAX, described by three pure functions of its physics: `initial`, `transition` and `observation`.

    It must be hashable, because it is a static argument of compiled programs: a frozen dataclass, or a plain class. In a
    family of worlds `initial` and `transition` are given the context as a last argument; without contexts they are not.
    """

    can_restart = True
    environment_bytes = 0
    state_count: int | None = None
    """Number of states where the physics is an index 0, 1, …; None elsewhere."""

    @abc.abstractmethod
    def initial(self, key: Key, context: Any = None) -> Physics:
        """Draw a start state from μ_D."""

    @abc.abstractmethod
    def transition(
        self, key: Key, physics: Physics, action: Action, context: Any = None
    ) -> tuple[Physics, Array, Array]:
        """Move one step: the next physics, the reward, and whether the task ended there."""

    @abc.abstractmethod
    def observation(self, physics: Physics) -> Observation:
        """What the policy observes."""

    def reset(self, key: Key, context: Array | None = None) -> tuple[WorldState, Observation]:
        """Begin an episode at a start state drawn from μ_D."""
        return self.begin(self.initial(key, *_given(context)), context)

    def begin(self, physics: Physics, context: Array | None = None) -> tuple[WorldState, Observation]:
        """Begin an episode at a given state, with the full horizon ahead."""
        return WorldState(physics, jnp.zeros((), jnp.int32), context), self.observation(physics)

    def step(self, key: Key, state: WorldState, action: Action) -> Step:
        """Move one step; `truncated` says that the horizon was reached without the task having ended."""
        physics, reward, terminated = self.transition(key, state.physics, action, *_given(state.context))
        elapsed = state.elapsed + 1
        truncated = (elapsed >= self.horizon) & ~terminated
        following = WorldState(physics, elapsed, state.context)
        return Step(following, self.observation(physics), reward, terminated, truncated)


def _given(context: Array | None) -> tuple[Array, ...]:
    """The context as a last argument, unless it has no numbers: a single world may be used once for each of some sites."""
    return () if context is None or not context.shape[-1] else (context,)


class HostWorld(AnyWorld):
    """A world outside of JAX, whose environments are opened in numbers and stepped in a Python loop."""

    can_restart = False
    environment_bytes = 4096

    @abc.abstractmethod
    def open(self, count: int) -> "HostEnvironments":
        """Create `count` environments."""


class HostEnvironments(abc.ABC):
    """Environments of one host world, each reset on its own. A start state is a reset seed plus options.

    Where the world has `state_fields`, a start state can also be given by its numbers.
    """

    first: int = 0
    """Number of the first of them, for messages, where they are a part of all environments."""

    @abc.abstractmethod
    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode in one environment and return its observation."""

    def begin(self, index: int, state: Float[np.ndarray, " n"]) -> np.ndarray:
        """Begin an episode in one environment at a given state and return its observation."""
        raise InputError("these environments cannot begin at a given state; give reset seeds")

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> "HostStep":
        """Move every environment by one step; none of them resets itself."""

    def place(self, index: int, context: Float[np.ndarray, " P"]) -> None:
        """Give one environment a context, which holds from its next reset on."""
        raise InputError("context: these environments cannot vary")

    @abc.abstractmethod
    def close(self) -> None:
        """Release what the environments hold."""


class HostStep(NamedTuple):
    """Result of one step of N host environments."""

    observation: np.ndarray
    """[N, ...]"""
    reward: Float[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]

    @property
    def done(self) -> Bool[np.ndarray, " N"]:
        """Whether the episode ended, for either reason."""
        return self.terminated | self.truncated


def bounded_returns(low: float, high: float, horizon: int, discount: float) -> tuple[float, float]:
    """Lowest and highest discounted return of episodes of 1 to `horizon` steps with rewards in [low, high].

    The range is a little wider than that, so that rounding of sums in float32 does not lead outside.

    >>> [round(bound, 3) for bound in bounded_returns(0.0, 1.0, horizon=3, discount=0.5)]
    [-0.0, 1.75]
    """
    longest = float(np.sum(discount ** np.arange(horizon, dtype=np.float64)))
    least, most = low * (longest if low < 0 else 1.0), high * (longest if high > 0 else 1.0)
    slack = 1e-5 * max(abs(least), abs(most))
    return least - slack, most + slack


def select(condition: Bool[Array, ""], chosen: Any, otherwise: Any) -> Any:
    """`chosen` where the scalar `condition` holds, else `otherwise`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, otherwise)


@contextmanager
def lenient_promotion() -> Iterator[None]:
    """Trace under JAX's default promotion rules: other packages mix dtypes and ranks, and evarl is tested with strict rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def strong(tree: Any) -> Any:
    """The same values as arrays that are not weakly typed, as the results of arithmetic on Python scalars are.

    A state that is weak after a reset and strong after a step, or the other way round, cannot be the carry of a scan.
    """
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)
