"""Sequential test of J ≥ threshold: rollouts until certified, rejected or out of budget.

Two e-processes run in parallel, with the bets of `betting` for an unknown n:

    K_t against "J ≤ threshold"    certified   when K_t ≥ 1/α         wrong with probability at most α
    K'_t against "J ≥ threshold"   rejected    when K'_t ≥ 1/α_reject  wrong with probability at most α_reject

K' is K of the mirrored returns, x' = 1 − x and m' = 1 − m. Out of budget means that neither happened; it says
nothing about J. Both levels hold at any stopping time, so the budget may be chosen, changed or exhausted for any reason; but to
restart with other returns and the same α is not valid.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
from jaxtyping import Float

from evarl.bounds import betting
from evarl.errors import InputError
from evarl.stats import inputs

Outcome = Literal["certified", "rejected", "out of budget"]


@dataclass(frozen=True)
class Decision:
    """The outcome of a sequential test, and the number of rollouts."""

    outcome: Outcome
    rollouts: int
    e_certified: float
    """K_t against "J ≤ threshold" at the end of the test."""
    e_rejected: float
    """K'_t against "J ≥ threshold" at the end of the test."""


@dataclass(frozen=True)
class Lanes:
    """Ranges [K] of the streams that are bet on, and their shares [K] of the stake."""

    low: Float[np.ndarray, " K"]
    high: Float[np.ndarray, " K"]
    share: Float[np.ndarray, " K"]


def sequential_test(
    returns: Iterable[float],
    threshold: float,
    low: float,
    high: float,
    alpha: float = 0.05,
    alpha_reject: float = 0.05,
    budget: int | None = None,
    cap: float = betting.CAP,
) -> Decision:
    """Sequential test of J ≥ threshold on returns, of which no more are taken than needed.

    `returns` is an array, or a generator that makes a rollout for each return; without a budget it may be exhausted.

    >>> sequential_test([1.0] * 50, 0.5, 0.0, 1.0).outcome, sequential_test([0.0] * 50, 0.5, 0.0, 1.0).outcome
    ('certified', 'rejected')
    >>> found = sequential_test([0.4, 0.6] * 10, 0.5, 0.0, 1.0, budget=7)
    >>> found.outcome, found.rollouts, round(found.e_certified, 4), round(found.e_rejected, 4)
    ('out of budget', 7, 0.8363, 1.0669)
    """
    inputs.check_range(low, high)
    lanes = Lanes(np.array([low], np.float64), np.array([high], np.float64), np.ones(1))
    rows = (inputs.within("returns", [value], low, high) for value in returns)
    return decide(rows, lanes, betting.check_mean(threshold, low, high), alpha, alpha_reject, budget, cap)


def decide(
    rows: Iterable[Float[np.ndarray, " K"]],
    lanes: Lanes,
    threshold: float,
    alpha: float,
    alpha_reject: float,
    budget: int | None,
    cap: float,
) -> Decision:
    """The sequential test on rows [K] of streams that share the mean J."""
    betting.check(alpha, cap)
    inputs.check_level("alpha_reject", alpha_reject)
    if budget is not None and budget < 1:
        raise InputError(f"budget: {budget} is not allowed; must be at least 1 rollout")
    width = lanes.high - lanes.low
    m = (threshold - lanes.low) / width
    total, squares = np.full(len(m), 0.5), np.full(len(m), 0.25)
    above = below = np.outer([1 - betting.BOLD, betting.BOLD], lanes.share)
    i = 0
    for i, row in enumerate(islice(rows, budget), start=1):
        variance = squares / i  # v_{i−1}: a bet may depend on earlier rows only
        x = np.clip((row - lanes.low) / width, 0, 1)
        above = above * (1 + _bets(i, variance, alpha, cap, m) * (x - m))
        below = below * (1 + _bets(i, variance, alpha_reject, cap, 1 - m) * (m - x))
        total = total + x
        squares = squares + (x - total / (i + 1)) ** 2
        # Streams of a mixture may disagree; if both levels are reached in one step, the policy is not certified.
        if below.sum() >= 1 / alpha_reject:
            return Decision("rejected", i, float(above.sum()), float(below.sum()))
        if above.sum() >= 1 / alpha:
            return Decision("certified", i, float(above.sum()), float(below.sum()))
    return Decision("out of budget", i, float(above.sum()), float(below.sum()))


def _bets(
    i: int, variance: Float[np.ndarray, " K"], alpha: float, cap: float, m: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "2 K"]:
    """The careful and the bold bets against means m."""
    least = np.maximum(m, 1e-300)
    careful = np.minimum(betting.careful_bet(i, variance, alpha), min(cap, betting.CAREFUL_CAP) / least)
    return np.stack([careful, cap / least])
