"""Doubly robust estimation with smaller weights: Switch-DR and DR with optimistic shrinkage.

With the weights w_t = Π_{k≤t} ρ_k, the values q_t and v_t of a model and its residuals δ_t = r_t + γ v_{t+1} − q_t,

    v_0 + Σ_t γ^t ŵ_t δ_t,      ŵ_t = w_t 1{w_t ≤ τ}              Switch-DR (Wang, Agarwal & Dudík, 2017)
                                ŵ_t = λ w_t / (w_t² + λ)          DR with optimistic shrinkage (Su et al., 2020)

Both were published for one step, where w is ρ. Over several steps it is here the weight of the correction at that step, the
product of all ratios so far, that is left out or shrunk: the correction has weights of at most τ, or √λ / 2, at every step.
τ → 0 and λ → 0 give the model alone, τ → ∞ and λ → ∞ give DR. In between the estimate is biased where the model is wrong and
weights are large.

Unless τ or λ is given, it is that of a grid with the least estimated mean squared error: the variance of the mean plus an
unbiased estimate of the square of its bias, from its difference to DR. The standard error does not contain the error of that
choice, nor the bias.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from evarl.ope import importance
from evarl.ope.doubly_robust import ModelValues, residuals
from evarl.ope.importance import Steps
from evarl.ope.log import Estimate, Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.resampling import Summed
from evarl.ope.settings import Settings
from evarl.ope.uncertainty import doubts, intervals_of, tail

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""Quantiles of the weights that are tried as thresholds, beside 0 and ∞."""
LAMBDAS = (0.0, *np.geomspace(1e-2, 1e8, 21).tolist(), np.inf)

LogWeights = Float[np.ndarray, "N T"]


class Shrunk(NamedTuple):
    """An estimate with smaller weights."""

    contribution: Float[np.ndarray, " N"]
    limit: float
    """τ or λ."""
    changed: float
    """Share of the steps whose weight is less than 90 % of what it was."""
    log_weight: Float[np.ndarray, " N"]
    """Of the last step of each trajectory."""


def switched(log_weight: LogWeights, limit: float) -> LogWeights:
    """Logarithms of w 1{w ≤ τ}."""
    with np.errstate(divide="ignore"):
        return np.where(log_weight <= np.log(limit), log_weight, -np.inf)


def optimistic(log_weight: LogWeights, limit: float) -> LogWeights:
    """Logarithms of λ w / (w² + λ), which is w where w² is small against λ.

    >>> np.exp(optimistic(np.log([[1.0, 3.0]]), 3.0)).round(6).tolist()
    [[0.75, 0.75]]
    """
    with np.errstate(divide="ignore"):
        return -np.logaddexp(-log_weight, log_weight - np.log(limit))


def shrunk_contribution(
    steps: Steps, values: ModelValues, shrink: Callable[[LogWeights], LogWeights]
) -> tuple[Float[np.ndarray, " N"], LogWeights]:
    """v_0 + Σ_t γ^t ŵ_t δ_t of each trajectory, and the logarithms of ŵ."""
    weight = shrink(importance.log_weights(steps))
    correction = importance.times_weight(weight, residuals(steps, values)) @ importance.discounts(steps)
    return np.asarray(values.v, np.float64)[:, 0] + correction, weight


def shrink(steps: Steps, values: ModelValues, kind: str, limit: float | None) -> Shrunk:
    """The estimate of one kind, "switch" or "optimistic", with a given limit or that of the least estimated error."""
    raw = importance.log_weights(steps)
    form = switched if kind == "switch" else optimistic
    limits = [limit] if limit is not None else _grid(raw[steps.mask], kind)
    tried = [shrunk_contribution(steps, values, partial(form, limit=one)) for one in limits]
    finite = [i for i, (contribution, _) in enumerate(tried) if np.isfinite(contribution).all()] or [0]
    whole = tried[finite[-1]][0]  # the largest weights that do not overflow
    errors = [_squared_error(tried[i][0], whole) for i in finite]
    best = finite[int(np.argmin(errors))] if len(limits) > 1 else 0
    contribution, weight = tried[best]
    changed = (weight < raw + np.log(0.9)) & steps.mask
    return Shrunk(contribution, float(limits[best]), float(changed.sum() / steps.mask.sum()), weight[:, -1])


def shrunk_doubly_robust(log: Log, policy: TargetPolicy, settings: Settings, kind: str) -> Estimate:
    """Switch-DR or DR with optimistic shrinkage, with cross-fitted Q functions or a model of the user."""
    model, steps = log.cross_fitted(policy, settings), log.steps(policy, settings.clip)
    limit = settings.switch_threshold if kind == "switch" else settings.shrinkage
    found = shrink(steps, model.values, kind, limit)
    overall = importance.summarise(found.contribution, log.uniform, found.log_weight)
    last = Steps(np.zeros((len(found.log_weight), 1)), found.log_weight[:, None], steps.mask[:, :1], 1.0)
    k, notes = tail(last, found.contribution)
    reasons = doubts(last, overall, replace(settings, clip=0.0))  # these weights need not have mean 1
    if not model.honest:
        reasons += ("no standard error and no interval: the model was fitted to the one trajectory that it corrects",)
    summed = None if reasons else Summed.mean(found.contribution)
    intervals, error, more = intervals_of(overall, settings, summed, None, False, None)
    name = "τ" if kind == "switch" else "λ"
    if found.changed > 0:
        notes += (
            f"{name} = {found.limit:.3g} makes the weights of {found.changed:.1%} of the steps smaller, and the estimate biased "
            "where the model is wrong; neither that bias nor the choice is part of the standard error",
        )
    return Estimate(
        value=overall.value,
        state_values=log.state_values(settings.rule, lambda share: float(share @ found.contribution)),
        standard_error=error,
        intervals=intervals,
        effective_sample_size=overall.effective_sample_size,
        largest_weight_share=overall.largest_weight_share,
        pareto_k=k,
        bellman_error=model.bellman_error,
        converged=model.converged,
        warnings=(*model.warnings, *reasons, *notes, *more),
    )


def _squared_error(x: Float[np.ndarray, " N"], whole: Float[np.ndarray, " N"]) -> float:
    """Estimated mean squared error of the mean of x, of which the mean of `whole` has no bias.

    The square of the difference of the means, less its own variance, estimates the square of the bias.
    """
    if len(x) < 2:
        return 0.0
    difference, count = x - whole, len(x)
    bias = difference.mean() ** 2 - difference.var(ddof=1) / count
    return float(x.var(ddof=1) / count + max(bias, 0.0))


def _grid(log_weight: Float[np.ndarray, " K"], kind: str) -> list[float]:
    """Limits in increasing order."""
    if kind != "switch":
        return list(LAMBDAS)
    with np.errstate(over="ignore"):
        return [0.0, *sorted(set(np.exp(np.quantile(log_weight, QUANTILES, method="lower")).tolist())), np.inf]
