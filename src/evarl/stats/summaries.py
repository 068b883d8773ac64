"""The interquartile mean, ratios of means, and rank correlations.

Rank correlations are SciPy's, and None where they are undefined: for fewer than 3 pairs, where a side is constant up to the
precision of float32 (relative to its largest number), and where a number is not finite. They are rounded to 12 digits, so that
the order of summation does not show.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from evarl.errors import InputError
from evarl.stats import inputs


def iqm(scores: ArrayLike, axis: int | tuple[int, ...] | None = None) -> float | Float[np.ndarray, "..."]:
    """Interquartile mean: of n scores x₍₁₎ ≤ … ≤ x₍ₙ₎, the mean of x₍g₊₁₎ … x₍ₙ₋g₎ with g = ⌊n/4⌋.

    It is SciPy's `trim_mean` with a quarter cut from either side, as in rliable. Where n is not a multiple of 4, g is rounded
    down and more than the middle half is averaged: all of 3 scores, 3 of 5, 5 of 7. All scores are pooled unless axes are
    given.

    >>> iqm([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    3.5
    >>> iqm([[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [90.0, 40.0]], axis=0)
    array([ 1.5, 25. ])
    """
    found = inputs.array("scores", scores)
    if not found.size:
        raise InputError(f"scores: has shape {found.shape}; must have at least 1 score")
    if axis is None:
        return float(stats.trim_mean(found, 0.25, axis=None))
    axes = axis if isinstance(axis, tuple) else (axis,)
    last = np.moveaxis(found, axes, range(-len(axes), 0))
    return np.asarray(stats.trim_mean(last.reshape(*last.shape[: last.ndim - len(axes)], -1), 0.25, axis=-1))


def ratio_of_means(x: ArrayLike, y: ArrayLike) -> tuple[float, float | None]:
    """The mean of x [runs] over the mean of y [runs], where run i of both had the same seed, and its standard error.

    Ratios are taken of averages and never averaged: a single ratio has no finite variance where its divisor may be near 0.
    The standard error is the jackknife's, √((n − 1)/n Σ (rᵢ − r̄)²) with rᵢ the ratio without run i; None for one run, and
    where leaving a run out makes the divisor change its sign or vanish.

    >>> ratio, error = ratio_of_means([2.0, 4.0], [1.0, 3.0])
    >>> ratio, round(error, 6)
    (1.5, 0.333333)
    """
    above, below = inputs.pair(("x", "y"), x, y, at_least=1)
    total = below.sum()
    mean, rest = float(above.sum() / total), total - below
    if len(above) < 2 or (rest * np.sign(total)).min() <= 0:
        return mean, None
    left_out = (above.sum() - above) / rest
    return mean, float(np.sqrt((len(above) - 1) * left_out.var()))


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's ρ: the correlation of ranks, where equal values share the mean of their ranks.

    >>> spearman([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 8.0])
    0.8
    """
    return round(float(stats.spearmanr(a, b).statistic), 12) if _ordered(a, b) else None


def kendall(a: ArrayLike, b: ArrayLike) -> float | None:
    """Kendall's τ-b: (C − D) / √((C + D + A)(C + D + B)).

    C pairs are in the same order on both sides, D in opposite order, A are tied only in a and B only in b.

    >>> kendall([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 8.0])
    0.666666666667
    """
    return round(float(stats.kendalltau(a, b, variant="b").statistic), 12) if _ordered(a, b) else None


def _ordered(a: ArrayLike, b: ArrayLike) -> bool:
    """Whether both sides have an order."""
    x, y = np.asarray(a), np.asarray(b)
    if x.ndim != 1 or x.shape != y.shape:
        raise InputError(f"b: has shape {y.shape}; must be {x.shape[:1]}, that of a")
    return len(x) >= 3 and all(np.ptp(side) > 1e-6 * float(np.abs(side).max()) for side in (x, y))
