"""A stored result, computed once more: one seed of one finished training job, in a temporary folder.

Which comparison is made depends on where the stored numbers come from:

- **The same bits.** On the same machine, with the same versions and the same source, the job's whole group of seeds is trained
  and evaluated again, and everything that is stored of the checked seed must be equal. A seed alone does not have the bits that
  it has in its group, where operations on several seeds are batched: after ten updates of navigation its numbers already differ.
- **The spread over seeds.** Elsewhere rounding differs, and training multiplies such differences until the run is another one: a
  rerun says as much about the stored seed as a run with a new seed does. The seed is therefore trained alone, and each statistic
  must lie in the interval that holds the next value with probability 99 % if the n stored ones are normal,
  mean ± t s √(1 + 1/n), with t at the level of all statistics together (Bonferroni). With few seeds this finds only gross
  differences.
"""

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from evarl.errors import InputError
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.runs.provenance import can_repeat, commit, machine, source, versions
from evarl.studies.jobs import Job, Store, with_needs
from evarl.studies.local import xla_flags

LEVEL = 0.99
"""Probability that a rerun which differs in rounding only passes, if seeds are normal."""
FEWEST = 3
"""Seeds from which a spread is known."""

Run = Callable[[Job, Store, int | None], None]
"""Runs a job, and those that it needs, in a store, on so many cores (None for all)."""


@dataclass(frozen=True)
class Compared:
    """One number, stored and computed again."""

    what: str
    stored: float | None
    again: float | None
    interval: tuple[float, float] | None
    """In which it must lie; None where it must be equal."""

    @property
    def agrees(self) -> bool:
        """Whether the rerun confirms it."""
        if self.interval is None:
            return self.stored == self.again
        return self.again is not None and self.interval[0] <= self.again <= self.interval[1]


@dataclass(frozen=True)
class Checked:
    """A rerun of a seed, and what it was compared with."""

    job: str
    seed: int
    bits: bool
    """Whether everything that is stored of the seed had to be equal."""
    why: str
    """Why that comparison was made."""
    numbers: tuple[Compared, ...]
    equal: bool
    """Whether everything that is stored of the seed is equal."""

    @property
    def agrees(self) -> bool:
        """Whether the stored result is confirmed."""
        return self.equal if self.bits else all(one.agrees for one in self.numbers)


def finished_training(jobs: list[Job], store: Store) -> dict[str, list[Job]]:
    """Finished training jobs by condition."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.task == "train" and store.finished(job):
            found.setdefault(re.sub(r"-seeds-\d+-\d+$", "", job.label), []).append(job)
    return found


def choose(jobs: list[Job], store: Store, random_seed: int, count: int) -> tuple[list[Job], Job, list[int]]:
    """A condition, one of its finished jobs and some of the job's seeds, by chance."""
    known, rng = finished_training(jobs, store), random.Random(random_seed)
    if not known:
        raise InputError(f"check: no training job of this study is finished in {store.folder}")
    condition = known[rng.choice(sorted(known))]
    job = rng.choice(condition)
    first, seeds = (job.settings["changes"][name] for name in ("seed", "seeds"))
    if count > seeds:
        raise InputError(f"seeds-checked: {count} is not allowed; the job {job.name} has {seeds}")
    return condition, job, sorted(rng.sample(range(first, first + seeds), count))


def check(condition: list[Job], job: Job, seeds: list[int], store: Store, folder: Path, run: Run) -> list[Checked]:
    """Rerun seeds of a finished job of a condition in an empty folder, and compare."""
    record = store.record(job)
    other = differs(record)
    scratch = Store(folder)
    _copy_needs(job, store, scratch)
    if other is None:
        run(job, scratch, record["machine"].get("cores"))  # products on several threads add up in another order
        again = _rows(scratch.result(job))
        return [_bits(job, seed, _rows(store.result(job))[seed], again[seed]) for seed in seeds]
    rows = {seed: row for one in condition for seed, row in _rows(store.result(one)).items()}
    if len(rows) < FEWEST:
        raise InputError(f"check: {other}, and {len(rows)} stored seeds have no spread to compare with")
    found = []
    for seed in seeds:
        alone = alone_job(job, seed)
        run(alone, scratch, None)
        found.append(_spread(job, seed, rows, _rows(scratch.result(alone))[seed], other))
    return found


