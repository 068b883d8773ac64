"""Ranking of several policies from one log, which names a best one only where it is separated from all others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError, unknown_name
from evarl.ope.log import Log
from evarl.ope.metrics import PolicyMetrics, policy_metrics
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories, finite_weights, trajectories
from evarl.ope.uncertainty import few
from evarl.stats.intervals import Interval
from evarl.stats.ranking import rank_means

DEFAULT = Settings()
Form = Literal["tis", "wis", "pdis"]
FORMS: tuple[Form, ...] = ("tis", "wis", "pdis")


@dataclass(frozen=True)
class PolicyRanking:
    """Policies by their estimated values, with intervals that hold for all of them at once."""

    order: tuple[str, ...]
    """By estimated value, the greatest first."""
    chosen: str
    """The first in the order."""
    best: str | None
    """The policy that is better than every other with the confidence of the settings; None where there is none."""
    regret: float | None
    """How much less than the best of the others the chosen policy is worth, at most; None where that is not known."""
    values: dict[str, Interval]
    """Of policies whose weights have not collapsed."""
    differences: dict[tuple[str, str], Interval]
    """J of the first policy minus J of the second, of those pairs."""
    effective_sample_size: dict[str, float]
    why: str
    metrics: PolicyMetrics | None = None
    """Of the estimates against true values, if these are given."""
    warnings: tuple[str, ...] = ()
    """Reasons not to trust t intervals: few trajectories decide the variance of a policy's contributions, or of the returns."""


def rank_policies(
    log: Log,
    policies: Mapping[str, TargetPolicy],
    settings: Settings = DEFAULT,
    *,
    method: Form = "pdis",
    true: Mapping[str, float] | None = None,
) -> PolicyRanking:
    """Policies ranked by importance sampling from one log.

    Differences are those of contributions of the same trajectories. Intervals are t intervals, asymptotic and corrected for
    skewness, or for tis and pdis with `settings.range` empirical Bernstein ones that hold for every number of trajectories; all
    hold simultaneously.
    A policy whose weights have collapsed has no interval, and while there is one, none is called best: what it is worth is
    not known.
    """
    settings.validate()
    if method not in FORMS:
        raise unknown_name("method", method, FORMS)
    if not policies:
        raise InputError("policies: there are none; must be at least one")
    if method == "wis" and settings.range is not None:
        raise InputError(
            "range: gives no interval for the self-normalised wis; must be None, or the method tis or pdis"
        )
    logged = {name: trajectories(log, policy, settings) for name, policy in policies.items()}
    size = {name: one.effective_sample_size for name, one in logged.items()}
    rows = {name: _contributions(one, method) for name, one in logged.items()}
    estimates = {name: float(x.mean()) for name, x in rows.items()}
    usable = [name for name in policies if size[name] >= max(settings.warn_below * log.data.trajectories, 1.0)]
    lost = [name for name in policies if name not in usable]
    order = tuple(sorted(policies, key=lambda name: -estimates[name]))
    metrics = None if true is None else _metrics(estimates, true)
    if not usable:
        return PolicyRanking(order, order[0], None, None, {}, {}, size, "the weights of all have collapsed", metrics)
    doubts = _doubts(logged, {name: rows[name] for name in usable}) if settings.range is None else ()
    found = rank_means(usable, np.stack([rows[name] for name in usable]), settings.confidence, settings.range)
    if lost:
        why = f"the weights of {', '.join(lost)} have collapsed, and what they are worth is not known; of the others, {found.why}"
        each = found.values, found.differences
        return PolicyRanking(order, found.order[0], None, None, *each, size, why, metrics, doubts)
    named = found.order[0], found.best, found.regret
    return PolicyRanking(found.order, *named, found.values, found.differences, size, found.why, metrics, doubts)


def _doubts(logged: Mapping[str, Trajectories], rows: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Warnings of t intervals whose variance few trajectories decide; the returns are the same for all policies."""
    notes = few(next(iter(logged.values())).returns, "the logged returns")
    return sum((few(x, f"the estimate of {name}") for name, x in rows.items()), notes)


def _contributions(logged: Trajectories, method: Form) -> np.ndarray:
    """Contributions [N] whose mean is the estimate; for wis its linearisation."""
    if method == "pdis":
        return np.asarray((logged.reward * finite_weights(logged.log_weight)).sum(axis=1))
    if method == "tis":
        return logged.weights * logged.returns
    weights, returns = logged.relative_weights, logged.returns
    if not weights.any():
        return np.zeros(len(returns))
    value = weights @ returns / weights.sum()
    return np.asarray(value + weights / weights.mean() * (returns - value))


def _metrics(estimates: Mapping[str, float], true: Mapping[str, float]) -> PolicyMetrics:
    if set(true) != set(estimates):
        raise InputError(f"true: has {', '.join(true)}; must have the policies, {', '.join(estimates)}")
    names: list[str] = list(estimates)
    values: ArrayLike = [true[name] for name in names]
    return policy_metrics([estimates[name] for name in names], values)
