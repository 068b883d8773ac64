"""Bands that contain a whole distribution function F, from numbers of this or, with weights, of another distribution.

**Unweighted.** P(sup_x |F̂(x) − F(x)| > ε) ≤ 2 exp(−2nε²): ε = √(ln(2/α)/(2n)) (Dvoretzky, Kiefer & Wolfowitz; Massart, 1990).

**Weighted.** Given what came before, pair i (G, w) has w ≥ 0 and E[w 1{G ≤ x}] ≤ F(x), E[w 1{G > x}] ≤ 1 − F(x) for all x. This
holds for importance weights, with equality where the logging policy takes every action of the target policy, and for any
w' ≤ w: weights may be cut at a `limit` c ≥ 1, if c was fixed beforehand. They need not be bounded, logging policies may differ
from pair to pair and depend on the pairs before. With w' = min(w, c),

    F_c(x) = (1/n) Σ w' 1{G ≤ x},   S_c(x) = (1/n) Σ w' 1{G > x},
    F_c(x) − ε ≤ F(x) ≤ 1 − S_c(x) + ε   for all x,   ε = c √(ln(2e/α)/(2n)),   with probability at least 1 − α.

*Proof.* Keep pair i with probability w'/c, and let Y be its G, or ∞ if it is not kept. Given the past, P(Y ≤ x) ≤ F(x)/c, so Y is
at least a Y' that is independent of the past, with P(Y' ≤ x) = F(x)/c; and the deviation D = sup_x (share of Y ≤ x) − F(x)/c is
at most that of the Y', for which P(D > d) ≤ exp(−2nd²) wherever this is below ½. F_c/c is the mean, over what is kept, of the
share of Y ≤ x, so its deviation is Z ≤ E[D | pairs], and E φ(Z²) ≤ E φ(D²) for φ(z) = (z − a)₊, by Jensen. With a = t − 1/(2n)
this gives P(Z² > t) ≤ 2n ∫_a exp(−2ns) ds = e exp(−2nt). The same for S_c, with α/2 each. ∎

The width grows with c. `weighted_grid_band` adapts to the variance of the weights instead: betting bounds at K points, each at
α/(2K), and monotony between them (as in UnO, Chandak et al., 2021). It is tighter where few weights are near c.

All bounds on functionals that do not decrease under stochastic dominance (mean, quantiles, CVaR) hold at once, with the band.
"""

from dataclasses import dataclass
from math import e, inf, log, sqrt

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.bounds.betting import betting_lower_bound
from evarl.errors import InputError
from evarl.stats import inputs
from evarl.stats.distribution import Distribution, cumulative


@dataclass(frozen=True, eq=False)
class Band:
    """Bounds lower[k] ≤ F(x) ≤ upper[k] for points[k] ≤ x < points[k + 1], at once for all x."""

    points: Float[np.ndarray, " K"]
    """Increasing, from the least to the greatest possible value, which may be infinite."""
    lower: Float[np.ndarray, " K"]
    upper: Float[np.ndarray, " K"]
    confidence: float
    method: str
    """"dkw" and "betting" hold for every n, "bootstrap" for large n only."""

    @property
    def worst(self) -> Distribution:
        """The distribution in the band with the least mean, quantiles and CVaR."""
        return Distribution(self.points, self.upper)

    @property
    def best(self) -> Distribution:
        """The distribution in the band with the greatest mean, quantiles and CVaR."""
        return Distribution(self.points, self.lower)

    def mean(self) -> tuple[float, float]:
        """Bounds on the mean."""
        return self.worst.mean, self.best.mean

    def quantile(self, probability: float) -> tuple[float, float]:
        """Bounds on a quantile."""
        return self.worst.quantile(probability), self.best.quantile(probability)

    def cvar(self, share: float) -> tuple[float, float]:
        """Bounds on the mean of the lower tail."""
        return self.worst.cvar(share), self.best.cvar(share)

    def contains(self, truth: Distribution) -> bool:
        """Whether a distribution is in the band, up to rounding.

        >>> dkw_band([0.0, 1.0]).contains(Distribution(np.array([0.5]), np.ones(1)))
        True
        """
        x = np.union1d(self.points, truth.points)
        place = np.searchsorted(self.points, x, side="right")
        lower, upper = (np.concatenate([[0.0], side])[place] for side in (self.lower, self.upper))
        return bool(np.all((lower <= truth.at(x) + 1e-12) & (truth.at(x) <= upper + 1e-12)))


def dkw_band(values: ArrayLike, alpha: float = 0.05, low: float = -inf, high: float = inf) -> Band:
    """The band F̂ ± √(ln(2/α)/(2n)) of independent values [n] of one distribution in [low, high].

    >>> dkw_band([1.0, 2.0], alpha=2 * float(np.exp(-1))).upper
    array([0.5, 1. , 1. , 1. ])
    """
    inputs.check_level("alpha", alpha)
    x = _within(values, low, high)
    return _around(x, np.ones(len(x)), sqrt(log(2 / alpha) / (2 * len(x))), alpha, (low, high))


