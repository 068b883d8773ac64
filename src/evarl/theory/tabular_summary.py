"""Summary of the tabular study: means, paired differences and how often the proposition holds. NumPy only."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from evarl.stats import standard_error
from evarl.theory.linear import counterexample, printed_bound

TOLERANCE = 1e-6
"""Increases of J or L up to this are attributed to the optimiser; J is between 0 and 10."""

PROCEDURES = {
    "one start": "the policy trained from the first start alone; the paper mentions no others",
    "best of starts": "for each β the policy with the largest J − βL of those trained with this β",
    "common set": "for each β the policy with the largest J − βL of those trained with any β; here the proposition is a "
    "theorem, as an argmax over one finite set",
}
"""How the policy of a trial is selected for each β."""


def summary(
    performance: Float[np.ndarray, "T B R"],
    loss: Float[np.ndarray, "T B R"],
    betas: Sequence[float],
    form: Float[np.ndarray, "S S"],
    start: Float[np.ndarray, " S"],
) -> dict[str, Any]:
    """Summary of J and L, both [trials, betas, restarts], as plain data.

    - `procedures`: the `series` of `J` and `L` for each of PROCEDURES.
    - `gap`: J − βL of the common set minus that of the best of starts: mean and largest, by β. It is what the optimiser is known
      to have missed, without local optima that no β found.
    - `bound`: the counter-example to the printed bound, and the share of all (trial, β) whose policy exceeds it.
    """
    chosen = select(performance, loss, betas)
    at = np.asarray(betas, np.float64)
    reached = {name: J - at * L for name, (J, L) in chosen.items()}
    gap = reached["common set"] - reached["best of starts"]
    J, L = chosen["best of starts"]
    # The tightest bound, with ε the root of the policy's own loss.
    bounds = np.sqrt(np.maximum(L, 0.0)) * printed_bound(form, start, 1.0)
    refuted = bounds + TOLERANCE < J
    example = counterexample(form, start)
    return {
        "betas": [float(beta) for beta in betas],
        "tolerance": TOLERANCE,
        "procedures": {name: {"J": series(J), "L": series(L)} for name, (J, L) in chosen.items()},
        "gap": {"mean": gap.mean(axis=0).tolist(), "largest": gap.max(axis=0).tolist()},
        "bound": {**asdict(example), "slack": example.slack, "share_refuting": float(refuted.mean())},
    }


def select(
    performance: Float[np.ndarray, "T B R"], loss: Float[np.ndarray, "T B R"], betas: Sequence[float]
) -> dict[str, tuple[Float[np.ndarray, "T B"], Float[np.ndarray, "T B"]]]:
    """J and L of the selected policies, for each of PROCEDURES."""
    at = np.asarray(betas, np.float64)[:, None]

    def best(returns: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best candidates of [trials, betas or 1, n] for each β."""
        first = np.argmax(returns - at * losses, axis=2)[..., None]
        shape = (len(returns), len(at), returns.shape[2])
        J, L = (np.take_along_axis(np.broadcast_to(x, shape), first, axis=2)[..., 0] for x in (returns, losses))
        return J, L

    trials = len(performance)
    return {
        "one start": (performance[..., 0], loss[..., 0]),
        "best of starts": best(performance, loss),
        "common set": best(performance.reshape(trials, 1, -1), loss.reshape(trials, 1, -1)),
    }


def series(numbers: Float[np.ndarray, "T B"]) -> dict[str, Any]:
    """Means and standard errors of numbers [trials, betas], and of their decreases in β.

    `step_mean` and `step_se` are of the decreases within a trial from one β to the next, `overall_mean` and `overall_se`
    of those from the first β to the last; `share` is the share of trials that never increase by more than TOLERANCE, and
    `largest_violation` the largest increase in a step of any trial, 0 if there is none.

    >>> found = series(np.array([[3.0, 2.0], [3.0, 4.0], [3.0, 0.0]]))
    >>> found["mean"], found["step_mean"], round(found["share"], 3), found["largest_violation"]
    ([3.0, 2.0], [1.0], 0.667, 1.0)
    """
    decrease = -np.diff(numbers, axis=1)
    overall = numbers[:, 0] - numbers[:, -1]
    return {
        "mean": numbers.mean(axis=0).tolist(),
        "se": [standard_error(column) for column in numbers.T],
        "step_mean": decrease.mean(axis=0).tolist(),
        "step_se": [standard_error(column) for column in decrease.T],
        "overall_mean": float(overall.mean()),
        "overall_se": standard_error(overall),
        "share": float((decrease >= -TOLERANCE).all(axis=1).mean()),
        "largest_violation": float(max(-decrease.min(), 0.0)),
    }
