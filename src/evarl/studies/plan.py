"""What is left of a study: its unfinished jobs, and how long they may take by the finished jobs of a store. Runs nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from evarl.errors import EvarlError, FileError
from evarl.learning.presets import studied
from evarl.runs.provenance import can_repeat, machine
from evarl.storage.plain import read_json, unseal
from evarl.studies.jobs import Job, Store, with_needs

UNKNOWN = "not known"
SEEDS = re.compile(r"-seeds-\d+-\d+$")
"""What follows the condition in the label of a job."""


@dataclass(frozen=True)
class Kind:
    """What jobs must share for the time of one to tell that of the other."""

    task: str
    family: str
    """The preset; the label where there is none."""
    world: str
    mode: str
    """Kind of evaluator, `passive` for one beside ordinary training, and the algorithm; only of training."""
    network: str = ""
    """Of the evaluator, where it is not the preset's: some take twenty times as long as others."""

    def likeness(self, other: "Kind") -> str | None:
        """What both share, in words; None if one says nothing of the other."""
        if self == other:
            return "world and kind"
        if self.network != other.network:
            return None
        if (self.task, self.world) == (other.task, other.world):
            return "world"
        return "family" if (self.task, self.family) == (other.task, other.family) else None


LIKENESS = ("world and kind", "world", "family")
"""From the nearest on."""


@dataclass(frozen=True)
class Size:
    """How much a job does."""

    seeds: int
    steps: int | None
    """Of one seed, if the job trains."""
    amount: float
    """What its time is proportional to, but for compilation and evaluation: seeds × steps where it trains."""


@dataclass(frozen=True)
class Timing:
    """How long a finished job took, in seconds."""

    kind: Kind
    compiling: float
    rate: float
    """For a unit of `Size.amount`."""
    evaluating: float | None
    """For each seed; None if the job was interrupted, when it is not known."""
    here: bool
    """Whether it ran on this machine."""


@dataclass(frozen=True)
class Estimate:
    """How long a job may take, and what that is based on."""

    seconds: float | None
    basis: str


@dataclass(frozen=True)
class PlannedCondition:
    """The unfinished jobs of one condition."""

    condition: str
    jobs: int
    seeds: int
    which: str
    """The seeds, as text; empty for what has none."""
    steps: int | None
    """Of each seed."""
    hours: float | None
    """One job after the other; None if not known."""
    disk_megabytes: float
    """Of the log that a job keeps while it runs, the largest."""
    basis: str
    """What the hours are estimated from."""


def plan(jobs: list[Job], store: Store) -> list[PlannedCondition]:
    """The unfinished jobs, and those that they need, by condition."""
    timings = known_timings(store)
    groups: dict[str, list[Job]] = {}
    for job in with_needs(jobs, store):
        if not store.finished(job):
            groups.setdefault(SEEDS.sub("", job.label), []).append(job)
    return [_planned(name, group, timings) for name, group in groups.items()]


def total_hours(rows: Iterable[PlannedCondition]) -> tuple[float, int]:
    """The sum of the hours that are known, and the number of conditions whose hours are not."""
    hours = [row.hours for row in rows]
    return sum(one for one in hours if one is not None), hours.count(None)


def known_timings(store: Store) -> list[Timing]:
    """Timings of all finished jobs of a store, whichever study they belong to; damaged files are left out."""
    found = []
    for path in sorted((store.folder / "jobs").glob("*.json")):
        try:
            found.append(_timing(path))
        except (EvarlError, KeyError, TypeError, ValueError):  # of another version, whose settings have other names
            continue
    return [one for one in found if one is not None]