def differs(record: dict[str, Any]) -> str | None:
    """What of this program is not as it was when a result was computed; None if its bits can be compared."""
    if not can_repeat(record.get("machine"), machine()):
        return "it was computed on another machine"
    if record.get("versions") != versions():
        return "it was computed with other versions"
    if record.get("xla_flags", flags := xla_flags()) != flags:
        return "it was computed with other XLA_FLAGS"
    if "source" in record:
        return None if record["source"] == source() else "it was computed with another source"
    here = commit()
    same = here is not None and record.get("commit") == here and "+" not in here
    return None if same else "it was computed with another source"


def alone_job(job: Job, seed: int) -> Job:
    """The job with one of its seeds."""
    changes = job.settings["changes"] | {"seed": seed, "seeds": 1}
    return replace(job, label=f"{job.label}-checked-{seed}", settings=job.settings | {"changes": changes})


def statistics(row: dict[str, Any]) -> dict[str, float]:
    """Numbers of a seed that are compared with the spread: its return, and errors at each kind of states."""
    found = {"return": row["return"]}
    for kind, asked in row["queries"].items():
        for name in (EVALUATOR, CRITIC):
            score = asked["scores"].get(name, {}).get("mae")
            if score is not None:
                found[f"MAE of the {name}, {kind} states"] = score
    return found


def prediction_interval(values: list[float], level: float) -> tuple[float, float]:
    """The interval that holds one more of some normal numbers with a given probability.

    >>> low, high = prediction_interval([1.0, 2.0, 3.0], 0.95)
    >>> round(low, 4), round(high, 4)
    (-2.9683, 6.9683)
    """
    n, mean, deviation = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * deviation * (1 + 1 / n) ** 0.5
    return mean - half, mean + half


def _rows(result: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["seed"]: row for row in result["seeds"]}


def _copy_needs(job: Job, store: Store, scratch: Store) -> None:
    """Copy what the job needs and the store still has; what it has not is computed again."""
    for needed in with_needs(list(job.needs.values())):
        files = [(one.result_file(needed), one.file(needed)) for one in (store, scratch)]
        for old, new in zip(*files, strict=True) if store.finished(needed) else ():
            if old.exists():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(old, new)


def _bits(job: Job, seed: int, stored: dict[str, Any], again: dict[str, Any]) -> Checked:
    old, new = statistics(stored), statistics(again)
    numbers = tuple(Compared(name, old.get(name), new.get(name), None) for name in old | new)
    why = "same machine, versions and source: everything that is stored must be equal, so its whole group was run again"
    return Checked(job.name, seed, True, why, numbers, stored == again)


def _spread(job: Job, seed: int, rows: dict[int, dict[str, Any]], again: dict[str, Any], other: str) -> Checked:
    """The comparison of a seed that was run alone with the spread of the stored seeds of its condition."""
    old, new = {one: statistics(row) for one, row in rows.items()}, statistics(again)
    names = [name for name in new if all(name in row for row in old.values())]
    level = 1 - (1 - LEVEL) / len(names)
    numbers = []
    for name in names:
        bounds = prediction_interval([row[name] for row in old.values()], level)
        numbers.append(Compared(name, old[seed][name], new[name], bounds))
    why = (
        f"{other}, where training is another run after some updates: compared with the spread over {len(rows)} stored seeds, "
        f"within the {100 * LEVEL:g} % prediction interval of all numbers together"
    )
    return Checked(job.name, seed, False, why, tuple(numbers), rows[seed] == again)
