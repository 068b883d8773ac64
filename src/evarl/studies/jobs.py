"""Pieces of work that are done once, and the folder that keeps what came of them. No JAX."""

import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evarl.errors import EvarlError, FileError, InputError, plain_text
from evarl.storage.files import check_regular, write_bytes
from evarl.storage.plain import read_json, seal, unseal

LONGEST = 2**20
"""Bytes of the list of a job's sittings."""


class JobTakenError(EvarlError):
    """Another process is at this job."""


@dataclass(frozen=True)
class Job:
    """What one worker does: a task and its settings, as plain data."""

    label: str
    """For people: what it is, in a few words that fit into a file name."""
    task: str
    """Which function of `evarl.studies.tasks`."""
    settings: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, "Job"] = field(default_factory=dict)
    """Jobs whose files it uses, by the part they play."""
    weight: float = 1.0
    """Roughly how long it takes, relative to others: for the overall progress and for what is begun first."""

    @functools.cached_property
    def name(self) -> str:
        """The label and eight digits that change with everything the numbers depend on."""
        needs = {part: job.name for part, job in self.needs.items()}
        text = json.dumps([self.task, self.settings, needs], sort_keys=True)
        return f"{self.label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for a worker elsewhere."""
        needs = {part: job.to_dict() for part, job in self.needs.items()}
        return {
            "label": self.label,
            "task": self.task,
            "settings": self.settings,
            "needs": needs,
            "weight": self.weight,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        """What `to_dict` gave."""
        return cls(**data | {"needs": {part: cls.from_dict(job) for part, job in data["needs"].items()}})


def with_needs(jobs: list[Job]) -> list[Job]:
    """The jobs and all that they need, each once, needed ones first."""
    found: dict[str, Job] = {}

    def add(job: Job) -> None:
        for needed in job.needs.values():
            add(needed)
        found.setdefault(job.name, job)

    for job in jobs:
        add(job)
    return list(found.values())


def required(jobs: list[Job], store: "Store") -> list[Job]:
    """The jobs, and those that the unfinished ones need, each once, needed ones first.

    What only finished jobs needed is left out: it need not be there any more.
    """
    found: dict[str, Job] = {}

    def add(job: Job) -> None:
        for needed in () if store.finished(job) else job.needs.values():
            add(needed)
        found.setdefault(job.name, job)

    for job in jobs:
        add(job)
    return list(found.values())


@dataclass(frozen=True)
class Store:
    """A folder: results in `jobs`, files that other jobs use in `files`, unfinished work in `work`.

    A result is written once, when all of its job is done; what is in `work` may be deleted then.
    """

    folder: Path

    def result_file(self, job: Job) -> Path:
        """Where a job's result is, when it is finished."""
        return self.folder / "jobs" / f"{job.name}.json"

    def file(self, job: Job) -> Path:
        """The one file that a job makes for others."""
        return self.folder / "files" / f"{job.name}.safetensors"

    def work(self, job: Job) -> Path:
        """Where a job works."""
        return self.folder / "work" / job.name

    def finished(self, job: Job) -> bool:
        """Whether there is a result, and the file it made."""
        return self.result_file(job).exists() and (not self._kept(job).get("file") or self.file(job).exists())

    def result(self, job: Job) -> dict[str, Any]:
        """What a finished job found."""
        return self._kept(job)["result"]

    def record(self, job: Job) -> dict[str, Any]:
        """The result with all that is told about it: settings, seconds, versions, machine."""
        return self._kept(job)

    def keep(self, job: Job, record: dict[str, Any]) -> None:
        """Write a job's result."""
        sealed = seal(record | {"job": job.name, "file": self.file(job).exists()})
        text = json.dumps(sealed, ensure_ascii=False)
        write_bytes(self.result_file(job), (text + "\n").encode())

    def say(self, job: Job, share: float, text: str) -> None:
        """Tell whoever watches how far a job is. Not worth a flush to disk."""
        path = self.work(job) / "progress.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"share": share, "text": text}))
        os.replace(partial, path)

    def progress(self, job: Job) -> tuple[float, str]:
        """How far a job is, as it last said."""
        try:
            said = read_json(self.work(job) / "progress.json")
            return min(1.0, max(0.0, float(said["share"]))), plain_text(str(said["text"]))
        except (FileError, ValueError, KeyError, TypeError, OverflowError):
            return 0.0, ""

    @contextmanager
    def taken(self, job: Job) -> Iterator[int]:
        """Work on a job, alone; yields how many sittings it has had, this one counted. The system lifts the lock."""
        folder = self.work(job)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(folder / "sittings"):
                check_regular(folder / "sittings", LONGEST)
            with (folder / "sittings").open("a+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise JobTakenError(f"{job.name}: another process is at it") from error
                file.write(f"{os.getpid()}\n")
                file.flush()
                file.seek(0)
                yield len(file.readlines())
        except OSError as error:
            raise FileError(f"out: cannot work in {folder}: {error.strerror or error}") from error

    def check(self) -> None:
        """Refuse a folder that cannot be used."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"out: {self.folder} is not a directory; choose another")

    def _kept(self, job: Job) -> dict[str, Any]:
        path = self.result_file(job)
        if not os.path.lexists(path):
            raise FileError(f"{path}: is missing; run the reproduction again")
        try:
            kept = unseal(read_json(path), str(path))
        except FileError as error:
            raise FileError(f"{error}; delete it and run the reproduction again") from error
        if kept.get("job") != job.name or not isinstance(kept.get("result"), dict):
            raise FileError(f"{path}: corrupt (it is of another job); delete it and run the reproduction again")
        return kept
