"""Two-sided confidence intervals and one-sided bounds for a mean of independent numbers.

    t           mean ± t s/√n                                          asymptotic, exact for normal numbers
    percentile  quantiles of a bootstrap distribution                  asymptotic
    hoeffding   mean ± R √(ln(1/a)/(2n))                               holds for every n
    bernstein   mean ± √(2 s² ln(2/a)/n) + 7 R ln(2/a)/(3(n − 1))      holds for every n (Maurer & Pontil, 2009)

with s² the unbiased variance, R = high − low the range and a the error on one side: (1 − confidence)/2 for an interval, α for a
one-sided bound. Hoeffding and Bernstein need a range that is *known* to contain every number that can occur; both are cut to it.

`evarl.bounds` has tighter one-sided bounds for the same assumptions. The t bound is not valid where rare values matter: with 4 %
crashes a sample of 20 has none in it 44 % of the time, and a t bound with nominal coverage of 95 % covers some 60 %.

With `shares` p [n], which sum to 1, the mean is Σ p x and n is 1/Σ p² (Kish); numbers without a share are left out. Equal shares
give what no shares give, up to rounding.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from evarl.errors import InputError
from evarl.stats import inputs


@dataclass(frozen=True)
class Interval:
    """An estimate and an interval that contains the true value with probability `confidence`, if its method is valid."""

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    """"t", "bootstrap", "hoeffding" or "bernstein"."""


def standard_error(scores: ArrayLike) -> float:
    """Standard error of the mean of scores [runs]: s / √n, with s² = Σ (xᵢ − x̄)² / (n − 1).

    >>> standard_error([1.0, 3.0])
    1.0
    """
    runs = inputs.vector("scores", scores, at_least=2)
    return float(runs.std(ddof=1) / len(runs) ** 0.5)


def t_interval(scores: ArrayLike, confidence: float = 0.95, shares: ArrayLike | None = None) -> Interval:
    """Student's t interval for the mean of scores [runs], with n − 1 degrees of freedom.

    >>> found = t_interval([1.0, 3.0], confidence=0.5)
    >>> found.estimate, round(found.low, 6), round(found.high, 6)
    (2.0, 1.0, 3.0)
    """
    inputs.check_confidence(confidence)
    x, p = _shared("scores", scores, shares, at_least=2)
    mean, n = _mean(x, p)
    error = standard_error(x) if p is None else np.sqrt(np.sum((p * (x - mean)) ** 2) * n / (n - 1.0))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * error)
    return Interval(mean, mean - half, mean + half, confidence, "t")


def t_lower_bound(scores: ArrayLike, alpha: float = 0.05) -> float:
    """Student's one-sided bound on the mean; valid for normal scores only.

    >>> round(t_lower_bound([1.0, 2.0, 3.0]), 4)
    0.3141
    """
    inputs.check_level("alpha", alpha, most=0.5)
    return t_interval(scores, 1 - 2 * alpha).low


def percentile_interval(estimate: float, distribution: ArrayLike, confidence: float = 0.95) -> Interval:
    """The interval that leaves out (1 − confidence)/2 of a bootstrap distribution [resamples] on either side.

    >>> percentile_interval(0.5, np.linspace(0, 1, 101), confidence=0.5)
    Interval(estimate=0.5, low=0.25, high=0.75, confidence=0.5, method='bootstrap')
    """
    inputs.check_confidence(confidence)
    values = inputs.vector("distribution", distribution, of="resamples")
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(estimate), float(low), float(high), confidence, "bootstrap")


def hoeffding_interval(
    values: ArrayLike, low: float, high: float, confidence: float = 0.95, shares: ArrayLike | None = None
) -> Interval:
    """Hoeffding's interval for the mean of values [n] in [low, high]; valid for any fixed shares.

    >>> found = hoeffding_interval(np.tile([0.0, 1.0], 500), 0.0, 1.0)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4571, 0.5429)
    """
    inputs.check_confidence(confidence)
    mean, half = _hoeffding(values, low, high, (1.0 - confidence) / 2, shares)
    return Interval(mean, max(low, mean - half), min(high, mean + half), confidence, "hoeffding")


def hoeffding_lower_bound(values: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """Hoeffding's one-sided bound on the mean of values [n] in [low, high].

    >>> round(hoeffding_lower_bound([0.0, 1.0] * 500, 0.0, 1.0), 4)
    0.4613
    """
    inputs.check_level("alpha", alpha)
    mean, half = _hoeffding(values, low, high, alpha)
    return max(low, mean - half)


def bernstein_interval(
    values: ArrayLike, low: float, high: float, confidence: float = 0.95, shares: ArrayLike | None = None
) -> Interval:
    """The empirical Bernstein interval for the mean of values [n] in [low, high]; those with a share must have equal ones.

    >>> found = bernstein_interval(np.tile([0.0, 1.0], 500), 0.0, 1.0)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4429, 0.5571)
    """
    inputs.check_confidence(confidence)
    mean, half = _bernstein(values, low, high, (1.0 - confidence) / 2, shares)
    return Interval(mean, max(low, mean - half), min(high, mean + half), confidence, "bernstein")


def bernstein_lower_bound(values: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The one-sided empirical Bernstein bound on the mean of values [n] in [low, high].

    >>> round(bernstein_lower_bound([0.0, 1.0] * 500, 0.0, 1.0), 4)
    0.4484
    """
    inputs.check_level("alpha", alpha)
    mean, half = _bernstein(values, low, high, alpha)
    return max(low, mean - half)


def _hoeffding(
    values: ArrayLike, low: float, high: float, error: float, shares: ArrayLike | None = None
) -> tuple[float, float]:
    """The mean, and how far the bound is from it."""
    x, p = _shared("values", values, shares)
    mean, n = _mean(inputs.within("values", x, low, high), p)
    return mean, float((high - low) * np.sqrt(np.log(1 / error) / (2 * n)))


def _bernstein(
    values: ArrayLike, low: float, high: float, error: float, shares: ArrayLike | None = None
) -> tuple[float, float]:
    x, p = _shared("values", values, shares, at_least=2)
    if p is not None and not np.allclose(p, 1.0 / len(p), rtol=1e-4):
        raise InputError(f"shares: {p.min():g} to {p.max():g} is not allowed; must be equal for a Bernstein interval")
    mean, n = _mean(inputs.within("values", x, low, high), p)
    doubt = np.log(2 / error)
    return mean, float(np.sqrt(2 * x.var(ddof=1) * doubt / n) + 7 * (high - low) * doubt / (3 * (n - 1)))


def _shared(
    name: str, values: ArrayLike, shares: ArrayLike | None, at_least: int = 1
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"] | None]:
    """The numbers that have a share, and their shares; None where all are equal because none were given."""
    if shares is None:
        return inputs.vector(name, values, at_least), None
    x, p = inputs.pair((name, "shares"), values, shares)
    if (p < 0).any() or not np.isclose(p.sum(), 1.0, rtol=1e-4):
        raise InputError(f"shares: sum to {p.sum():g}, the least is {p.min():g}; must be 0 or more and sum to 1")
    return inputs.vector(name, x[p > 0], at_least), p[p > 0] / p.sum()


def _mean(x: Float[np.ndarray, " n"], p: Float[np.ndarray, " n"] | None) -> tuple[float, float]:
    """The mean, and the number of equal shares that would be as good."""
    return (float(x.mean()), float(len(x))) if p is None else (float(p @ x), float(1.0 / np.sum(p**2)))
