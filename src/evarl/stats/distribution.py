"""Discrete distributions of numbers, such as returns: mean, variance, quantiles, and the mean of the lower tail."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs

ROUNDING = 1e-12
"""A probability that misses another by less reaches it."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """A distribution with mass on finitely many points: F(x) = `cdf[k]` for points[k] ≤ x < points[k + 1], 0 before the first.

    >>> coin = Distribution(np.array([0.0, 1.0]), np.array([0.5, 1.0]))
    >>> coin.mean, coin.variance, coin.quantile(0.5), coin.cvar(0.75)
    (0.5, 0.25, 0.0, 0.3333333333333333)
    """

    points: Float[np.ndarray, " K"]
    """Increasing."""
    cdf: Float[np.ndarray, " K"]
    """P(X ≤ point), from 0 to 1; the last is 1."""

    @property
    def mass(self) -> Float[np.ndarray, " K"]:
        """P(X = point)."""
        return np.diff(self.cdf, prepend=0.0)

    @property
    def mean(self) -> float:
        """E X."""
        return self._expected(self.mass)

    @property
    def variance(self) -> float:
        """E (X − E X)²."""
        there = self.mass > 0
        return float(self.mass[there] @ (self.points[there] - self.mean) ** 2)

    def at(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """F(x) = P(X ≤ x).

        >>> Distribution(np.array([0.0, 1.0]), np.array([0.5, 1.0])).at([-1.0, 0.0, 0.5, 1.0])
        array([0. , 0.5, 0.5, 1. ])
        """
        place = np.searchsorted(self.points, inputs.numbers("x", x), side="right")
        return np.asarray(np.concatenate([[0.0], self.cdf])[place])

    def quantile(self, probability: float) -> float:
        """The least point x with F(x) ≥ probability."""
        _check_probability(probability)
        return float(self.points[np.argmax(self.cdf >= probability - ROUNDING)])

    def cvar(self, share: float) -> float:
        """Conditional value at risk, the mean of the lower tail: (1/a) ∫₀ᵃ F⁻¹(u) du with a the share; E X for a = 1.

        A point on the edge of the tail counts with that part of its mass which belongs to it (Rockafellar & Uryasev, 2002).
        """
        _check_probability(share, name="share")
        return self._expected(np.diff(np.minimum(self.cdf, share), prepend=0.0)) / share

    def _expected(self, mass: Float[np.ndarray, " K"]) -> float:
        there = mass > 0  # an end of the range may be infinite, which matters only if it can be reached
        return float(mass[there] @ self.points[there])


def weighted_distribution(values: ArrayLike, weights: ArrayLike | None = None) -> Distribution:
    """The distribution that gives each value [n] a mass in proportion to its weight, 1/n unless given.

    >>> weighted_distribution([3.0, 1.0, 3.0], [1.0, 1.0, 2.0]).cdf
    array([0.25, 1.  ])
    """
    x = inputs.vector("values", values, of="values")
    w = np.ones(len(x)) if weights is None else inputs.same_length("weights", weights, len(x), of="values")
    if w.min() < 0 or w.sum() <= 0:
        raise InputError(f"weights: the least is {w.min():g}, the sum {w.sum():g}; must be 0 or more, and not all 0")
    points, cumulated = cumulative(x, w)
    return Distribution(points, cumulated / cumulated[-1])


def cumulative(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """The distinct values, and the sums of the weights up to each of them.

    >>> cumulative(np.array([3.0, 1.0, 3.0]), np.array([1.0, 1.0, 2.0]))
    (array([1., 3.]), array([1., 4.]))
    """
    points, place = np.unique(values, return_inverse=True)
    return points, np.cumsum(np.bincount(place, weights, len(points)))


def _check_probability(value: float, name: str = "probability") -> None:
    if not 0 < value <= 1:
        raise InputError(f"{name}: {value} is not allowed; must be above 0 and at most 1")
