"""The built-in estimators: functions of a log, a policy and settings."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from evarl.ope import doubly_robust as corrected, importance
from evarl.ope.cross_fitting import CrossFitted
from evarl.ope.importance import Steps, WeightedEstimate
from evarl.ope.log import Estimate, Log, generator
from evarl.ope.policy import TargetPolicy
from evarl.ope.resampling import Summed
from evarl.ope.settings import Settings
from evarl.ope.uncertainty import doubts, intervals_of, tail

NO_ERROR = (
    "no standard error and no interval: the error of the model and of the mixing weights is not known; use wdr or dr"
)


class Weighted(NamedTuple):
    """A method that weights trajectories, applied to one log: values as functions of the trajectories' shares."""

    steps: Steps
    overall: WeightedEstimate
    """For uniform shares."""
    with_share: Callable[[Float[np.ndarray, " N"]], float]
    """The value for other shares."""
    summed: Callable[[], Summed]
    """For bootstrap samples."""
    self_normalised: bool
    unbiased: bool = False
    """Whether it is a mean of contributions that are independent (within folds) and have mean J, so that Hoeffding and
    Bernstein intervals are valid."""
    model: CrossFitted | None = None


def importance_sampling(
    log: Log, policy: TargetPolicy, settings: Settings, per_decision: bool = False, self_normalised: bool = False
) -> Estimate:
    """Importance sampling, trajectory-wise (TIS, or WIS if self-normalised) or per decision (PDIS or WPDIS).

    Trajectories that were cut go on with the value of a model, if the settings allow it.
    """
    steps, model = log.steps(policy, settings.clip), None
    if log.data.cut.any():
        model = log.cross_fitted(policy, settings)
        steps = _continued(steps, model)
    form = importance.per_decision if per_decision else importance.trajectory_wise
    again = importance.summed_per_decision if per_decision else importance.summed_trajectory_wise
    overall = form(steps, log.uniform, self_normalised=self_normalised)

    def with_share(share: Float[np.ndarray, " N"]) -> float:
        return (
            form(steps, share, self_normalised=True).value if self_normalised else float(share @ overall.contribution)
        )

    summed = partial(again, steps, self_normalised=self_normalised)
    unbiased = not self_normalised and model is None and _exact_ratios(settings)
    return weighted_estimate(
        log, settings, Weighted(steps, overall, with_share, summed, self_normalised, unbiased, model)
    )


def doubly_robust(log: Log, policy: TargetPolicy, settings: Settings, self_normalised: bool = False) -> Estimate:
    """Doubly robust estimation with cross-fitted Q functions, or a model of the user: DR, or WDR if self-normalised."""
    return weighted_estimate(log, settings, weighted_doubly_robust(log, policy, settings, self_normalised))


def magic(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """MAGIC with cross-fitted Q functions; WDR where there is no covariance to mix by. It has no standard error."""
    wdr = weighted_doubly_robust(log, policy, settings, self_normalised=True)
    assert wdr.model is not None
    values = wdr.model.values

    def with_share(share: Float[np.ndarray, " N"]) -> float:
        try:
            return corrected.magic(generator(settings), wdr.steps, values, share).estimate.value
        except corrected.NoMixtureError:
            return wdr.with_share(share)

    try:
        overall = corrected.magic(generator(settings), wdr.steps, values, log.uniform).estimate
    except corrected.NoMixtureError:
        overall = wdr.overall
    return weighted_estimate(log, settings, wdr._replace(overall=overall, with_share=with_share), NO_ERROR)


def weighted_doubly_robust(
    log: Log, policy: TargetPolicy, settings: Settings, self_normalised: bool, model: CrossFitted | None = None
) -> Weighted:
    """DR, or WDR if self-normalised, with a model or else with cross-fitted Q functions."""
    model = log.cross_fitted(policy, settings) if model is None else model
    steps = log.steps(policy, settings.clip)
    overall = corrected.doubly_robust(steps, model.values, log.uniform, self_normalised=self_normalised)

    def with_share(share: Float[np.ndarray, " N"]) -> float:
        if not self_normalised:
            return float(share @ overall.contribution)
        return corrected.doubly_robust(steps, model.values, share, self_normalised=True).value

    summed = partial(corrected.summed_doubly_robust, steps, model.values, self_normalised=self_normalised)
    goes_on = model.values.last is not None and bool((model.values.last != 0).any())
    unbiased = not self_normalised and not goes_on and model.honest and _exact_ratios(settings)
    return Weighted(steps, overall, with_share, summed, self_normalised, unbiased, model)


def _exact_ratios(settings: Settings) -> bool:
    return settings.clip is None and settings.behaviour == "logged"


def _continued(steps: Steps, model: CrossFitted) -> Steps:
    """The steps with γ V of the model added to the last reward of each trajectory that goes on."""
    assert model.values.last is not None
    reward, end = np.where(steps.mask, steps.reward, 0.0), steps.mask.sum(axis=1) - 1
    reward[np.arange(len(end)), end] += steps.discount * model.values.last
    return steps._replace(reward=reward)


def weighted_estimate(log: Log, settings: Settings, weighted: Weighted, why_not: str | None = None) -> Estimate:
    """The estimate of a method that weights trajectories, with intervals, state values and diagnostics.

    `why_not` says why it has neither a standard error nor intervals, if so.
    """
    overall, model = weighted.overall, weighted.model
    contribution = overall.contribution
    k, notes = tail(weighted.steps, contribution)
    reasons = (why_not,) if why_not else doubts(weighted.steps, overall, settings)
    if model is not None and not model.honest:
        reasons += ("no standard error and no interval: the model was fitted to the one trajectory that it corrects",)
    size = overall.effective_sample_size if weighted.self_normalised else None
    fold = None if model is None else model.fold
    resampled = None if reasons else weighted.summed()
    intervals, error, more = intervals_of(overall, settings, resampled, size, weighted.unbiased, fold)
    if log.states is not None and log.times is not None and np.any(log.times):
        notes += (f"values of states are over {log.data.length} steps from each, whatever its time",)
    return Estimate(
        value=overall.value,
        state_values=log.state_values(settings.rule, weighted.with_share),
        standard_error=error,
        intervals=intervals,
        effective_sample_size=overall.effective_sample_size,
        largest_weight_share=overall.largest_weight_share,
        pareto_k=k,
        bellman_error=None if model is None else model.bellman_error,
        converged=None if model is None else model.converged,
        warnings=(*(() if model is None else model.warnings), *reasons, *notes, *more),
    )
