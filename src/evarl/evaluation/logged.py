"""Off-policy evaluation of the final policies of a run from the log of its training."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from evarl.ope.configuration import LogSettings, Method
from evarl.ope.estimation import CollapsedWeights, Estimate, estimate
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run

DEFAULT = LogSettings()


@dataclass(frozen=True)
class LoggedSeed:
    """One seed's final policy, from its own log."""

    seed: int
    trajectories: int
    steps: int
    estimates: dict[Method, Estimate]


def estimate_run(
    run: Run | str | Path,
    seeds: Sequence[int] | None = None,
    settings: LogSettings = DEFAULT,
    say: Callable[[str], None] = lambda line: None,
) -> list[LoggedSeed]:
    """J of the final policy of each seed."""
    run = run if isinstance(run, Run) else Run.load(run)
    keep_compiled_programs()
    settings.validate()
    chosen = run.seeds if seeds is None else list(seeds)
    found = []
    for seed in chosen:
        say(f"{run.path}: seed {seed}")
        found.append(estimate_seed(run, seed, settings))
    return found


def estimate_seed(
    run: Run, seed: int, settings: LogSettings, states: Array | np.ndarray | None = None, times: Any = None
) -> LoggedSeed:
    """J of one seed's final policy, and V at given states."""
    data = run.logged_data(seed, settings.updates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedWeights)  # they are part of what is returned
        estimates = estimate(
            data,
            run.target_policy(seed),
            states,
            discount=run.config.discount,
            methods=settings.methods,
            rule=settings.rule,
            query_times=times,
            fqe=settings.fqe,
            fqe_refits=settings.fqe_refits,
            value_range=settings.range,
            clip=settings.clip,
            confidence=settings.confidence,
            resamples=settings.resamples,
            seed=settings.random_seed,
        )
    return LoggedSeed(seed, data.trajectories, int(np.asarray(data.mask).sum()), estimates)


def logged_record(found: LoggedSeed) -> dict[str, Any]:
    """As plain data for JSON."""
    plain = {}
    for method, one in found.estimates.items():
        plain[method] = dataclasses.asdict(one)
        plain[method]["state_values"] = None if one.state_values is None else one.state_values.tolist()
    return {"seed": found.seed, "trajectories": found.trajectories, "steps": found.steps, "estimates": plain}
