"""Bounds on the average overstatement and on the root mean squared error of an evaluator.

**Overstatement.** For L(s) = V̂(s) − λ, E[(L(s) − V(s))₊] is at most ε. V(s) is never observed, but (L − ·)₊
is convex, so by Jensen

    E[(L(s) − V(s))₊] ≤ E[(L(s) − G)₊]

and the right side is the mean of observed losses, in [0, d − λ − low] for V̂ clipped into [c, d]. For each λ of a grid
"the mean loss is ε or more" is tested by betting at level α, from the largest λ downwards, until a test fails; the last λ that
passed is returned. Each test has the full α. Losses do not increase in λ, so neither does their mean; to return a λ with
too great a mean, the test of the largest such λ, which is one hypothesis, would have to have passed wrongly.

**Error.** The evaluator's root mean squared error √E[(V − V̂)²] is at most ε. With two independent rollouts from each state,

    E[(G − V̂)(G' − V̂) | s] = (V(s) − V̂(s))²

so that the noise of returns is not part of the error. The upper bound on the mean of products is by betting; products lie in
[−max_v (v − low)(high − v), max_v max((v − low)², (high − v)²)] with v in [c, d].

Both are about V̂ *clipped* into [c, d], a part of the range of returns; clipping into that range never moves V̂ away from V.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.bounds import betting
from evarl.bounds.betting import Range
from evarl.errors import InputError
from evarl.stats import inputs

STEPS = 100
"""Number of steps of the default grid of λ."""


@dataclass(frozen=True)
class RiskControl:
    """The bound L(s) = clipped V̂(s) − margin."""

    margin: float | None
    """λ; None if not even the largest of the grid passed."""
    bound: float | None
    """Upper bound at level α on the mean loss at this λ, at most ε."""
    epsilon: float
    alpha: float
    value_low: float
    value_high: float

    def at(self, predictions: ArrayLike) -> Float[np.ndarray, "..."] | float:
        """L at states with these predictions."""
        if self.margin is None:
            raise InputError(
                "margin: no λ of the grid passed; use more rollouts, a larger epsilon or a grid with larger λ"
            )
        return np.clip(np.asarray(predictions, np.float64), self.value_low, self.value_high) - self.margin


def risk_control(
    returns: ArrayLike,
    predictions: ArrayLike,
    limits: Range,
    epsilon: float,
    alpha: float = 0.05,
    *,
    grid: ArrayLike | None = None,
    cap: float = betting.CAP,
) -> RiskControl:
    """The smallest λ of the grid whose mean loss is certified to be at most ε, from returns [n] and predictions [n].

    The grid has to be fixed beforehand; without one it is 0 to d − low in 100 steps, whose last has no loss at all.

    >>> risk_control([0.5] * 200, [0.5] * 200, Range(0.0, 1.0), epsilon=0.1).margin
    0.0
    >>> risk_control([0.5] * 200, [0.9] * 200, Range(0.0, 1.0), epsilon=0.1).margin
    0.31
    """
    betting.check(alpha, cap)
    low, (c, d) = limits.low, limits.values
    found = inputs.within("returns", returns, low, limits.high)
    values = np.clip(inputs.same_length("predictions", predictions, len(found)), c, d)
    if not epsilon > 0:
        raise InputError(f"epsilon: {epsilon:g} is not allowed; must be a number above 0")
    margins = np.linspace(0, d - low, STEPS + 1) if grid is None else _margins(grid)
    losses = np.maximum(values - margins[:, None] - found, 0)
    most = np.maximum(d - margins - low, 0)
    chosen = None
    for k in reversed(range(len(margins))):
        if not _mean_below(losses[k], most[k], epsilon, alpha, cap):
            break
        chosen = k
    if chosen is None:
        return RiskControl(None, None, epsilon, alpha, c, d)
    bound = betting.betting_upper_bound(losses[chosen], 0.0, most[chosen], alpha, cap=cap) if most[chosen] > 0 else 0.0
    return RiskControl(float(margins[chosen]), min(bound, epsilon), epsilon, alpha, c, d)


def rmse_upper_bound(
    returns: ArrayLike,
    other_returns: ArrayLike,
    predictions: ArrayLike,
    limits: Range,
    alpha: float = 0.05,
    *,
    cap: float = betting.CAP,
) -> float:
    """The upper bound u with P(RMSE > u) ≤ α, from two independent returns [n] and a prediction [n] at each of n states.

    RMSE ≤ ε is certified if u ≤ ε. The states must be drawn from the distribution that the claim is about.

    >>> round(rmse_upper_bound([0.7] * 200, [0.7] * 200, [0.5] * 200, Range(0.0, 1.0)), 4)
    0.2366
    """
    betting.check(alpha, cap)
    low, high, (c, d) = limits.low, limits.high, limits.values
    first = inputs.within("returns", returns, low, high)
    second = inputs.within("other_returns", inputs.same_length("other_returns", other_returns, len(first)), low, high)
    values = np.clip(inputs.same_length("predictions", predictions, len(first)), c, d)
    middle = float(np.clip((low + high) / 2, c, d))
    least, most = -(middle - low) * (high - middle), max((d - low) ** 2, (high - c) ** 2)
    products = np.clip((first - values) * (second - values), least, most)  # rounding may leave the range
    return float(np.sqrt(max(0.0, betting.betting_upper_bound(products, least, most, alpha, cap=cap))))


def _mean_below(losses: Float[np.ndarray, " n"], most: float, epsilon: float, alpha: float, cap: float) -> bool:
    """Whether the hypothesis that the mean is ε or more is rejected, for losses [n] in [0, most]."""
    if most <= epsilon:
        return True
    logs = betting.hedged(1 - np.clip(losses / most, 0, 1), alpha, cap)(1 - epsilon / most)
    return bool(logs.max() >= np.log(1 / alpha))


def _margins(grid: ArrayLike) -> Float[np.ndarray, " K"]:
    margins = inputs.vector("grid", grid, of="values of λ")
    if margins[0] < 0 or (np.diff(margins) <= 0).any():
        raise InputError(f"grid: goes from {margins[0]:g} to {margins[-1]:g}; must be increasing and not negative")
    return margins
