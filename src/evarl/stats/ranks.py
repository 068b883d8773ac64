"""Rank correlations, by SciPy; None where they are undefined.

Both are None for fewer than 3 pairs, where a side is constant up to the precision of float32, and where a number is not finite.
They are rounded to 12 digits, so that the order of summation does not show.

Equivalents: `evarl.evaluation.scores.rank_correlation(a, b)` is `spearman(a, b)` (with NaN it gave NaN the highest rank; now
None), and `spearman` and `kendall` of `evarl.ope.metrics` are these after a check of both sides by `inputs.pair`.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from evarl.errors import InputError


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
    return len(x) >= 3 and all(np.ptp(side) > 1e-6 * max(1.0, float(np.abs(side).max())) for side in (x, y))
