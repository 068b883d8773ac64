"""What a claim means in words, and the figure of its evidence, for the page. NumPy only."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from evarl.certificates.conclusions import Conclusion, predicted
from evarl.certificates.names import ClaimName
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


MEANINGS: dict[ClaimName, str] = {
    "mean-return": "J is the mean return of an episode, with rewards discounted by {protocol.discount:g} per step. Single "
    "episodes can return less, some of them much less. {least}",
    "single-episode": "There are two levels. α = {protocol.alpha:g} is the share of new episodes that may return less than the "
    "bound, averaged over the start states of deployment; it is not a statement about each start state. "
    "δ = {protocol.delta:g} is the probability that the coverage is below 1 − α. {least}",
    "evaluator-overstatement": "V̂ is the evaluator's prediction from the policy's assessment, and L is lower by a margin. L can "
    "still be too high for some start states, by no more than the stated amount on average over all of them.",
    "evaluator-error": "The error is the difference between the evaluator's predictions and the true values of start states; "
    "the noise of single episodes is not part of it.",
    "new-policy": "This policy was assessed but not deployed. The confidence is over training, calibration and this policy "
    "together, for policies that are trained in the same way.",
    "site-return": "{site} What is bounded is the mean of {protocol.rollouts} episodes there, not their expectation, and single "
    "episodes can return less.",
    "site-value": "{site}",
}


def meaning(protocol: Protocol, seen: Seen) -> str:
    """What the statement of a claim means."""
    returns = seen.get("returns", np.zeros(1))
    least = f"The lowest of the {len(returns):,} observed returns is {returns.min():.4g}."
    return MEANINGS[protocol.claim].format(
        protocol=protocol, least=least, site=_site_meaning(protocol) + _predictor_meaning(protocol)
    )


def _site_meaning(protocol: Protocol) -> str:
    """Over what the confidence of a claim about sites is."""
    drawn = f"drawn in the same way ({', '.join(protocol.contexts)})"
    if protocol.site:
        return (
            f"On this site the policy was tested and not deployed. The confidence is over the {protocol.sites} calibration sites "
            f"and this one together, {drawn}: an average over sites, not a statement about sites with this context. It holds for "
            "each new site, not for several at once, and not for a site that was chosen because of its result."
        )
    if protocol.delta is None:
        return f"The confidence is over the calibration and one new site together, {drawn}: an average over sites."
    return (
        f"There are two levels. α = {protocol.alpha:g} is the share of new sites, {drawn}, that may return less than the bound. "
        f"δ = {protocol.delta:g} is the probability that the calibration is such that more of them do."
    )


def _predictor_meaning(protocol: Protocol) -> str:
    """What the margin is added to, where it is not the predicted value."""
    if protocol.predictor != "quantile":
        return ""
    return (
        " The margin is added to a lower quantile, predicted from the test, of what sites with such a test are worth. The "
        "confidence holds whatever is predicted; a good prediction makes the bound tight where the test is clear."
    )


def returns_picture(protocol: Protocol, conclusion: Conclusion, seen: Seen) -> Picture:
    """Returns of the episodes, and the bounds of J."""
    values = seen["returns"]
    places = {"mean": float(values.mean()), "J is at least": conclusion.bound, "J is at most": conclusion.upper}
    places |= {"threshold": protocol.threshold}
    lines = {name: place for name, place in places.items() if place is not None}
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


def calibration_picture(
    protocol: Protocol, conclusion: Conclusion, seen: Seen, over: str = "policies", column: str = "bounds"
) -> Picture:
    """Residuals of the calibration policies or sites, and the margin."""
    measured = "lower bound on J" if column == "bounds" else "mean return"
    caption = f"Calibration {over}: the {measured} minus the evaluator's {predicted(protocol)}."
    lines = {"margin": conclusion.numbers["margin"]}
    return Picture(seen[column] - seen["predictions"], f"{measured} − {predicted(protocol)}", caption, lines)
