"""What a claim means in words, and the figure of its evidence, for the page. NumPy only."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from evarl.certificates.conclusions import Conclusion
from evarl.certificates.protocol import Protocol

Seen = dict[str, Float[np.ndarray, " n"]]
"""The evidence, as arrays."""


@dataclass(frozen=True)
class Picture:
    """A histogram with vertical lines."""

    values: Float[np.ndarray, " n"]
    label: str
    """Of the horizontal axis."""
    caption: str
    lines: dict[str, float] = field(default_factory=dict)
    """Places of the lines by name."""
    range: tuple[float, float] | None = None
    """The range of possible returns, drawn in a second panel."""


def mean_return(protocol: Protocol, seen: Seen) -> str:
    """What a bound on J means."""
    return (
        f"J is the mean return of an episode, with rewards discounted by {protocol.discount:g} per step. Single episodes can "
        f"return less, some of them much less.{_least(seen)}"
    )


def single_episode(protocol: Protocol, seen: Seen) -> str:
    """What a bound on single episodes means."""
    return (
        f"There are two levels. α = {protocol.alpha:g} is the share of new episodes that may return less than the bound, "
        "averaged over the start states of deployment; it is not a statement about each start state. "
        f"δ = {protocol.delta or 0:g} is the probability that the coverage is below 1 − α.{_least(seen)}"
    )


def evaluator_overstatement(protocol: Protocol, seen: Seen) -> str:
    """What a bound on the overstatement means."""
    return (
        "V̂ is the evaluator's prediction from the policy's assessment, and L is lower by a margin. L can still be too high for "
        "some start states, by no more than the stated amount on average over all of them."
    )


def evaluator_error(protocol: Protocol, seen: Seen) -> str:
    """What a bound on the evaluator's error means."""
    return (
        "The error is the difference between the evaluator's predictions and the true values of start states; the noise of "
        "single episodes is not part of it."
    )


def new_policy(protocol: Protocol, seen: Seen) -> str:
    """What a bound without deployment means."""
    return (
        "This policy was assessed but not deployed. The confidence is over training, calibration and this policy together, for "
        "policies that are trained in the same way."
    )


def returns_picture(protocol: Protocol, conclusion: Conclusion, seen: Seen) -> Picture:
    """Returns of the episodes, and the bounds of J."""
    values, upper = seen["returns"], conclusion.upper
    lines = {"mean": float(values.mean())}
    lines |= {} if conclusion.bound is None else {"J is at least": conclusion.bound}
    lines |= {} if upper is None else {"J is at most": upper}
    lines |= {} if protocol.threshold is None else {"threshold": protocol.threshold}
    caption = (
        "Returns of the episodes and bounds on their mean J. Below: the same within the range of possible returns."
    )
    return Picture(values, "discounted return of an episode", caption, lines, protocol.range)


def residuals_picture(protocol: Protocol, conclusion: Conclusion, seen: Seen, sign: int = 1) -> Picture:
    """Residuals of the predictions, and the margin; `sign` is −1 for a margin that is subtracted."""
    caption = "Episodes: the return minus the evaluator's prediction."
    lines = {} if conclusion.bound is None else {"margin": sign * conclusion.bound}
    return Picture(seen["returns"] - seen["values"], "return − prediction V̂(s)", caption, lines)


def evaluator_error_picture(protocol: Protocol, conclusion: Conclusion, seen: Seen) -> Picture:
    """Residuals of the predictions from the mean of two returns."""
    caption = (
        "Start states: the mean of two returns minus the prediction. The noise of returns is part of this figure, and not of "
        "the bound."
    )
    values = (seen["returns"] + seen["others"]) / 2 - seen["values"]
    return Picture(values, "mean of two returns − V̂(s)", caption)


def new_policy_picture(protocol: Protocol, conclusion: Conclusion, seen: Seen) -> Picture:
    """Residuals of the calibration policies, and the margin."""
    caption = "Calibration policies: the lower bound on J minus the evaluator's prediction."
    lines = {"margin": conclusion.numbers["margin"]}
    return Picture(seen["bounds"] - seen["predictions"], "lower bound on J − prediction", caption, lines)


def _least(seen: Seen) -> str:
    returns = seen["returns"]
    return f" The lowest of the {len(returns):,} observed returns is {returns.min():.4g}."
