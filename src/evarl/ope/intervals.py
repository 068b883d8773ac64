"""Two-sided confidence intervals: each side may be missed with probability (1 − confidence)/2.

    percentile   quantiles of a bootstrapped statistic: `importance.resampled_shares`, then one of the `resampled_` functions,
                 which compute denominators anew. Asymptotic.
    student_t    mean ± t s/√n. Asymptotic unless contributions are normal.
    bernstein    mean ± √(2 s² ln(4/δ)/n) + 7 R ln(4/δ)/(3(n − 1)), Maurer & Pontil (2009). Holds for every n.
    hoeffding    mean ± R √(ln(2/δ)/(2n)). Holds for every n.

with δ = 1 − confidence, R = high − low and s² the unbiased variance. The last two need a range that is *known* to contain the
contributions, also those not seen: for trajectory-wise importance sampling the range of returns times the largest possible
weight, with 0. Both are then cut to that range. What they promise is for means of independent contributions; those of
self-normalised forms are linearisations, for which they are as asymptotic as the t interval.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from evarl.errors import InputError

Numbers = Float[np.ndarray | Array, " N"]


@dataclass(frozen=True)
class Interval:
    """Contains the value with the probability `confidence`, as far as its method is right."""

    low: float
    high: float
    confidence: float
    method: str


def percentile(statistics: Numbers, confidence: float = 0.95) -> Interval:
    """From the values of a statistic on bootstrap samples.

    >>> percentile(np.arange(101.0), 0.5)
    Interval(low=25.0, high=75.0, confidence=0.5, method='bootstrap')
    """
    values = _finite("statistics", statistics)
    _check_confidence(confidence)
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high), confidence, "bootstrap")


def student_t(contribution: Numbers, confidence: float = 0.95, share: Numbers | None = None) -> Interval:
    """For the mean with these shares (equal unless given), as many degrees of freedom as 1/Σ p² − 1.

    >>> interval = student_t(np.array([1.0, 2.0, 3.0]), 0.9)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.3141, 3.6859)
    """
    x, p, count = _sample(contribution, share, confidence, least=2)
    mean = p @ x
    error = np.sqrt(np.sum((p * (x - mean)) ** 2) * count / (count - 1.0))
    reach = stats.t.ppf((1 + confidence) / 2, count - 1.0) * error
    return Interval(float(mean - reach), float(mean + reach), confidence, "t")


def bernstein(
    contribution: Numbers, low: float, high: float, confidence: float = 0.95, share: Numbers | None = None
) -> Interval:
    """Empirical Bernstein; trajectories that have a share must have equal ones.

    >>> interval = bernstein(np.tile([0.0, 1.0], 500), 0.0, 1.0)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4429, 0.5571)
    """
    x, p, count = _sample(contribution, share, confidence, least=2)
    if not np.allclose(p, 1.0 / len(p), rtol=1e-4):
        raise InputError(f"share: goes from {p.min():g} to {p.max():g}; want equal shares for a Bernstein interval")
    _check_range(x, low, high)
    doubt = np.log(4.0 / (1.0 - confidence))
    reach = np.sqrt(2.0 * np.var(x, ddof=1) * doubt / count) + 7.0 * (high - low) * doubt / (3.0 * (count - 1.0))
    return _within(float(p @ x), float(reach), low, high, confidence, "bernstein")


def hoeffding(
    contribution: Numbers, low: float, high: float, confidence: float = 0.95, share: Numbers | None = None
) -> Interval:
    """Holds for any fixed shares, with n = 1/Σ p².

    >>> interval = hoeffding(np.tile([0.0, 1.0], 500), 0.0, 1.0)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4571, 0.5429)
    """
    x, p, count = _sample(contribution, share, confidence, least=1)
    _check_range(x, low, high)
    reach = (high - low) * np.sqrt(np.log(2.0 / (1.0 - confidence)) / (2.0 * count))
    return _within(float(p @ x), float(reach), low, high, confidence, "hoeffding")


def _within(mean: float, reach: float, low: float, high: float, confidence: float, method: str) -> Interval:
    return Interval(max(low, mean - reach), min(high, mean + reach), confidence, method)


def _sample(
    contribution: Numbers, share: Numbers | None, confidence: float, least: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Contributions that have a share, their shares, and how many equal ones would be as good."""
    _check_confidence(confidence)
    x = _finite("contribution", contribution)
    p = np.full(len(x), 1.0 / len(x)) if share is None else _finite("share", share)
    if p.shape != x.shape or (p < 0).any() or not np.isclose(p.sum(), 1.0, rtol=1e-4):
        raise InputError(f"share: {len(p)} shares that sum to {p.sum():g}; want {len(x)}, none negative, that sum to 1")
    x, p = x[p > 0], p[p > 0] / p.sum()
    if len(x) < least:
        raise InputError(f"contribution: there are {len(x)}; want at least {least}")
    return x, p, float(1.0 / np.sum(p**2))


def _finite(name: str, values: Numbers) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise InputError(f"{name}: has shape {array.shape}; want [N], N at least 1")
    if not np.isfinite(array).all():
        place = int(np.argmax(~np.isfinite(array)))
        raise InputError(f"{name}: is {array[place]} at {place}; want finite numbers")
    return array


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence: {confidence} is not allowed; want a number between 0 and 1, such as 0.95")


def _check_range(x: np.ndarray, low: float, high: float) -> None:
    outside = (x < low) | (x > high)
    if outside.any():
        value = x[np.argmax(outside)]
        raise InputError(
            f"range: {value:g} is outside [{low:g}, {high:g}]; want a range that contains all contributions"
        )
