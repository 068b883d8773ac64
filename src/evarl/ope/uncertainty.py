"""Intervals of weighted estimates, and reasons not to give any."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from evarl.errors import InputError
from evarl.ope.importance import Steps, WeightedEstimate, log_weights
from evarl.ope.resampling import Summed, bootstrap, jackknife
from evarl.ope.settings import Settings
from evarl.ope.tails import pareto_k
from evarl.stats.intervals import Interval, bernstein_interval, hoeffding_interval
from evarl.stats.skewed import bootstrap_interval, skewed_t_interval, variance_freedom

NONE = "no standard error and no interval"
UNRELIABLE, DOUBTFUL = 0.7, 0.5
"""Pareto k̂ above which estimates, and standard errors, are not to be trusted."""
ENOUGH = 100
"""Trajectories from which on a k̂ above the lower limit is more than chance."""
EVEN = 0.75
"""Effective sample size, as a share of the trajectories, from which on any number of them is as good as without weights."""
UNEXPECTED = 2.5
"""Standard errors between the mean weight and 1 beyond which the weights cannot be right. By chance it happens in 1 % of logs;
where the large weights have not been seen it is the one sign of it, since effective sample size and k̂ then look well."""
FEW = 25.0
"""Degrees of freedom of a variance below which intervals are doubtful: n < 12.5 G₁² implies it, by which skewness raises the
error of a 95 % t interval to 7 %."""


def tail(steps: Steps, contribution: Float[np.ndarray, " N"]) -> tuple[float | None, tuple[str, ...]]:
    """The larger Pareto k̂ of weights and of contributions (distances from their median), with a warning if it is high."""
    log_weight = log_weights(steps)[:, -1]
    top = log_weight.max()
    weights = np.exp(log_weight - (top if np.isfinite(top) else 0.0))
    kinds = [pareto_k(weights)]
    if np.isfinite(contribution).all():
        kinds.append(pareto_k(np.abs(contribution - np.median(contribution))))
    k = max((k for k in kinds if k is not None), default=None)
    if k is None or k <= DOUBTFUL or (k <= UNRELIABLE and len(contribution) < ENOUGH):
        return k, ()
    said = f"Pareto k {k:.2f} is above"
    if k > UNRELIABLE:
        return k, (f"{said} {UNRELIABLE}: the tail is so heavy that neither the estimate nor its error is reliable",)
    return k, (f"{said} {DOUBTFUL}: the variance may be infinite, and the standard error too small",)


def doubts(steps: Steps, found: WeightedEstimate, settings: Settings) -> tuple[str, ...]:
    """Reasons for which there is neither a standard error nor an interval."""
    log_weight = log_weights(steps)
    if not np.isfinite(found.contribution).all() or not np.isfinite(found.value):
        if log_weight.max() > np.log(np.finfo(np.float64).max):
            return (f"{NONE}: some weights overflow; use a self-normalised method",)
        return (f"{NONE}: some weighted rewards overflow; use smaller units of reward",)
    with np.errstate(over="ignore"):
        if not np.isfinite(found.contribution.var()):
            return (f"{NONE}: squares of weighted rewards overflow; use smaller units of reward",)
    size, count, reasons = found.effective_sample_size, len(found.contribution), []
    if count < 2:
        return (f"{NONE}: there is one trajectory",)
    if size < min(settings.least_sample, EVEN * count):
        reasons.append(f"{NONE}: the effective sample size {size:.1f} is below {settings.least_sample:g}")
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.exp(log_weight[:, -1])
        mean, error = weight.mean(), weight.std() / count**0.5
    if settings.clip is None and not abs(mean - 1.0) <= UNEXPECTED * error + 1e-3:
        reasons.append(
            f"{NONE}: the weights have mean {mean:.3g}, and 1 is expected; the log lacks what the policy does, or its "
            "log-probabilities are wrong"
        )
    return tuple(reasons)


def few(values: Float[np.ndarray, " N"], what: str) -> tuple[str, ...]:
    """A warning if the variance of numbers, one of each trajectory, rests on few of them (`variance_freedom`)."""
    if len(values) < 2 or not np.isfinite(values).all():
        return ()
    freedom = variance_freedom(values)
    if freedom >= min(FEW, EVEN * (len(values) - 1)):
        return ()
    return (
        f"few trajectories decide the variance of {what}, which has {freedom:.1f} degrees of freedom: intervals may miss more "
        "often than they say, since rare values were seen too seldom",
    )


class Found(NamedTuple):
    """Intervals by name, the standard error, and warnings: why an interval is missing or doubtful."""

    intervals: dict[str, Interval]
    standard_error: float | None
    warnings: tuple[str, ...]


def intervals_of(
    found: WeightedEstimate,
    settings: Settings,
    summed: Summed | None,
    size: float | None,
    bounded: bool,
    folds: Int[np.ndarray, " N"] | None,
) -> Found:
    """Intervals of a weighted estimate.

    Standard error, bootstrap and t need the `summed` form, and are by its jackknife. `size` is the effective sample size of
    self-normalised forms, which limits the degrees of freedom. Hoeffding and Bernstein intervals need a range, and are valid
    only where `bounded`; `folds` are those within which contributions are independent, None for all of them together.
    """
    intervals, confidence = {}, settings.confidence
    error, notes, freedom = None, tuple[str, ...](), None if size is None else size - 1
    if summed is not None:
        each = jackknife(summed)
        again = bootstrap(summed, settings.resamples, np.random.default_rng(settings.random_seed % 2**64))
        intervals["bootstrap"] = bootstrap_interval(found.value, again, each, confidence, freedom)
        intervals["t"] = skewed_t_interval(found.value, each, confidence, freedom)
        error, notes = float(each.std(ddof=1) / len(each) ** 0.5), few(each, "the estimate")
    if settings.range is None or not bounded or not np.isfinite(found.contribution).all():
        return Found(intervals, error, notes)
    parts = [found.contribution] if folds is None else [found.contribution[folds == k] for k in range(folds.max() + 1)]
    if min(map(len, parts)) < 2:
        return Found(intervals, error, notes)
    try:
        bounds = [_together(form, parts, settings) for form in (bernstein_interval, hoeffding_interval)]
    except InputError as refused:
        notes += (f"no Hoeffding or Bernstein interval, since the range does not hold: {refused}",)
        return Found(intervals, error, notes)
    return Found(intervals | {bound.method: bound for bound in bounds}, error, notes)


def _together(form: Callable[..., Interval], parts: list[Float[np.ndarray, " n"]], settings: Settings) -> Interval:
    """One interval from those of K folds, each with error (1 − confidence)/K: the mean of their ends, weighted by size.

    Given the other folds, the contributions of a fold are independent and have mean J. With probability `confidence` all K
    intervals contain J, and so does their mean.
    """
    assert settings.range is not None
    level = 1 - (1 - settings.confidence) / len(parts)
    found, shares = [form(part, *settings.range, level) for part in parts], np.array([len(part) for part in parts])
    value, low, high = shares @ np.array([[one.estimate, one.low, one.high] for one in found]) / shares.sum()
    return Interval(float(value), float(low), float(high), settings.confidence, found[0].method)
