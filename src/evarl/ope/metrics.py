"""Errors and rank metrics of estimates for several policies, against their true values. NumPy and SciPy only."""

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from evarl import stats
from evarl.errors import InputError
from evarl.stats.inputs import pair


@dataclass(frozen=True)
class PolicyMetrics:
    """Metrics of one estimator's estimates for several policies, against their true values."""

    policies: int
    k: int
    mean_absolute_error: float
    root_mean_squared_error: float
    spearman: float | None
    """Spearman's ρ; None where `stats.spearman` is undefined."""
    kendall: float | None
    """Kendall's τ-b; None where `stats.kendall` is undefined."""
    regret_at_k: float
    mean_maximum_rank_violation: float


def policy_metrics(estimated: ArrayLike, true: ArrayLike, k: int = 1) -> PolicyMetrics:
    """All metrics of estimates [P] against true values [P].

    >>> found = policy_metrics([1.0, 3.0, 2.0], [-3.0, -2.0, -1.0])
    >>> found.regret_at_k, found.spearman, found.mean_absolute_error
    (0.5, 0.5, 4.0)
    """
    estimates, values = _checked(estimated, true)
    difference = estimates - values
    return PolicyMetrics(
        policies=len(values),
        k=k,
        mean_absolute_error=float(np.abs(difference).mean()),
        root_mean_squared_error=float(np.sqrt(np.mean(difference**2))),
        spearman=stats.spearman(estimates, values),
        kendall=stats.kendall(estimates, values),
        regret_at_k=regret_at_k(estimates, values, k),
        mean_maximum_rank_violation=mean_maximum_rank_violation(estimates, values),
    )


def regret_at_k(estimated: ArrayLike, true: ArrayLike, k: int = 1) -> float:
    """Normalised regret of the k policies with the highest estimates: (max V − max V of those) / (max V − min V).

    From 0 to 1 for returns of any sign, and 0 where all true values are equal. With tied estimates it is the expectation over
    breaking ties at random: of t tied policies with values v₁ ≤ … ≤ vₜ, of which r are taken, vᵢ is the best with
    probability C(i − 1, r − 1) / C(t, r).

    >>> regret_at_k([0.3, 0.2, 0.1], [-5.0, -1.0, -3.0])
    1.0
    >>> regret_at_k([0.3, 0.2, 0.1], [-5.0, -1.0, -3.0], k=2)
    0.0
    >>> regret_at_k([0.0, 0.0, 0.0], [-5.0, -1.0, -3.0])
    0.5
    """
    estimates, values = _checked(estimated, true)
    if not 1 <= k <= len(values):
        raise InputError(f"k: {k} is not allowed; must be from 1 to {len(values)}, the number of policies")
    best, worst = values.max(), values.min()
    if best == worst:
        return 0.0
    last = np.sort(estimates)[-k]
    certain, tied = values[estimates > last], np.sort(values[estimates == last])
    taken, total = k - len(certain), comb(len(tied), k - len(certain))
    chance = np.array([comb(i, taken - 1) / total for i in range(len(tied))])
    found = np.maximum(tied, certain.max(initial=worst))
    return min(1.0, float(chance @ (best - found) / (best - worst)))


def mean_maximum_rank_violation(estimated: ArrayLike, true: ArrayLike) -> float:
    """MMRV: mean over i of max over j of |Vᵢ − Vⱼ| · 1[(V̂ᵢ < V̂ⱼ) ≠ (Vᵢ < Vⱼ)], in units of the value; 0 is best.

    From SIMPLER (Li et al., 2024), as in the paper. Their code compares with >, which differs for tied estimates only: a tie
    is counted here against the worse policy of the two, there against the better.

    >>> mean_maximum_rank_violation([1.0, 3.0, 2.0], [0.0, 1.0, 5.0])
    2.6666666666666665
    """
    estimates, values = _checked(estimated, true)
    violated = np.less.outer(estimates, estimates) != np.less.outer(values, values)
    return float((np.abs(np.subtract.outer(values, values)) * violated).max(axis=1).mean())


def _checked(estimated: ArrayLike, true: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both [P] and finite."""
    return pair(("estimated", "true"), estimated, true, of="policies")
