"""Ratios of averages over runs."""

import numpy as np
from numpy.typing import ArrayLike

from evarl.stats import inputs


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
