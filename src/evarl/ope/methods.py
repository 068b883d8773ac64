"""The built-in estimators: functions of a log, a policy and settings."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.ope import doubly_robust as corrected, importance
from evarl.ope.importance import WeightedEstimate
from evarl.ope.log import Estimate, Log, generator
from evarl.ope.model import Model
from evarl.ope.policy import TargetPolicy
from evarl.ope.resampling import Summed, bootstrap
from evarl.ope.settings import Convention, Settings
from evarl.stats.intervals import Interval, bernstein_interval, hoeffding_interval, percentile_interval, t_interval


class Weighted(NamedTuple):
    """A method that weights trajectories, applied to one log: values as functions of the trajectories' shares."""

    overall: WeightedEstimate
    """For uniform shares."""
    with_share: Callable[[Float[np.ndarray, " N"]], WeightedEstimate]
    summed: Callable[[], Summed] | None
    """For bootstrap samples; None where these would say nothing of its error."""
    bounded: bool = False
    """Whether it is a mean of independent contributions, so that Hoeffding and Bernstein intervals are valid."""
    model: Model | None = None
    notes: tuple[str, ...] = ()


def fitted_q(log: Log, policy: TargetPolicy, settings: Settings, convention: Convention | None = None) -> Estimate:
    """Fitted Q evaluation, by the convention of the settings unless given."""
    model = log.model(policy, settings, convention)
    value, refits = model.start_value(), settings.fqe_refits
    error, intervals = None, {}
    if refits:
        again = model.refitted(refits, generator(settings))
        error = float(again.std(ddof=1))
        # the spread of the refits is the standard error itself, not that of their mean
        around = value + (again - again.mean()) * refits**0.5
        intervals["t"] = t_interval(around, settings.confidence, np.full(refits, 1.0 / refits))
    return Estimate(
        value=value,
        state_values=None if log.states is None else model.at(np.asarray(log.states), log.times),
        standard_error=error,
        intervals=intervals,
        bellman_error=float(model.fitted.bellman_error),
        converged=bool(model.fitted.converged),
        warnings=model.warnings(),
    )


def importance_sampling(
    log: Log, policy: TargetPolicy, settings: Settings, per_decision: bool = False, self_normalised: bool = False
) -> Estimate:
    """Importance sampling, trajectory-wise (TIS, or WIS if self-normalised) or per decision (PDIS or WPDIS)."""
    steps = log.steps(policy, settings.clip)
    form = importance.per_decision if per_decision else importance.trajectory_wise
    again = importance.summed_per_decision if per_decision else importance.summed_trajectory_wise

    def one(share: Float[np.ndarray, " N"]) -> WeightedEstimate:
        return form(steps, share, self_normalised=self_normalised)

    many = partial(again, steps, self_normalised=self_normalised)
    return _estimate(log, settings, Weighted(one(log.uniform), one, many, bounded=not self_normalised))


def doubly_robust(log: Log, policy: TargetPolicy, settings: Settings, self_normalised: bool = False) -> Estimate:
    """Doubly robust estimation with fitted Q evaluation as the model: DR, or WDR if self-normalised."""
    return _estimate(log, settings, _doubly_robust(log, policy, settings, self_normalised))


def magic(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """MAGIC with fitted Q evaluation as the model; WDR where there is no covariance to mix by."""
    wdr = _doubly_robust(log, policy, settings, self_normalised=True)
    assert wdr.model is not None
    arguments = log.steps(policy, settings.clip), wdr.model.values
    try:
        overall = corrected.magic(generator(settings), *arguments, log.uniform)
    except corrected.NoMixtureError:
        return _estimate(log, settings, wdr._replace(summed=None))

    def with_share(share: Float[np.ndarray, " N"]) -> WeightedEstimate:
        try:
            return corrected.magic(generator(settings), *arguments, share).estimate
        except corrected.NoMixtureError:
            return wdr.with_share(share)

    notes = ("there is no standard error: the error of the model and of the mixing weights is unknown",)
    return _estimate(log, settings, Weighted(overall.estimate, with_share, None, False, wdr.model, notes))


def _doubly_robust(log: Log, policy: TargetPolicy, settings: Settings, self_normalised: bool) -> Weighted:
    model = log.model(policy, settings)
    arguments = log.steps(policy, settings.clip), model.values
    one = partial(corrected.doubly_robust, *arguments, self_normalised=self_normalised)
    many = partial(corrected.summed_doubly_robust, *arguments, self_normalised=self_normalised)
    return Weighted(one(log.uniform), one, many, not self_normalised, model)


def _estimate(log: Log, settings: Settings, weighted: Weighted) -> Estimate:
    """The estimate of a method that weights trajectories, with intervals, state values and diagnostics."""
    overall, model = weighted.overall, weighted.model
    intervals, notes = _intervals(weighted, settings)
    return Estimate(
        value=float(overall.value),
        state_values=log.state_values(settings.rule, lambda share: float(weighted.with_share(share).value)),
        standard_error=None if weighted.summed is None else float(overall.standard_error),
        intervals=intervals,
        effective_sample_size=float(overall.effective_sample_size),
        largest_weight_share=float(overall.largest_weight_share),
        bellman_error=None if model is None else float(model.fitted.bellman_error),
        converged=None if model is None else bool(model.fitted.converged),
        warnings=(*(() if model is None else model.warnings()), *notes, *weighted.notes),
    )


def _intervals(weighted: Weighted, settings: Settings) -> tuple[dict[str, Interval], tuple[str, ...]]:
    """Intervals by name, and why some are missing."""
    contribution = weighted.overall.contribution
    if not np.isfinite(contribution).all():
        return {}, ("some weights overflow, so there is no interval; use a self-normalised method",)
    if weighted.summed is None:
        return {}, ()
    confidence, shares = settings.confidence, np.full(len(contribution), 1.0 / len(contribution))
    again = bootstrap(weighted.summed(), settings.resamples, generator(settings))
    found = {"bootstrap": percentile_interval(float(shares @ contribution), again, confidence)}
    if len(contribution) > 1:
        found["t"] = t_interval(contribution, confidence, shares)
    if settings.range is None or not weighted.bounded:
        return found, ()
    try:
        forms = bernstein_interval, hoeffding_interval
        bounds = [bound(contribution, *settings.range, confidence, shares) for bound in forms]
    except InputError as error:
        return found, (f"no Hoeffding or Bernstein interval, since the range does not hold: {error}",)
    return found | {bound.method: bound for bound in bounds}, ()