def estimate(job: Job, timings: list[Timing]) -> Estimate:
    """How long a job may take: medians of the most similar finished ones, in proportion to what it does."""
    kind, size = kind_of(job.task, job.settings, job.label), size_of(job.task, job.settings)
    for likeness in LIKENESS:
        like = [one for one in timings if kind.likeness(one.kind) == likeness]
        if like:
            evaluating = [one.evaluating for one in like if one.evaluating is not None]
            seconds = median(one.compiling for one in like) + median(one.rate for one in like) * size.amount
            seconds += (median(evaluating) if evaluating else 0.0) * size.seeds
            return Estimate(seconds, _basis(likeness, like, bool(evaluating)))
    return Estimate(None, UNKNOWN)


def kind_of(task: str, settings: dict[str, Any], label: str) -> Kind:
    """The kind of a job."""
    changes = settings.get("changes", {})
    mode = ""
    if task == "train":
        passive = not changes.get("beta") and changes.get("evaluator_mode") != "frozen"
        mode = f"{'passive' if passive else changes.get('evaluator_mode')}, {changes.get('agent.algorithm', 'a2c')}"
    network = changes.get("evaluator.network.kind", "")
    return Kind(task, settings.get("preset", label), changes.get("world", label), mode, network)


def size_of(task: str, settings: dict[str, Any]) -> Size:
    """How much a job does, from its settings."""
    if "preset" not in settings:
        return Size(1, None, float(settings.get("trials", 1)))
    changes = settings["changes"]
    config = studied(settings["preset"], changes)
    batch = config.environments * config.steps
    if task == "assessment":  # most of it is training of a base policy
        return Size(1, None, float(batch * config.assessment.base_updates))
    seeds, steps = settings.get("seeds", changes.get("seeds", 1)), batch * config.updates
    return Size(seeds, steps, float(prod((seeds, steps))))


def _timing(path: Path) -> Timing | None:
    """The timing in a job's file; None if it has none."""
    record = unseal(read_json(path), str(path))
    if not isinstance(record.get("result"), dict):
        raise FileError(f"{path}: is not the result of a job")
    task, settings, label = record["task"], record["settings"], path.stem.rpartition("-")[0]
    kind, size = kind_of(task, settings, label), size_of(task, settings)
    seconds, training, here = (
        record["seconds"],
        record["result"].get("training"),
        can_repeat(record.get("machine"), machine()),
    )
    if task != "train":
        whole = seconds is not None and record.get("sittings") == 1
        return Timing(kind, 0.0, seconds / size.amount, 0.0, here) if whole else None
    if not training or training.get("seconds") is None:
        return None
    compiling = training.get("compile_seconds", 0.0)
    rest = None
    if record.get("sittings") == 1 and seconds is not None:
        rest = max(0.0, seconds - compiling - training["seconds"]) / size.seeds
    return Timing(kind, compiling, training["seconds"] / size.amount, rest, here)


def _basis(likeness: str, like: list[Timing], evaluated: bool) -> str:
    """What an estimate is based on, in words."""
    jobs = f"{len(like)} finished job{'s' if len(like) > 1 else ''} of the same {likeness}"
    elsewhere = "" if all(one.here for one in like) else ", on another machine"
    return jobs + elsewhere + ("" if evaluated else ", without evaluation")


def _planned(name: str, jobs: list[Job], timings: list[Timing]) -> PlannedCondition:
    sizes = [size_of(job.task, job.settings) for job in jobs]
    found = [estimate(job, timings) for job in jobs]
    known = [one.seconds for one in found if one.seconds is not None]
    logs = [job.settings.get("log_megabytes", 0.0) * size.seeds for job, size in zip(jobs, sizes, strict=True)]
    return PlannedCondition(
        condition=name,
        jobs=len(jobs),
        seeds=sum(size.seeds for size in sizes),
        which=", ".join(_which(job) for job in jobs if job.task == "train"),
        steps=sizes[0].steps,
        hours=sum(known) / 3600 if len(known) == len(found) else None,
        disk_megabytes=float(max(logs)),
        basis=found[0].basis,
    )


def _which(job: Job) -> str:
    """The seeds of a training job."""
    first, count = job.settings["changes"]["seed"], job.settings["changes"]["seeds"]
    return str(first) if count == 1 else f"{first} to {first + count - 1}"
