"""C1 where an episode returns one of two values, such as success and failure: the exact bound (Clopper & Pearson, 1934).

With k of n returns equal to `high`, J = low + (high − low) p for the chance p of `high`, and

    ℓ = low + (high − low) Beta⁻¹(α; k, n − k + 1),   ℓ = low where k = 0

The quantile is the p at which P(Binomial(n, p) ≥ k) = α. If J < ℓ, p is below it, and so many successes had probability at most
α; hence P(J < ℓ) ≤ α for every p and every n. On average it is tighter than betting, which allows for all values between.

n has to be fixed beforehand: rollouts that may end for a reason that the returns gave need `sequential_test`. That there are
two values is part of the claim, and has to be known from the rules of the world, not from the returns.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evarl.errors import InputError
from evarl.stats import inputs

ROUNDING = 1e-6
"""How far from its value a return may be, relative to the larger of the two values: some ulps of single precision."""


def two_valued_lower_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The ℓ with P(J < ℓ) ≤ α, from independent returns [n], n fixed beforehand, each of which is `low` or `high`.

    >>> round(two_valued_lower_bound([1.0] * 50, 0.0, 1.0), 4), two_valued_lower_bound([0.0] * 50, 0.0, 1.0)
    (0.9418, 0.0)
    """
    inputs.check_level("alpha", alpha)
    n, k = _counts(returns, low, high)
    chance = float(special.betaincinv(k, n - k + 1, alpha)) if k else 0.0
    return low + (high - low) * chance


def two_valued_upper_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The u with P(J > u) ≤ α: the lower bound of −G, with its sign turned.

    >>> round(two_valued_upper_bound([0.0] * 50, 0.0, 1.0), 4), two_valued_upper_bound([1.0] * 50, 0.0, 1.0)
    (0.0582, 1.0)
    """
    inputs.check_level("alpha", alpha)
    n, k = _counts(returns, low, high)
    chance = float(special.betaincinv(n - k, k + 1, alpha)) if k < n else 0.0
    return high - (high - low) * chance


def _counts(returns: ArrayLike, low: float, high: float) -> tuple[int, int]:
    """How many returns there are, and how many of them are `high`."""
    inputs.check_range(low, high)
    found = inputs.vector("returns", returns, of="rollouts")
    # Returns come in single precision; where the values are close to each other, rounding must not blur them.
    reach = min(ROUNDING * max(abs(low), abs(high)), (high - low) / 1000)
    highs = np.abs(found - high) <= reach
    neither = ~highs & (np.abs(found - low) > reach)
    if neither.any():
        raise InputError(
            f"returns: {found[np.argmax(neither)]:g} is neither {low:g} nor {high:g}; must be one of these two values; use "
            "betting_lower_bound for other returns"
        )
    return len(found), int(highs.sum())
