"""Lower bounds from the rank of a residual: on the return of a new episode, and on J of a new policy.

**A new episode.** With residuals e_i = G_i − V̂(s_i) of n calibration rollouts, sorted ascending, and

    k = max{k : P(Binomial(n, α) ≤ k − 1) ≤ δ},   L(s) = V̂(s) + e_(k)

a new episode (s, G) of the same distribution has coverage P(G ≥ L(s)) ≥ 1 − α; δ is the probability, over calibration sets,
that the coverage is below 1 − α. If the margin were above the α-quantile of G − V̂, at most k − 1 of n residuals would be at or
below it.

V̂ can be any function that was fixed before; a good one makes L high. The coverage is an average over start states, not
a statement about each of them. No range is needed. The least n has (1 − α)^n ≤ δ: 59 at α = δ = .05.

**A new policy**, without a deployment rollout of it. For m policies that were trained independently and in the same way, with
true J_p and predictions Ĵ(Ξ_p) from their assessments,

    e_p = J_p − Ĵ(Ξ_p) sorted ascending,   k = ⌊(m + 1) α⌋,   J_new ≥ Ĵ(Ξ_new) + e_(k)

holds with probability at least 1 − α, if the new policy is exchangeable with the m: e_new is below e_(k) only if it is among
the k least of m + 1, which has probability at most k/(m + 1). The least m is 1/α − 1, 19 at α = .05. The probability is over
calibration and new policy together and not for one particular policy; checkpoints of one run are not independent.

**Lower bounds instead of J_p.** J_p is rarely known. Let ℓ_p be lower bounds, each above its J_p with probability at most β.

* *All by one procedure* (same number of rollouts, same β): consider ℓ_new, made for the new policy in the same way. ℓ_p − Ĵ_p and
  ℓ_new − Ĵ_new are exchangeable, so ℓ_new < Ĵ_new + e_(k) with probability at most k/(m + 1), and J_new < ℓ_new with
  probability at most β. ℓ_new need not be computed. Together the error is at most k/(m + 1) + β: β is paid *once*, not m times.
* *By different procedures*, at levels β_p: some ℓ_p > J_p with probability at most Σ β_p; else e_(k) is at most that of J_p.
  The error is at most k/(m + 1) + Σ β_p.

`alpha` is always the total: k = ⌊(m + 1)(α − cost)⌋. An unbiased estimate instead of J_p has no such guarantee.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import betaincc  # scipy.stats takes as long to import as everything else here

from evarl.errors import InputError
from evarl.stats import inputs


@dataclass(frozen=True)
class RankBound:
    """A prediction plus a margin; `index` is the rank of the residual that is the margin."""

    margin: float
    index: int

    def at(self, predictions: ArrayLike) -> Float[np.ndarray, "..."] | float:
        """The bounds for new episodes or policies with these predictions; each holds with its probability, not all at once."""
        return np.asarray(predictions, np.float64) + self.margin


@dataclass(frozen=True)
class OrderBound(RankBound):
    """The bound L(s) = V̂(s) + margin on the return of a new episode."""

    rollouts: int
    alpha: float
    delta: float


@dataclass(frozen=True)
class ConformalBound(RankBound):
    """The bound J_new ≥ Ĵ(Ξ_new) + margin."""

    policies: int
    alpha: float


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
    return int(np.sum(binomial_cdf(np.arange(rollouts), rollouts, alpha) <= delta))


def binomial_cdf(
    successes: Int[np.ndarray, "..."] | int, trials: int, probability: float
) -> Float[np.ndarray, "..."] | np.floating:
    """P(X ≤ k) of X ~ Binomial(n, p) for k < n, as 1 − I_p(k + 1, n − k)."""
    return betaincc(np.asarray(successes) + 1.0, trials - np.asarray(successes), probability)


def least_rollouts(alpha: float = 0.05, delta: float = 0.05) -> int:
    """The least n with (1 − α)^n ≤ δ.

    >>> least_rollouts(), least_rollouts(0.1, 0.05), least_rollouts(0.5, 0.25)
    (59, 29, 2)
    """
    inputs.check_level("alpha", alpha)
    inputs.check_level("delta", delta)
    guess = max(1, int(np.log(delta) / np.log1p(-alpha)) - 1)
    # The same function as in `order_index`, so that rounding cannot make them disagree.
    return next(n for n in range(guess, guess + 4) if binomial_cdf(0, n, alpha) <= delta)


def conformal_bound(
    values: ArrayLike, predictions: ArrayLike, alpha: float = 0.05, value_error: ArrayLike = 0.0
) -> ConformalBound:
    """The conformal bound from values [m] and predictions [m] of m independently trained policies.

    `value_error` is 0 for true values, one β for lower bounds that were all made in the same way, and β_p [m] otherwise.

    >>> conformal_bound(range(19), [0.0] * 19)
    ConformalBound(margin=0.0, index=1, policies=19, alpha=0.05)
    """
    found = inputs.vector("values", values, of="policies")
    residuals = np.sort(found - inputs.same_length("predictions", predictions, len(found), of="policies"))
    k = conformal_index(len(found), alpha, value_error)
    return ConformalBound(float(residuals[k - 1]), k, len(found), alpha)


def conformal_index(policies: int, alpha: float = 0.05, value_error: ArrayLike = 0.0) -> int:
    """The rank k = ⌊(m + 1)(α − cost)⌋, from 1; levels are taken as decimal numbers.

    >>> conformal_index(19), conformal_index(99, 0.29), conformal_index(24, 0.05, value_error=0.01)
    (1, 29, 1)
    """
    inputs.check_level("alpha", alpha)
    left = written(alpha) - _cost(policies, value_error)
    if left <= 0:
        raise InputError(f"value_error: costs {float(written(alpha) - left):g}; must be less than alpha, {alpha:g}")
    k = floor((policies + 1) * left)
    if k < 1:
        least = least_policies(alpha, float(written(alpha) - left))
        raise InputError(f"values: there are {policies}; must be at least {least} policies for alpha {alpha:g}")
    return k


def least_policies(alpha: float = 0.05, value_error: float = 0.0) -> int:
    """The least m with (m + 1)(α − cost) ≥ 1.

    >>> least_policies(), least_policies(0.05, 0.01)
    (19, 24)
    """
    return ceil(1 / (written(alpha) - written(value_error))) - 1


def _cost(policies: int, value_error: ArrayLike) -> Fraction:
    """The probability that the lower bounds add to the error."""
    errors = inputs.array("value_error", value_error)
    if errors.ndim:
        inputs.same_length("value_error", errors, policies, of="policies")
    if (errors < 0).any() or (errors >= 1).any():
        wrong = errors.max() if (errors >= 1).any() else errors.min()
        raise InputError(f"value_error: {wrong:g} is not allowed; must be 0 or more and below 1")
    return sum((written(float(error)) for error in errors.ravel()), Fraction(0))


def written(number: float) -> Fraction:
    """A level as the decimal number that was written, so that no rank is lost to rounding.

    >>> written(0.05), int(100 * 0.29), int(100 * written(0.29))
    (Fraction(1, 20), 28, 29)
    """
    return Fraction(str(float(number)))