def weighted_dkw_band(
    values: ArrayLike, weights: ArrayLike, limit: float, alpha: float = 0.05, low: float = -inf, high: float = inf
) -> Band:
    """The weighted band of width ε = c √(ln(2e/α)/(2n)) for values [n] in [low, high] with weights [n], cut at c = `limit`.

    >>> weighted_dkw_band([1.0, 2.0] * 500, [0.5, 1.5] * 500, limit=1.5).lower.round(2)
    array([0.  , 0.18, 0.93, 1.  ])
    """
    x, w = _weighted(values, weights, limit, alpha, (low, high))
    return _around(x, w, limit * sqrt(log(2 * e / alpha) / (2 * len(x))), alpha, (low, high))


def weighted_grid_band(
    values: ArrayLike,
    weights: ArrayLike,
    limit: float,
    grid: ArrayLike,
    alpha: float = 0.05,
    low: float = -inf,
    high: float = inf,
) -> Band:
    """The weighted band from betting bounds at the points of a grid [K], which must be fixed before the values are seen.

    >>> weighted_grid_band([1.0, 2.0] * 500, [0.5, 1.5] * 500, 1.5, [1.0], low=1.0, high=2.0).lower.round(2)
    array([0.23, 1.  ])
    """
    x, w = _weighted(values, weights, limit, alpha, (low, high))
    at = np.unique(inputs.vector("grid", grid, of="points"))
    at = at[(at >= low) & (at < high)]
    if not len(at):
        raise InputError(f"grid: has no point from {low:g} to below {high:g}, the range; must have at least one")
    each = alpha / (2 * len(at))
    below = [betting_lower_bound(np.where(x <= point, w, 0.0), 0.0, limit, each) for point in at]
    above = [betting_lower_bound(np.where(x > point, w, 0.0), 0.0, limit, each) for point in at]
    lower = np.maximum.accumulate(np.minimum(below, 1.0))
    upper = np.minimum.accumulate(1.0 - np.minimum(above, 1.0)[::-1])[::-1]
    # between two points F is at most what it is at the next
    points, lower, upper = np.append(at, high), np.append(lower, 1.0), np.append(upper, [1.0, 1.0])
    if low < at[0]:
        return Band(np.append(low, points), np.append(0.0, lower), upper, 1 - alpha, "betting")
    return Band(points, lower, upper[1:], 1 - alpha, "betting")


def framed(band: Band, low: float, high: float) -> Band:
    """A band whose sides have one entry more than it has points, for what is below the first, completed to [low, high].

    >>> framed(Band(np.array([2.0]), np.array([-0.2, 0.8]), np.array([0.2, 1.2]), 0.95, "dkw"), 0.0, 3.0).points
    array([0., 2., 3.])
    """
    points, lower, upper = band.points, np.clip(band.lower, 0.0, 1.0), np.clip(band.upper, 0.0, 1.0)
    if points[0] < low or points[-1] > high:
        raise InputError(
            f"range: [{low:g}, {high:g}] is not allowed; must contain all values that are possible, "
            f"and so [{points[0]:g}, {points[-1]:g}]"
        )
    if points[0] == low:
        lower, upper = lower[1:], upper[1:]
    else:
        points = np.append(low, points)
    if points[-1] < high:
        points, lower, upper = np.append(points, high), np.append(lower, 1.0), np.append(upper, 1.0)
    ends = np.arange(len(points)) == len(points) - 1
    return Band(points, np.where(ends, 1.0, lower), np.where(ends, 1.0, upper), band.confidence, band.method)


def _around(
    x: Float[np.ndarray, " n"], w: Float[np.ndarray, " n"], reach: float, alpha: float, ends: tuple[float, float]
) -> Band:
    points, summed = cumulative(x, w)
    share = np.append(0.0, summed / len(x))
    return framed(Band(points, share - reach, 1 - (share[-1] - share) + reach, 1 - alpha, "dkw"), *ends)


def _weighted(
    values: ArrayLike, weights: ArrayLike, limit: float, alpha: float, ends: tuple[float, float]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Values, and their weights cut at the limit."""
    inputs.check_level("alpha", alpha)
    if not 1 <= limit < inf:
        raise InputError(
            f"limit: {limit} is not allowed; must be a finite number of at least 1, the mean of all weights"
        )
    x = _within(values, *ends)
    w = inputs.same_length("weights", weights, len(x), of="values")
    if w.min() < 0:
        raise InputError(f"weights: the least is {w.min():g}; must be 0 or more")
    return x, np.minimum(w, limit)


def _within(values: ArrayLike, low: float, high: float) -> Float[np.ndarray, " n"]:
    """A vector of numbers in a range whose ends may be infinite."""
    x = inputs.vector("values", values, of="values")
    if not low < high or x.min() < low or x.max() > high:
        raise InputError(
            f"range: [{low:g}, {high:g}] is not allowed; must contain all values that are possible, "
            f"and so [{x.min():g}, {x.max():g}]"
        )
    return x
