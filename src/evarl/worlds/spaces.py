"""Observation and action spaces. Plain data, no JAX."""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError


@dataclass(frozen=True)
class Discrete:
    """The integers 0 … n − 1."""

    n: int
    start: int = field(default=0, compare=False)
    """The number from which the environment itself counts; policies of this package count from 0 in any case."""

    def __str__(self) -> str:
        return f"Discrete({self.n}, start={self.start})" if self.start else f"Discrete({self.n})"


@dataclass(frozen=True)
class Box:
    """Arrays of one shape and dtype between two bounds, which may be infinite."""

    shape: tuple[int, ...]
    low: float | tuple[float, ...] = -np.inf
    high: float | tuple[float, ...] = np.inf
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of entries of one element."""
        return int(np.prod(self.shape))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound, each of the box's shape."""
        low, high = (np.asarray(bound, np.float32) for bound in (self.low, self.high))
        if low.ndim:
            return low.reshape(self.shape), high.reshape(self.shape)
        return np.broadcast_to(low, self.shape), np.broadcast_to(high, self.shape)

    def __str__(self) -> str:
        low, high = (float(np.min(b)) if np.min(b) == np.max(b) else "…" for b in (self.low, self.high))
        return f"Box({'×'.join(map(str, self.shape))}, {low} to {high}, {self.dtype})"


Space = Discrete | Box


@dataclass(frozen=True, eq=False)
class OwnSpaces:
    """The form in which an environment itself gives observations and takes actions.

    A policy is given numbers of a discrete observation one-hot, and counts its actions from 0.
    """

    observation_shape: tuple[int, ...]
    """Empty for numbers that a policy is given one-hot."""
    first_observation: int | None
    """The least of these numbers; None for arrays."""
    first_action: int | None
    """The least action; None for arrays."""
    action_dtype: str
    low: np.ndarray | None = None
    """Least and greatest entries of actions that are arrays, in their own dtype."""
    high: np.ndarray | None = None

    @classmethod
    def of(cls, observation: Box, action: Space) -> "OwnSpaces":
        """The form that a world in JAX has: observations and actions are as a policy has them."""
        if isinstance(action, Discrete):
            return cls(observation.shape, None, 0, "int32")
        return cls(observation.shape, None, None, "float32", *action.bounds())


def as_space(world: str, role: str, space: Any, kinds: ModuleType, dtype: str = "float32") -> Space:
    """The space of another package, whose kinds are `kinds.Box` and `kinds.Discrete`; discrete observations are one-hot."""
    if isinstance(space, kinds.Discrete):
        first = int(getattr(space, "start", 0))
        return Discrete(int(space.n), first) if role == "action" else Box((int(space.n),), 0.0, 1.0, dtype)
    if isinstance(space, kinds.Box):
        shape = tuple(space.shape)
        return Box(shape, _bound(space.low, shape), _bound(space.high, shape), dtype)
    told = " ".join(str(space).split())
    raise InputError(f"world: '{world}' has the {role} space {told}, not supported; must be Box or Discrete")


def _bound(bound: ArrayLike, shape: tuple[int, ...]) -> float | tuple[float, ...]:
    """A bound in its shortest form: one number where all entries agree, infinity for float32's largest.

    >>> _bound([-1.0, -1.0], (2,)), _bound(3.4028235e38, (2,))
    (-1.0, inf)
    """
    with np.errstate(over="ignore"):  # float64's largest becomes infinity
        values = np.broadcast_to(np.asarray(bound).astype(np.float32), shape).ravel()
    values = np.where(np.abs(values) >= np.finfo(np.float32).max, np.copysign(np.inf, values), values)
    return float(values[0]) if (values == values[0]).all() else tuple(values.tolist())
