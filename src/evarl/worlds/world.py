"""The one interface of a world that runs inside a compiled program.

A world is described by three pure functions of its *physics* (an arbitrary pytree): how it begins, how it moves, what it
shows. This module adds the clock: every world has a horizon, and running out of time (`truncated`) is never confused with
an end that belongs to the task (`terminated`). Worlds do not reset themselves; whoever rolls them out does.
"""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from evarl.worlds.spaces import Box, Space

Key = PRNGKeyArray | UInt32[Array, "2"]
"""Old-style keys are used throughout, because Brax accepts no others."""

Physics = Any
Observation = Array
Action = Array


class WorldState(struct.PyTreeNode):
    """Everything the future depends on: the physics and the clock."""

    physics: Physics
    elapsed: Int[Array, ""]


class Step(NamedTuple):
    """What one step of a world returns."""

    state: WorldState
    observation: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class World(abc.ABC):
    """A world in JAX. Spaces, horizon and discount are known before the first step; every state can be a start state."""

    name: str
    observation_space: Box
    action_space: Space
    horizon: int
    discount: float

    def return_range(self) -> tuple[float, float] | None:
        """The least and the greatest discounted return that any policy can have; None for worlds that do not know."""
        return None

    @abc.abstractmethod
    def initial(self, key: Key) -> Physics:
        """Draw a start state from μ_D."""

    @abc.abstractmethod
    def transition(self, key: Key, physics: Physics, action: Action) -> tuple[Physics, Array, Array]:
        """One step: the next physics, the reward, and whether the task ended there."""

    @abc.abstractmethod
    def observation(self, physics: Physics) -> Observation:
        """What the policy sees."""

    def reset(self, key: Key) -> tuple[WorldState, Observation]:
        """Begin an episode at a start state drawn from μ_D."""
        return self.begin(self.initial(key))

    def begin(self, physics: Physics) -> tuple[WorldState, Observation]:
        """Begin an episode at a state of the user's choice, with the full horizon ahead."""
        return WorldState(physics=physics, elapsed=jnp.zeros((), jnp.int32)), self.observation(physics)

    def step(self, key: Key, state: WorldState, action: Action) -> Step:
        """Move one step; `truncated` says that the horizon was reached without the task having ended."""
        physics, reward, terminated = self.transition(key, state.physics, action)
        elapsed = state.elapsed + 1
        truncated = (elapsed >= self.horizon) & ~terminated
        return Step(WorldState(physics, elapsed), self.observation(physics), reward, terminated, truncated)


class HostWorld(abc.ABC):
    """A world that lives in Python processes on the host. Its environments are opened in numbers and stepped in a loop."""

    name: str
    observation_space: Box
    action_space: Space
    horizon: int
    discount: float

    def return_range(self) -> tuple[float, float] | None:
        """None: what a world on the host may reward is not known here."""
        return None

    @abc.abstractmethod
    def open(self, count: int) -> "HostEnvironments":
        """Create `count` environments."""


class HostEnvironments(abc.ABC):
    """Some environments of one host world, each reset on its own. A start state is a reset seed plus options."""

    @abc.abstractmethod
    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode in one environment and return its observation."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> "HostStep":
        """Move every environment by one step; none of them resets itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""


class HostStep(NamedTuple):
    """What one step of N host environments returns."""

    observation: np.ndarray
    """[N, ...]"""
    reward: np.ndarray
    """[N] float32"""
    terminated: np.ndarray
    """[N] bool"""
    truncated: np.ndarray
    """[N] bool"""


def bounded_returns(low: float, high: float, horizon: int, discount: float) -> tuple[float, float]:
    """The range of discounted returns of episodes of 1 to `horizon` steps with rewards in [low, high].

    It is a little wider than that: returns are sums of float32, whose rounding must not carry them outside.

    >>> low, high = bounded_returns(0.0, 1.0, horizon=3, discount=0.5)
    >>> round(low, 3), round(high, 3)
    (-0.0, 1.75)
    """
    longest = float(np.sum(discount ** np.arange(horizon, dtype=np.float64)))
    least, most = low * (longest if low < 0 else 1.0), high * (longest if high > 0 else 1.0)
    slack = 1e-5 * max(abs(least), abs(most))
    return least - slack, most + slack


def select(condition: Bool[Array, ""], chosen: Any, otherwise: Any) -> Any:
    """`chosen` where the scalar `condition` holds, else `otherwise`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, otherwise)


def flat_features(observation: Array, axes: int) -> Float[Array, "*batch features"]:
    """Observations, each of so many axes, as rows of numbers. Small dtypes are widened only here.

    Flags are selected and not converted: on a CPU a conversion of reshaped flags compiles to a loop that is not
    vectorised, and took up to 15 times as long.
    """
    flat = observation.reshape(*observation.shape[: observation.ndim - axes], -1)
    return jnp.where(flat, 1.0, 0.0) if flat.dtype == bool else flat.astype(jnp.float32)
