"""Fitted Q evaluation as an estimator: J and values of states, with errors from refits and the support of each state."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from evarl.ope.checks import REFITS_ALONE, fit_warnings
from evarl.ope.log import DIVERGED, Estimate, Log, estimand, generator
from evarl.ope.model import Model, Refits, out_of_reach
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Convention, Settings
from evarl.ope.support import LEVEL, Support, support
from evarl.stats.conformal import conformal_p_value
from evarl.stats.intervals import Interval

HUBER = f"{REFITS_ALONE}; a fit with Huber's loss is biased where targets are skewed"
COMPARED = 256
"""Logged observations at which refits are compared with one another, at most."""


class Resampled(NamedTuple):
    """Values of fits to resampled trajectories."""

    start_values: Float[np.ndarray, " refits"]
    state_values: Float[np.ndarray, "refits Q"] | None


def fitted_q(log: Log, policy: TargetPolicy, settings: Settings, convention: Convention | None = None) -> Estimate:
    """Fitted Q evaluation, by the convention of the settings unless given."""
    model = log.model(policy, settings, convention)
    rng = generator(settings)
    notes, resampled = model.warnings(), None
    if settings.fqe_refits:
        refits = model.refits(settings.fqe_refits, rng)
        resampled = Resampled(refits.start_values, None if log.states is None else refits.values(*_asked(log)))
        notes += _disagreement(log, resampled, refits, rng) + _checked(log, policy, settings, model, convention)
    states = None if log.states is None else model.at(np.asarray(log.states), log.times)
    greedy = settings.fitting(convention).convention == "greedy-huber"
    value = model.start_value()
    if beyond := diverged(log, settings, value):
        resampled, notes = None, (beyond, *notes)
    return Estimate(
        estimand=estimand(log, settings, "the policy's most probable actions" if greedy else "the policy"),
        bellman_error=float(model.fitted.bellman_error),
        converged=bool(model.fitted.converged) and not beyond,
        **with_errors(log, settings, value, states, resampled, float(model.fitted.remainder)),
        **with_support(log, settings, notes),
    )


def _checked(
    log: Log, policy: TargetPolicy, settings: Settings, model: Model, convention: Convention | None
) -> tuple[str, ...]:
    if settings.fitting(convention).convention == "greedy-huber":
        return (HUBER,)
    return fit_warnings(log, policy, settings, model.values)


def diverged(log: Log, settings: Settings, value: float) -> str | None:
    """A line that says so if a value is far outside of what rewards like the logged ones add up to."""
    beyond = out_of_reach(log.data, float(log.discount), settings.horizon == "finite", value)
    return f"{DIVERGED}: {beyond}" if beyond else None


def with_errors(
    log: Log,
    settings: Settings,
    value: float,
    states: Float[np.ndarray, " Q"] | None,
    resampled: Resampled | None,
    remainder: float = 0.0,
    timed: bool = True,
) -> dict[str, Any]:
    """Fields of an estimate: J and V with standard errors, the deviations of refits, and t intervals by these.

    The error of J includes the `remainder`, the estimated distance of the fit from its limit, which refits share.
    """
    if resampled is None:
        return {"value": value, "state_values": states}
    count = len(resampled.start_values)
    reach = float(stats.t.ppf((1 + settings.confidence) / 2, count - 1))
    # the deviation of the refits is the standard error itself, not that of their mean
    error = float(np.hypot(resampled.start_values.std(ddof=1), remainder))
    interval = Interval(value, value - reach * error, value + reach * error, settings.confidence, "t")
    fields = {"value": value, "state_values": states, "standard_error": error, "intervals": {"t": interval}}
    if states is None or resampled.state_values is None:
        return fields
    # refits may agree where all of them extrapolate, so that no error is told there
    errors = np.where(support_of(log, settings, timed).missing, np.nan, resampled.state_values.std(axis=0, ddof=1))
    ends = np.stack([states - reach * errors, states + reach * errors], axis=1)
    return fields | {"state_errors": errors, "state_intervals": ends}


def with_support(log: Log, settings: Settings, notes: tuple[str, ...], timed: bool = True) -> dict[str, Any]:
    """Fields of an estimate: the support of each query state, and warnings; `timed` if values depend on the logged time."""
    if log.states is None:
        return {"warnings": notes}
    found = support_of(log, settings, timed)
    return {"state_support": found.p_value, "warnings": notes + found.warnings()}


def support_of(log: Log, settings: Settings, timed: bool = True) -> Support:
    """How far the query states are from the logged observations, at any time or at about the same time."""
    states, config = np.asarray(log.states), settings.fitting()
    config = config if timed else replace(config, time_feature=False)
    name = ("support", config.time_feature, config.one_hot, settings.random_seed)
    return log.once(name, None, lambda: support(config, log.data, states, log.times, generator(settings)))


def _asked(log: Log) -> tuple[np.ndarray, np.ndarray]:
    states = np.asarray(log.states)
    return states, np.zeros(len(states), np.int32) if log.times is None else np.asarray(log.times, np.int32)


def _disagreement(log: Log, resampled: Resampled, refits: Refits, rng: np.random.Generator) -> tuple[str, ...]:
    """A line about query states at which refits disagree more than at logged observations, if there are any."""
    if resampled.state_values is None:
        return ()
    trajectory, step = np.nonzero(np.asarray(log.data.mask))
    drawn = rng.permutation(len(step))[:COMPARED]
    logged = np.asarray(log.data.observation)[trajectory[drawn], step[drawn]]
    usual = refits.values(logged, step[drawn].astype(np.int32)).std(axis=0, ddof=1)
    errors = resampled.state_values.std(axis=0, ddof=1)
    apart = np.array([conformal_p_value(usual, one) for one in errors]) < LEVEL
    if not apart.any():
        return ()
    worst = int(np.argmax(np.where(apart, errors, -1.0)))
    return (
        f"refits disagree at {apart.sum()} of {len(errors)} states, such as number {worst}: by {errors[worst]:.3g}, where "
        f"{np.median(usual):.3g} is usual at logged observations",
    )
