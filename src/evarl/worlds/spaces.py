"""Observation and action spaces. Plain data, no JAX."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Discrete:
    """The integers 0 … n − 1."""

    n: int

    def __str__(self) -> str:
        return f"Discrete({self.n})"


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
