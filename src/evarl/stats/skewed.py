"""Intervals for estimates whose contributions are skewed or have heavy tails."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from evarl.stats import inputs
from evarl.stats.intervals import Interval


def skewness(values: ArrayLike) -> float:
    """The coefficient G₁ = m₃ / m₂^{3/2} of values [n], with m_k = mean (x − x̄)^k; 0 where all are equal.

    >>> round(skewness([0.0, 0.0, 0.0, 1.0]), 4)
    1.1547
    """
    x = inputs.vector("values", values)
    apart = x - x.mean()
    largest = float(np.abs(apart).max())
    if largest <= 1e-12 * float(np.abs(x).max()):
        return 0.0
    apart /= largest
    return float((apart**3).mean() / (apart @ apart / len(x)) ** 1.5)


def variance_freedom(values: ArrayLike) -> float:
    """Degrees of freedom 2 n / (κ − 1) of the variance of values [n], with kurtosis κ = m₄ / m₂²; at most n − 1.

    The variance of s² is (κ − 1) σ⁴ / n, that of a χ² distribution with ν degrees of freedom 2 σ⁴ / ν (Satterthwaite, 1946, An
    approximate distribution of estimates of variance components). For normal values ν = n. A value that is far from all others
    and occurs k times has κ ≈ n / k, so that ν ≈ 2 k. As κ ≥ 1 + G₁², ν is at most 2 n / G₁².

    >>> variance_freedom([0.0, 1.0] * 10), round(variance_freedom([0.0] * 99 + [1.0]), 2)
    (19.0, 2.06)
    """
    x = inputs.vector("values", values, at_least=2)
    apart = x - x.mean()
    largest = float(np.abs(apart).max())
    if largest <= 1e-12 * float(np.abs(x).max()):
        return len(x) - 1.0
    square = (apart / largest) ** 2
    kurtosis = (square**2).mean() / square.mean() ** 2
    return float(min(2 * len(x) / max(kurtosis - 1, 1e-12), len(x) - 1.0))


def skewed_t_interval(
    estimate: float, contributions: ArrayLike, confidence: float = 0.95, freedom: float | None = None
) -> Interval:
    """The t interval of an estimate, whose ends are further away where the contributions [n] are skewed.

    With T = √n (estimate − μ) / s and a = G₁ / √n, g(T) = T + a T² / 3 + a² T³ / 27 + a / 6 has no skewness up to terms in 1/n
    (Hall, 1992, On the removal of skewness by transformation). Of the ends at which |T|, or |g(T)|, is a quantile of Student's
    t, each is the one further away: G₁ is an estimate too, and to move an end inwards by it costs coverage where tails are
    heavy. Degrees of freedom are those of the variance, or `freedom` if that is less.

    >>> found = skewed_t_interval(2.0, [1.0, 3.0], confidence=0.5)
    >>> round(found.low, 6), round(found.high, 6)
    (1.0, 3.0)
    """
    inputs.check_confidence(confidence)
    x = inputs.vector("contributions", contributions, at_least=2)
    error = float(x.std(ddof=1) / len(x) ** 0.5)
    reach = float(stats.t.ppf((1 + confidence) / 2, _freedom(x, freedom)))
    a = skewness(x) / len(x) ** 0.5
    low = estimate - error * max(reach, _unskewed(reach, a))
    high = estimate - error * min(-reach, _unskewed(-reach, a))
    return Interval(float(estimate), float(low), float(high), confidence, "t")


def _freedom(x: Float[np.ndarray, " n"], most: float | None) -> float:
    return max(min(variance_freedom(x), np.inf if most is None else most), 1.0)


def _unskewed(quantile: float, a: float) -> float:
    """The T with g(T) = quantile; g is increasing."""
    if abs(a) < 1e-6:
        return quantile
    return float(3.0 / a * (np.cbrt(1.0 + a * (quantile - a / 6.0)) - 1.0))


def bootstrap_interval(
    estimate: float,
    distribution: ArrayLike,
    contributions: ArrayLike,
    confidence: float = 0.95,
    freedom: float | None = None,
) -> Interval:
    """The interval from a bootstrap distribution [resamples] of an estimate with contributions, or influences, [n].

    Each end is the further one of two:

    - the expanded percentile Φ(±√(1 + 1/ν) t), with t the quantile of Student's t with the ν degrees of freedom of the variance
      (or `freedom` if that is less), since the distribution is too narrow by that factor (Hesterberg, 2015, What teachers should
      know about the bootstrap);
    - the percentile Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z))) that is corrected for bias and skewness (BCa; Efron, 1987), with Φ(z₀)
      the share of the distribution below the estimate (ties count half), and a = G₁ / (6 √n).

    >>> found = bootstrap_interval(0.5, np.linspace(0, 1, 101), np.tile([1.0, 3.0], 5000), confidence=0.5)
    >>> round(found.low, 3), round(found.high, 3)
    (0.25, 0.75)
    """
    inputs.check_confidence(confidence)
    drawn = inputs.vector("distribution", distribution, of="resamples")
    x = inputs.vector("contributions", contributions, at_least=2)
    count = _freedom(x, freedom)
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    expanded = stats.norm.cdf(np.sqrt(1 + 1 / count) * stats.t.ppf(tails, count))
    share, least = ((drawn < estimate).mean() + (drawn <= estimate).mean()) / 2, 0.5 / len(drawn)
    offset = stats.norm.ppf(np.clip(share, least, 1 - least))
    moved = offset + stats.norm.ppf(tails)
    corrected = stats.norm.cdf(offset + moved / np.maximum(1 - skewness(x) / (6 * len(x) ** 0.5) * moved, 1e-3))
    low = np.quantile(drawn, min(expanded[0], corrected[0]))
    high = np.quantile(drawn, max(expanded[1], corrected[1]))
    return Interval(float(estimate), float(low), float(high), confidence, "bootstrap")
