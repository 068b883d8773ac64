"""Off-policy evaluation of a run's final policies, from the log of its training."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from evarl.evaluation.inputs import opened
from evarl.ope.estimation import estimate
from evarl.ope.log import CollapsedWeights, Estimate, Log
from evarl.ope.registry import LABELS, LogSettings
from evarl.runs.log_plan import TITLES, Part
from evarl.runs.run import Run

DEFAULT = LogSettings()
FAMILY = (
    "the log is of many sites. Importance sampling estimates the mean over sites; methods that fit Q take the observation for "
    "the state, of which the hidden context is a part, and are biased"
)


@dataclass(frozen=True)
class LoggedSeed:
    """Estimates for one seed's final policy, from one part of its own log."""

    seed: int
    trajectories: int
    steps: int
    estimates: dict[str, Estimate]
    part: Part | None = None
    """The last updates (recent) or the whole training (all); None for a log in a file."""


def estimate_run(
    run: Run | str | Path,
    seeds: Sequence[int] | None = None,
    settings: LogSettings = DEFAULT,
    notify: Callable[[str], None] = lambda line: None,
    part: Part | None = None,
) -> list[LoggedSeed]:
    """Estimates of J for the final policy of each seed, from a part of the log as `Run.logged_data` takes it."""
    run = opened(run)
    settings.validate()
    if run.world.contexts:
        notify(f"warning: {run.path}: {FAMILY}")
    found = []
    for seed in run.seeds if seeds is None else seeds:
        notify(f"{run.path}: seed {seed}")
        found.append(estimate_seed(run, seed, settings, part=part))
    return found


def estimate_seed(
    run: Run,
    seed: int,
    settings: LogSettings,
    states: Shaped[np.ndarray, "Q ..."] | None = None,
    times: Int[np.ndarray, " Q"] | None = None,
    part: Part | None = None,
) -> LoggedSeed:
    """Estimates of J for one seed's final policy, and of V at given states, observed at these steps."""
    part = run.log_part(part, settings.updates)
    log = Log(run.logged_data(seed, settings.updates, part), run.config.discount, states, times)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWeights)  # they are part of the estimates
        estimates = estimate(log, run.target_policy(seed), settings, settings.methods)
    return LoggedSeed(seed, log.data.trajectories, int(np.asarray(log.data.mask).sum()), estimates, part)


def method_label(method: str, part: Part | None, parts: Sequence[Part | None]) -> str:
    """Name of a method in tables, with the part of the log where there are several."""
    return LABELS[method] if len(parts) < 2 or part is None else f"{LABELS[method]}, {TITLES[part]}"


def method_labels() -> list[str]:
    """All names that methods may have in tables, the parts of the log one after another."""
    parts: list[Part | None] = [None, *TITLES]
    return [method_label(method, part, [None] if part is None else parts) for part in parts for method in LABELS]


def logged_record(found: LoggedSeed) -> dict[str, Any]:
    """Estimates as plain data for JSON."""
    plain = dataclasses.asdict(found)
    for one in plain["estimates"].values():
        for name in ("state_values", "state_errors", "state_intervals", "state_support"):
            one[name] = None if one[name] is None else one[name].tolist()
        for interval in one["intervals"].values():
            del interval["estimate"]  # it is the value
    return plain
