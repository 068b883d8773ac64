"""Exact bounds on J where every return is one of two values, such as success and failure (Clopper & Pearson, 1934).

With k of n returns equal to `high`, J = low + (high − low) p for the probability p of `high`, and

    ℓ = low + (high − low) Beta⁻¹(α; k, n − k + 1),   ℓ = low where k = 0

The quantile is the p at which P(Binomial(n, p) ≥ k) = α. If J < ℓ, p is below it, and so many successes had probability at most
α; hence P(J < ℓ) ≤ α for every p and every n. On average it is tighter than betting, which allows for all values in between.

n must be fixed in advance; for stopping rules that depend on the returns there is `sequential_test`. That there are two values
is an assumption, which must follow from the rules of the world and not from the returns.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evarl.errors import InputError
from evarl.stats import inputs

ROUNDING = 1e-6
"""Tolerance relative to the larger of the two values: a few ulps of single precision."""


def two_valued_lower_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The lower bound ℓ with P(J < ℓ) ≤ α, from independent returns [n], each `low` or `high`, with n fixed in advance.

    >>> round(two_valued_lower_bound([1.0] * 50, 0.0, 1.0), 4), two_valued_lower_bound([0.0] * 50, 0.0, 1.0)
    (0.9418, 0.0)
    """
    inputs.check_level("alpha", alpha)
    n, k = _counts(returns, low, high)
    probability = float(special.betaincinv(k, n - k + 1, alpha)) if k else 0.0
    return low + (high - low) * probability


def two_valued_upper_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The upper bound u with P(J > u) ≤ α.

    >>> round(two_valued_upper_bound([0.0] * 50, 0.0, 1.0), 4), two_valued_upper_bound([1.0] * 50, 0.0, 1.0)
    (0.0582, 1.0)
    """
    inputs.check_level("alpha", alpha)
    n, k = _counts(returns, low, high)
    probability = float(special.betaincinv(n - k, k + 1, alpha)) if k < n else 0.0
    return high - (high - low) * probability


def _counts(returns: ArrayLike, low: float, high: float) -> tuple[int, int]:
    """The number of returns, and the number of those that are `high`."""
    inputs.check_range(low, high)
    found = inputs.vector("returns", returns, of="rollouts")
    # Returns are in single precision; the tolerance must stay below the distance of the two values.
    reach = min(ROUNDING * max(abs(low), abs(high)), (high - low) / 1000)
    highs = np.abs(found - high) <= reach
    neither = ~highs & (np.abs(found - low) > reach)
    if neither.any():
        raise InputError(
            f"returns: {found[np.argmax(neither)]:g} is neither {low:g} nor {high:g}; must be one of these two values; use "
            "betting_lower_bound for other returns"
        )
    return len(found), int(highs.sum())
