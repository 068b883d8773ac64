"""Anderson's (1969) bounds on a mean, from a one-sided band around the empirical distribution function.

With probability at least 1 − α, α ≤ ½, F(x) ≤ F̂(x) + ε for all x, ε = √(ln(1/α)/(2n)) (Massart, 1990). Of all distributions
below this, the one with the least mean moves a mass of ε from the greatest values to the least possible one. So with
x₍₁₎ ≤ … ≤ x₍ₙ₎ and low ≤ x,

    ℓ = ε low + Σ_i (min(i/n, 1 − ε) − min((i − 1)/n, 1 − ε)) x₍ᵢ₎

**What it needs.** Independent numbers of one distribution, and `low`. The lower bound needs no upper end of the range, so it
holds for numbers with a heavy tail above, such as weighted returns (Thomas, Theocharous & Ghavamzadeh, 2015), without a number
that must be fixed beforehand. Where the range is known and narrow, or numbers can be cut, `betting_lower_bound` is tighter.
"""

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


def anderson_lower_bound(values: ArrayLike, low: float, alpha: float = 0.05) -> float:
    """The lower bound ℓ with P(mean < ℓ) ≤ α, from independent values [n] of at least `low`.

    >>> anderson_lower_bound([1.0] * 50, 0.0, alpha=float(np.exp(-1)))
    0.9
    >>> anderson_lower_bound([1.0] * 49 + [1e9], 0.0, alpha=float(np.exp(-1)))
    0.9
    """
    inputs.check_level("alpha", alpha, most=0.5)
    x = np.sort(inputs.vector("values", values, of="values"))
    if not np.isfinite(low) or x[0] < low:
        raise InputError(
            f"low: {low:g} is not allowed; must be at most {x[0]:g}, the least value, and known in advance"
        )
    reach = min(1.0, sqrt(log(1 / alpha) / (2 * len(x))))
    kept = np.diff(np.minimum(np.arange(len(x) + 1) / len(x), 1 - reach))
    return float(low + kept @ (x - low))


def anderson_upper_bound(values: ArrayLike, high: float, alpha: float = 0.05) -> float:
    """The upper bound u with P(mean > u) ≤ α, from independent values [n] of at most `high`: minus the lower bound of −X.

    >>> round(anderson_upper_bound([0.0] * 50, 1.0, alpha=float(np.exp(-1))), 9)
    0.1
    """
    return -anderson_lower_bound(-inputs.vector("values", values, of="values"), -high, alpha)
