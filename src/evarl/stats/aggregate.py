"""One number for many runs, and how sure it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from evarl.errors import InputError
from evarl.stats import inputs


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that is meant to hold the true value with probability `confidence`."""

    estimate: float
    low: float
    high: float
    confidence: float


def iqm(scores: ArrayLike, axis: int | tuple[int, ...] | None = None) -> float | np.ndarray:
    """Interquartile mean: of n scores x₍₁₎ ≤ … ≤ x₍ₙ₎, the mean of x₍g₊₁₎ … x₍ₙ₋g₎ with g = ⌊n/4⌋.

    It is SciPy's `trim_mean` with a quarter cut from either side, as in rliable. Where n is no multiple of 4, g is rounded
    down and more than the middle half is averaged: all of 3 scores, 3 of 5, 5 of 7. Without an axis all scores are
    pooled; with one, or several, those are reduced.

    >>> iqm([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    3.5
    >>> iqm([[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [90.0, 40.0]], axis=0)
    array([ 1.5, 25. ])
    """
    found = inputs.array("scores", scores)
    if not found.size:
        raise InputError(f"scores: has shape {found.shape}; want at least 1 score")
    if axis is None:
        return float(stats.trim_mean(found, 0.25, axis=None))
    axes = axis if isinstance(axis, tuple) else (axis,)
    last = np.moveaxis(found, axes, range(-len(axes), 0))
    return np.asarray(stats.trim_mean(last.reshape(*last.shape[: last.ndim - len(axes)], -1), 0.25, axis=-1))


def standard_error(scores: ArrayLike) -> float:
    """Of the mean of scores [runs]: s / √n, with s² = Σ (xᵢ − x̄)² / (n − 1).

    >>> standard_error([1.0, 3.0])
    1.0
    """
    runs = inputs.vector("scores", scores, at_least=2)
    return float(runs.std(ddof=1) / len(runs) ** 0.5)


def t_interval(scores: ArrayLike, confidence: float = 0.95) -> Interval:
    """Student's interval for the mean of scores [runs]: x̄ ± t · s / √n, t the (1 + confidence) / 2 quantile for n − 1.

    It covers as it says for normal scores, however few there are.

    >>> found = t_interval([1.0, 3.0], confidence=0.5)
    >>> found.estimate, round(found.low, 6), round(found.high, 6)
    (2.0, 1.0, 3.0)
    """
    inputs.check_confidence(confidence)
    runs = inputs.vector("scores", scores, at_least=2)
    mean = float(runs.mean())
    half = float(stats.t.ppf((1 + confidence) / 2, len(runs) - 1)) * standard_error(runs)
    return Interval(mean, mean - half, mean + half, confidence)
