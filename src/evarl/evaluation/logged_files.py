"""Off-policy evaluation of logs in files: estimates, the distribution of returns, guaranteed bounds and selection."""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evarl.errors import InputError
from evarl.evaluation.inputs import imported, opened
from evarl.evaluation.logged import LoggedSeed, logged_record
from evarl.ope.dataset import LoggedData
from evarl.ope.estimation import estimate
from evarl.ope.files import read
from evarl.ope.flat import MissingFinal, MissingFinalObservation
from evarl.ope.guarantees import GuaranteedBound, GuaranteeSettings, guaranteed_lower_bound
from evarl.ope.log import CollapsedWeights, Log
from evarl.ope.outside import in_world_units, possible_methods, target_policy, uniform_policy
from evarl.ope.policy import TargetPolicy
from evarl.ope.registry import LogSettings, usual_methods
from evarl.ope.return_bands import BandSettings
from evarl.ope.returns import ReturnDistribution, return_distribution
from evarl.ope.selection import Family, SelectedEstimate, select

UNIFORM = "uniform"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHARES = (0.05, 0.25)
"""Shares of the worst returns whose mean, the CVaR, is told."""
Units = Literal["world", "policy"]
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What is computed beside the estimates."""

    distribution: bool = False
    """The distribution of returns: quantiles and CVaR, with bands."""
    return_range: tuple[float, float] | None = None
    """The least and the greatest possible return, for bands of the mean and of CVaR."""
    guarantee: GuaranteeSettings | None = None
    """A lower bound that holds for every number of trajectories."""
    family: Family | None = None
    """The estimate that SLOPE selects from a family."""


@dataclass(frozen=True)
class LoggedFile:
    """What a log says about a policy."""

    log: str
    policy: str
    discount: float
    found: LoggedSeed
    distribution: ReturnDistribution | None
    guaranteed: GuaranteedBound | None
    selected: SelectedEstimate | None


def read_log_file(
    path: str, missing_final: MissingFinal, log_prob: str | None, first_action: int, notify: Notify
) -> LoggedData:
    """The log in a file; warnings about it are given to `notify`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingFinalObservation)
        data = read(path, missing_final, log_prob, first_action)
    for one in caught:
        notify(f"warning: {path}: {one.message}")
    return data


def check_first_action(data: LoggedData) -> None:
    """Raise InputError where a log alone does not tell how many actions there are, because it has no action 0."""
    if not data.discrete:
        return
    actions = np.asarray(data.action)[np.asarray(data.mask)]
    least, most = int(actions.min()), int(actions.max())
    if least > 0:
        raise InputError(
            f"first-action: is missing, and the log has the actions {least} to {most}; must be given for the uniform policy: "
            f"{least} if actions count from there ({most - least + 1} of them), 0 if lower ones were never taken ({most + 1})"
        )


def named_policy(
    data: LoggedData, name: str, seed: int | None = None, actions: int | None = None, units: Units = "world"
) -> tuple[TargetPolicy, str]:
    """The target policy "uniform", or the final policy of a run, and what it is called.

    `units` are those of continuous actions in the log: a run's own policy has −1 and 1 at their bounds.
    """
    if name == UNIFORM:
        return uniform_policy(data, actions), name
    if actions is not None:
        raise InputError(f"actions: {actions} is allowed with --policy {UNIFORM} only")
    run = opened(name)
    policy, space = run.target_policy(seed), run.world.action_space
    shown = run.world.observation_space.shape
    if data.observation.shape[2:] != shown:
        raise InputError(
            f"policy: {name} was trained on observations of shape {shown}; those of the log have {data.observation.shape[2:]}"
        )
    told = f"{name}, seed {run.seeds[0] if seed is None else seed}"
    return (in_world_units(policy, space) if units == "world" else policy), told


def imported_target(data: LoggedData, name: str) -> tuple[TargetPolicy, str]:
    """The target policy "module:name"."""
    return target_policy(imported(name), data), name


def evaluate_log(
    log: tuple[str, LoggedData, float], policy: tuple[TargetPolicy, str], settings: LogSettings, asked: Asked
) -> LoggedFile:
    """Estimates of J of a policy from a log (its name, the data, the discount), and what else is asked for."""
    settings.validate()
    (path, data, discount), (target, told) = log, policy
    logged = Log(data, discount)
    methods = None if settings.methods == usual_methods() else settings.methods
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWeights)  # they are part of the results
        found = estimate(logged, target, settings, methods or possible_methods(target))
        band = BandSettings(return_range=asked.return_range)
        distribution = return_distribution(logged, target, settings, band=band) if asked.distribution else None
        bound = asked.guarantee and guaranteed_lower_bound(logged, target, asked.guarantee, settings)
        selected = asked.family and select(logged, target, settings, family=asked.family)
    steps = int(np.asarray(data.mask).sum())
    return LoggedFile(
        path,
        told,
        discount,
        LoggedSeed(0, data.trajectories, steps, found),
        distribution,
        bound or None,
        selected or None,
    )


def quantiles(found: ReturnDistribution) -> dict[str, tuple[float, tuple[float, float] | None]]:
    """Mean, quantiles and CVaR of a distribution of returns by name, with their bounds where there is a band."""
    band = found.band
    rows = {"mean": (found.mean, None if band is None else band.mean())}
    for one in QUANTILES:
        rows[f"quantile {one:g}"] = found.quantile(one), None if band is None else band.quantile(one)
    for one in SHARES:
        rows[f"CVaR {one:g}"] = found.cvar(one), None if band is None else band.cvar(one)
    return rows


def log_record(found: LoggedFile) -> dict[str, Any]:
    """What a log says, as plain data for JSON."""
    record: dict[str, Any] = {"log": found.log, "policy": found.policy, "discount": found.discount}
    record |= {name: value for name, value in logged_record(found.found).items() if name not in ("seed", "part")}
    if (one := found.distribution) is not None:
        record["distribution"] = {
            "estimand": one.estimand,
            "assumptions": one.assumptions,
            "effective_sample_size": one.effective_sample_size,
            "rows": {name: {"value": value, "band": _finite(band)} for name, (value, band) in quantiles(one).items()},
            "warnings": list(one.warnings),
        }
    if found.guaranteed is not None:
        record["guaranteed"] = dataclasses.asdict(found.guaranteed)
    if (chosen := found.selected) is not None:
        ends = None if chosen.interval is None else [chosen.interval.low, chosen.interval.high]
        told = {"value": chosen.value, "standard_error": chosen.standard_error, "interval": ends, "why": chosen.why}
        record["selected"] = told | {"chosen": chosen.selection.chosen.name, "warnings": list(chosen.warnings)}
    return record


def _finite(band: tuple[float, float] | None) -> list[float | None] | None:
    """Ends of a band, None where it has none: JSON has no infinity."""
    return None if band is None else [float(end) if np.isfinite(end) else None for end in band]
