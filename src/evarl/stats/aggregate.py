"""The interquartile mean."""

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
