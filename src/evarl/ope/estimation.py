"""Values of a policy from logged data, by any of the registered estimators."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.ope.arguments import as_methods, check_log_and_policy
from evarl.ope.cross_fitting import MODEL_DIVERGED
from evarl.ope.dataset import LoggedData
from evarl.ope.fitted import diverged
from evarl.ope.log import CollapsedWeights, Estimate, Log, estimand
from evarl.ope.policy import TargetPolicy, check_fitted
from evarl.ope.registry import Estimator, chosen, usual_methods
from evarl.ope.resampling import GROUPS
from evarl.ope.settings import FQEConfig, Settings
from evarl.ope.uncertainty import few
from evarl.sizes import check_memory, check_time, matrix_entries
from evarl.storage.compiled import keep_compiled_programs

DEFAULT = Settings()
COLLAPSED = "the weights have collapsed"
POOLED = "the value of every state is J, by the rule pooled; use rule=per-start or rule=neighbours, or a method that needs none"
"""What is said of values of several states by all trajectories together."""
PLACEHOLDERS = (0.0, -1.0)
"""Numbers that often stand for what was not logged."""


def estimate(
    log: Log, policy: TargetPolicy, settings: Settings = DEFAULT, methods: Sequence[str] | None = None
) -> dict[str, Estimate]:
    """Estimates of J, and of V at `log.states` [Q, ...], by method; by default all that the log allows, but for special ones.

    All of one call estimate the same: the return of the T logged steps, or with `horizon="endless"` that without a time limit.
    Each says so in `estimand`.
    """
    found = _estimates(log, policy, settings, methods)
    for one in found.values():  # not inside of another function, for the sake of `stacklevel`
        _warn(one)
    return found


@overload
def estimate_many(
    log: Log, policies: Sequence[TargetPolicy], settings: Settings = DEFAULT, methods: Sequence[str] | None = None
) -> list[dict[str, Estimate]]: ...
@overload
def estimate_many(
    log: Log, policies: Mapping[str, TargetPolicy], settings: Settings = DEFAULT, methods: Sequence[str] | None = None
) -> dict[str, dict[str, Estimate]]: ...
def estimate_many(
    log: Log,
    policies: Sequence[TargetPolicy] | Mapping[str, TargetPolicy],
    settings: Settings = DEFAULT,
    methods: Sequence[str] | None = None,
) -> list[dict[str, Estimate]] | dict[str, dict[str, Estimate]]:
    """Estimates for many policies from one log, in their order or by their names.

    What does not depend on the policy is computed once, such as an estimated behaviour policy and the shares of trajectories in
    the values of states; what is kept of a policy is dropped after it.
    """
    found = []
    for policy in policies.values() if isinstance(policies, Mapping) else policies:
        found.append(_estimates(log, policy, settings, methods))
        for one in found[-1].values():
            _warn(one)
        log.forget(policy)
        log.with_behaviour(settings).forget(policy)
    return dict(zip(policies, found, strict=True)) if isinstance(policies, Mapping) else found


def check_fit(config: FQEConfig, refits: int, rows: int, features: int) -> None:
    """Raise InputError if fitted Q evaluation on `rows` logged transitions does not fit into memory, or takes hours."""
    widest = max(config.hidden_sizes)
    check_memory("fqe.batch-size", config.batch_size, 4.0 * config.batch_size * (features + widest), "a batch")
    check_memory("fqe.hidden-sizes", config.hidden_sizes, 16 * matrix_entries(features, *config.hidden_sizes), "a fit")
    drawn = 4.0 * config.action_samples * rows
    check_memory("fqe.action-samples", config.action_samples, drawn, "the sample of actions")
    check_time("fqe.steps", config.steps, config.steps, "a fit")
    check_time("fqe-refits", refits, float(refits) * config.steps, "all fits together")


def _estimates(
    log: Log, policy: TargetPolicy, settings: Settings, methods: Sequence[str] | None
) -> dict[str, Estimate]:
    check_log_and_policy(log, policy, settings)
    settings.validate()
    keep_compiled_programs()
    asked, data = _possible(log, settings, as_methods(methods)), log.data
    if any(_fits(estimator, log) for estimator in asked):
        check_fit(settings.fqe, settings.fqe_refits, data.mask.size, int(np.prod(data.observation.shape[2:])))
        check_fitted(policy, data)
    drawn = settings.resamples * max(1.0, min(data.trajectories, GROUPS) / 500)  # 500 trajectories take 1e-5 seconds
    check_time("resamples", settings.resamples, drawn, "the bootstrap")
    if any("log_prob" in estimator.needs for estimator in asked):
        log.checked(policy)
        log = log.with_behaviour(settings)
    return {estimator.name: _one(estimator, log, policy, settings) for estimator in asked}


def _possible(log: Log, settings: Settings, methods: Sequence[str] | None) -> list[Estimator]:
    """The estimators that were asked for, or all that are possible."""
    asked = chosen(usual_methods() if methods is None else methods)
    obstacles = {estimator.name: _obstacle(estimator, log, settings) for estimator in asked}
    possible = [estimator for estimator in asked if obstacles[estimator.name] is None]
    if possible and (methods is None or len(possible) == len(asked)):
        return possible
    raise InputError(next(obstacle for obstacle in obstacles.values() if obstacle is not None))


def _obstacle(estimator: Estimator, log: Log, settings: Settings) -> str | None:
    """Why an estimator cannot be used with this log and these settings."""
    name, weighted = estimator.name, "log_prob" in estimator.needs
    if weighted and log.data.log_prob is None and settings.behaviour == "logged":
        return f"log_prob: is missing in the log; {name} requires it, or behaviour=estimate; fqe does not"
    if settings.horizon not in getattr(estimator, "horizons", (settings.horizon,)):
        return f"horizon: {settings.horizon} is not possible for {name}, which sums logged rewards; must be finite, or use fqe"
    if (obstacle := getattr(estimator, "obstacle", None)) is not None and (why := obstacle(log)) is not None:
        return str(why)
    cut = log.data.cut
    if weighted and "fqe" not in estimator.needs and settings.cuts == "refuse" and cut.any():
        return (
            f"truncated: {cut.sum()} of {len(cut)} trajectories, such as number {cut.argmax()}, stop before step "
            f"{log.data.length} without having ended, which biases {name}; use dr or fqe, or cuts=model, which adds the value "
            "of a fitted model there"
        )
    return None


def _fits(estimator: Estimator, log: Log) -> bool:
    """Whether a Q function will be fitted."""
    weighted, own = "log_prob" in estimator.needs, log.own_model is not None
    return ("fqe" in estimator.needs or (weighted and bool(log.data.cut.any()))) and not (weighted and own)


def _one(estimator: Estimator, log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """The estimate of one method, with what is to be said of the log and of its weights."""
    found = estimator.estimate(log, policy, settings)
    have, expected = (None if x is None else x.shape[:1] for x in (found.state_values, log.states))
    if have != expected:
        raise InputError(f"state_values: have shape {have}, by {estimator.name}; must be {expected}")
    weighted = "log_prob" in estimator.needs
    if any(note.startswith(MODEL_DIVERGED) for note in found.warnings) and (
        said := diverged(log, settings, found.value)
    ):
        found = dataclasses.replace(found, warnings=(said, *found.warnings))
    notes = found.warnings + (log.checked(policy) if weighted else ()) + _of_log(log, settings, weighted)
    if weighted and settings.rule == "pooled" and _one_value(log, found):
        notes += (POOLED,)
    size, count = found.effective_sample_size, log.data.trajectories
    if size is not None and size < settings.warn_below * count:
        largest = found.largest_weight_share
        share = "" if largest is None else f", the largest with {largest:.0%} of the weight"
        notes += (f"{COLLAPSED}: effective sample size {size:.1f} of {count} trajectories{share}",)
    if {"t", "bootstrap"} & set(found.intervals):
        notes += log.once(("returns",), None, lambda: few(_returns(log), "the logged returns"))
    what = found.estimand or estimand(log, settings)
    return dataclasses.replace(found, method=estimator.name, rule=settings.rule, estimand=what, warnings=notes)


def _one_value(log: Log, found: Estimate) -> bool:
    """Whether different states have the same value."""
    if log.states is None or found.state_values is None or np.ptp(found.state_values) != 0:
        return False
    return len(np.unique(np.asarray(log.states), axis=0)) > 1


def _of_log(log: Log, settings: Settings, weighted: bool) -> tuple[str, ...]:
    """What there is to say of a log, whatever the policy."""
    notes: tuple[str, ...] = ()
    data, cut = log.data, log.data.cut
    if cut.any() and settings.horizon == "finite":
        notes += (
            f"{cut.sum()} of {len(cut)} trajectories stop before step {data.length} without having ended; a model's value "
            "continues them",
        )
    if data.length > 1 and np.asarray(data.terminated)[:, -1].all() and (doubt := _doubtful_end(data)) is not None:
        notes += (
            f"every trajectory is marked as terminated at step {data.length}{doubt}; if that is a time limit, mark it as "
            "truncated",
        )
    if weighted and settings.behaviour == "estimate":
        notes += ("the behaviour policy is estimated, and its error is not part of the standard error",)
    if weighted and settings.clip is not None:
        notes += (f"log-ratios are clipped at {settings.clip:g}, which biases the estimate",)
    return notes


def _doubtful_end(data: LoggedData) -> str | None:
    """None if all trajectories end in one observation from which none goes on: an end and no time limit. Or what to say of it.

    One that is 0, −1 or the same number in all its entries may stand for an observation that was not logged.
    """
    final = np.asarray(data.final_observation)
    if (final != final[:1]).any():
        return ""
    seen = np.asarray(data.observation)[np.asarray(data.mask)]
    if (seen == final[0]).reshape(len(seen), -1).all(axis=1).any():
        return ""
    entries = np.unique(final[0])
    if len(entries) == 1 and (final[0].size > 1 or float(entries[0]) in PLACEHOLDERS):
        return f" with {float(entries[0]):g} as its final observation, which may stand for one that was not logged"
    return None


def _returns(log: Log) -> Float[np.ndarray, " N"]:
    """Σ_t γ^t r_t of the logged steps."""
    reward = np.where(np.asarray(log.data.mask), np.asarray(log.data.reward, np.float64), 0.0)
    return reward @ np.float64(log.discount) ** np.arange(log.data.length)


def _warn(found: Estimate) -> None:
    if any(note.startswith(COLLAPSED) for note in found.warnings):
        warnings.warn(f"{found.method}: {'; '.join(found.warnings)}", CollapsedWeights, stacklevel=3)
