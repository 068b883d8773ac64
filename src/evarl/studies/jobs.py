"""Jobs, and the folder that stores their results. No JAX."""

import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evarl.errors import EvarlError, FileError, InputError, plain_text
from evarl.storage.files import check_regular, write_bytes
from evarl.storage.plain import read_json, seal, unseal

LONGEST = 2**20
"""Maximum size, in bytes, of the list of the processes that worked on a job."""


class JobTakenError(EvarlError):
    """Another process is working on this job."""


@dataclass(frozen=True)
class Job:
    """A task and its settings, as plain data: what one worker runs."""

    label: str
    """Short description that can be part of a file name."""
    task: str
    """Name of a function in `evarl.studies.tasks.TASKS`."""
    settings: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, "Job"] = field(default_factory=dict)
    """Jobs whose files it uses, by role."""
    weight: float = 1.0
    """Approximate duration relative to other jobs, for the overall progress and the order of jobs."""

    @functools.cached_property
    def name(self) -> str:
        """The label and eight hexadecimal digits of the hash of task, settings and needs."""
        needs = {part: job.name for part, job in self.needs.items()}
        text = json.dumps([self.task, self.settings, needs], sort_keys=True)
        return f"{self.label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data, to be sent to a worker."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        """The job that `to_dict` described."""
        return cls(**data | {"needs": {part: cls.from_dict(job) for part, job in data["needs"].items()}})


def with_needs(jobs: list[Job], store: "Store | None" = None) -> list[Job]:
    """The jobs and all jobs that they need, each once, needed ones first.

    With a store, the needs of jobs that are finished there are left out: their results are not used any more.
    """
    found: dict[str, Job] = {}

    def add(job: Job) -> None:
        for needed in () if store is not None and store.finished(job) else job.needs.values():
            add(needed)
        found.setdefault(job.name, job)

    for job in jobs:
        add(job)
    return list(found.values())


@dataclass(frozen=True)
class Store:
    """A folder with results in `jobs`, files that other jobs use in `files` and unfinished work in `work`.

    A result is written once, when all of its job is done; what is in `work` may be deleted then.
    """

    folder: Path

    def result_file(self, job: Job) -> Path:
        """Path of the result of a finished job."""
        return self.folder / "jobs" / f"{job.name}.json"

    def file(self, job: Job) -> Path:
        """Path of the file that a job makes for other jobs."""
        return self.folder / "files" / f"{job.name}.safetensors"

    def work(self, job: Job) -> Path:
        """Working folder of a job."""
        return self.folder / "work" / job.name

    def finished(self, job: Job) -> bool:
        """Whether the result and the file of a job exist."""
        return self.result_file(job).exists() and (not self.record(job).get("file") or self.file(job).exists())

    def result(self, job: Job) -> dict[str, Any]:
        """The result of a finished job."""
        return self.record(job)["result"]

    def record(self, job: Job) -> dict[str, Any]:
        """The result with its provenance: settings, seconds, versions, machine."""
        path = self.result_file(job)
        if not os.path.lexists(path):
            raise FileError(f"{path}: is missing; run `evarl reproduce` again")
        try:
            kept = unseal(read_json(path), str(path))
        except FileError as error:
            raise FileError(f"{error}; delete it and run `evarl reproduce` again") from error
        if kept.get("job") != job.name or not isinstance(kept.get("result"), dict):
            raise FileError(f"{path}: corrupt (it belongs to another job); delete it and run `evarl reproduce` again")
        return kept

    def keep(self, job: Job, record: dict[str, Any]) -> None:
        """Write a job's result."""
        sealed = seal(record | {"job": job.name, "file": self.file(job).exists()})
        write_bytes(self.result_file(job), f"{json.dumps(sealed, ensure_ascii=False)}\n".encode())

    def report_progress(self, job: Job, share: float, text: str) -> None:
        """Write the progress of a job, for the display; not flushed to disk."""
        path = self.work(job) / "progress.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"share": share, "text": text}))
        os.replace(partial, path)

    def progress(self, job: Job) -> tuple[float, str]:
        """Progress of a job as last reported: the share that is done, and a text."""
        try:
            report = read_json(self.work(job) / "progress.json")
            return min(1.0, max(0.0, float(report["share"]))), plain_text(str(report["text"]))
        except (FileError, ValueError, KeyError, TypeError, OverflowError):
            return 0.0, ""

    @contextmanager
    def locked(self, job: Job) -> Iterator[int]:
        """Lock a job; yields how many processes have worked on it, this one included. The lock ends with the process."""
        folder = self.work(job)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(folder / "sittings"):
                check_regular(folder / "sittings", LONGEST)
            with (folder / "sittings").open("a+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise JobTakenError(f"{job.name}: another process is working on it") from error
                file.write(f"{os.getpid()}\n")
                file.flush()
                file.seek(0)
                yield len(file.readlines())
        except OSError as error:
            raise FileError(f"out: cannot work in {folder}: {error.strerror or error}") from error

    def check(self) -> None:
        """Raise an error if the folder cannot be used."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"out: {self.folder} is not a directory; choose another")
