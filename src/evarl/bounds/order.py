"""Lower bound on the return of a single new episode, from order statistics.

With residuals e_i = G_i − V̂(s_i) of n calibration rollouts, sorted ascending, and

    k = max{k : P(Binomial(n, α) ≤ k − 1) ≤ δ},   L(s) = V̂(s) + e_(k)

a new episode (s, G) of the same distribution has coverage P(G ≥ L(s)) ≥ 1 − α; δ is the probability, over calibration sets,
that the coverage is below 1 − α. If the margin were above the α-quantile of G − V̂, at most k − 1 of n residuals would be at or
below it.

V̂ can be any function that was fixed before; a good one makes L high. The coverage is an average over start states, not
a statement about each of them. No range is needed. The least n has (1 − α)^n ≤ δ: 59 at α = δ = .05.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from evarl.errors import InputError
from evarl.stats import inputs


@dataclass(frozen=True)
class OrderBound:
    """The bound L(s) = V̂(s) + margin; `index` is the rank of the residual that is the margin."""

    margin: float
    index: int
    rollouts: int
    alpha: float
    delta: float

    def at(self, predictions: ArrayLike) -> Float[np.ndarray, "..."] | float:
        """L at states with these predictions."""
        return np.asarray(predictions, np.float64) + self.margin


def order_bound(returns: ArrayLike, predictions: ArrayLike, alpha: float = 0.05, delta: float = 0.05) -> OrderBound:
    """The bound from returns [n] and predictions [n] at their start states.

    >>> order_bound(range(59), [0.0] * 59)
    OrderBound(margin=0.0, index=1, rollouts=59, alpha=0.05, delta=0.05)
    """
    found = inputs.vector("returns", returns, of="rollouts")
    residuals = np.sort(found - inputs.same_length("predictions", predictions, len(found)))
    k = order_index(len(found), alpha, delta)
    return OrderBound(float(residuals[k - 1]), k, len(found), alpha, delta)


def order_index(rollouts: int, alpha: float = 0.05, delta: float = 0.05) -> int:
    """The rank k of the residual that is the margin, from 1.

    >>> order_index(59), order_index(93), order_index(200)
    (1, 2, 5)
    """
    least = least_rollouts(alpha, delta)
    if rollouts < least:
        raise InputError(
            f"returns: there are {rollouts}; must be at least {least} for alpha {alpha:g} and delta {delta:g}"
        )
    # The distribution function increases, so k is the number of values that are at most δ.
    return int(np.sum(stats.binom.cdf(np.arange(rollouts), rollouts, alpha) <= delta))


def least_rollouts(alpha: float = 0.05, delta: float = 0.05) -> int:
    """The least n with (1 − α)^n ≤ δ.

    >>> least_rollouts(), least_rollouts(0.1, 0.05), least_rollouts(0.5, 0.25)
    (59, 29, 2)
    """
    inputs.check_level("alpha", alpha)
    inputs.check_level("delta", delta)
    guess = max(1, int(np.log(delta) / np.log1p(-alpha)) - 1)
    # The same function as in `order_index`, so that rounding cannot make them disagree.
    return next(n for n in range(guess, guess + 4) if stats.binom.cdf(0, n, alpha) <= delta)
