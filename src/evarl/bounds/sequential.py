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


@dataclass(frozen=True)
class StoppingRule:
    """Levels and budget of a sequential test."""

    alpha: float = 0.05
    """Probability of certifying wrongly."""
    alpha_reject: float = 0.05
    """Probability of rejecting wrongly."""
    budget: int | None = None
    """Largest number of rollouts; without it they may be exhausted."""
    cap: float = betting.CAP

    def __post_init__(self) -> None:
        betting.check(self.alpha, self.cap)
        inputs.check_level("alpha_reject", self.alpha_reject)
        if self.budget is not None and self.budget < 1:
            raise InputError(f"budget: {self.budget} is not allowed; must be at least 1 rollout")


@dataclass(frozen=True)
class Decision:
    """The outcome of a sequential test, and the number of rollouts."""

    outcome: Literal["certified", "rejected", "out of budget"]
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


DEFAULT = StoppingRule()


def sequential_test(
    returns: Iterable[float], threshold: float, low: float, high: float, rule: StoppingRule = DEFAULT
) -> Decision:
    """Sequential test of J ≥ threshold on returns, of which no more are taken than needed.

    `returns` is an array, or a generator that makes a rollout for each return.

    >>> sequential_test([1.0] * 50, 0.5, 0.0, 1.0).outcome, sequential_test([0.0] * 50, 0.5, 0.0, 1.0).outcome
    ('certified', 'rejected')
    >>> found = sequential_test([0.4, 0.6] * 10, 0.5, 0.0, 1.0, StoppingRule(budget=7))
    >>> found.outcome, found.rollouts, round(found.e_certified, 4), round(found.e_rejected, 4)
    ('out of budget', 7, 0.8363, 1.0669)
    """
    lanes = Lanes(np.array([low], np.float64), np.array([high], np.float64), np.ones(1))
    rows = (inputs.within("returns", [value], low, high) for value in returns)
    return decide(rows, lanes, betting.check_mean(threshold, low, high), rule)


def decide(rows: Iterable[Float[np.ndarray, " K"]], lanes: Lanes, threshold: float, rule: StoppingRule) -> Decision:
    """The sequential test on rows [K] of streams that share the mean J."""
    width = lanes.high - lanes.low
    m = (threshold - lanes.low) / width
    total, squares = np.full(len(m), 0.5), np.full(len(m), 0.25)
    above = below = np.outer([1 - betting.BOLD, betting.BOLD], lanes.share)
    i = 0
    for i, row in enumerate(islice(rows, rule.budget), start=1):
        variance = squares / i  # v_{i−1}: a bet may depend on earlier rows only
        x = np.clip((row - lanes.low) / width, 0, 1)
        above = above * (1 + _bets(i, variance, rule.alpha, rule.cap, m) * (x - m))
        below = below * (1 + _bets(i, variance, rule.alpha_reject, rule.cap, 1 - m) * (m - x))
        total = total + x
        squares = squares + (x - total / (i + 1)) ** 2
        # Streams of a mixture may disagree; if both levels are reached in one step, the policy is not certified.
        if below.sum() >= 1 / rule.alpha_reject:
            return Decision("rejected", i, float(above.sum()), float(below.sum()))
        if above.sum() >= 1 / rule.alpha:
            return Decision("certified", i, float(above.sum()), float(below.sum()))
    return Decision("out of budget", i, float(above.sum()), float(below.sum()))


def _bets(
    i: int, variance: Float[np.ndarray, " K"], alpha: float, cap: float, m: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "2 K"]:
    """The careful and the bold bets against means m."""
    least = np.maximum(m, 1e-300)
    careful = np.minimum(betting.careful_bet(i, variance, alpha), min(cap, betting.CAREFUL_CAP) / least)
    return np.stack([careful, cap / least])
