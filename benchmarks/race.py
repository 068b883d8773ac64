"""Programs side by side: each in a process of its own, their repetitions in turn. Standard library only.

Workers are started one after the other, so that no compilation competes with another; afterwards they wait for a line on
their standard input, and only one of them runs at a time. The parent stays small, because the peak memory of a process is
never less than that of the process it was started from.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

Measured = dict[str, Any]
"""Of one program: what it says when it is ready, `seconds` of each repetition (and of each of its `parts`), `warmup_seconds`
of the one before them, `cold_seconds` and `compile_seconds` without and with a cache of compiled programs, `updates`, and
`peak_gib` (and `cold_peak_gib` of the process that filled the cache). Or, if it broke down, `failed`: where to read why."""


@dataclass(frozen=True)
class Task:
    """How a worker is started."""

    command: tuple[str, ...]
    updates: int
    """Policy updates in one repetition, for those who want to know the time of one."""
    cold: bool = True
    """Whether to start it twice, with `--cache` and an empty directory first."""


class WorkerFailed(Exception):  # noqa: N818
    """A worker ended before its time."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in mid-race; `found` has the repetitions that all programs had completed, none if that is the first."""

    def __init__(self, found: dict[str, Measured]):
        super().__init__()
        whole = min((len(one["seconds"]) for one in found.values() if "seconds" in one), default=0)
        self.found = {name: _first(one, whole) for name, one in found.items() if whole and "seconds" in one}


class Worker:
    """A process that speaks the protocol of `benchmarks.peers.protocol`."""

    def __init__(self, command: list[str], log: Path):
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
        self.ready = self._answer()

    def repeat(self) -> dict[str, Any]:
        """Run one repetition."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerFailed(f"ended early; see {self._log.name}") from error
        return self._answer()

    def close(self) -> float:
        """End it; says its peak memory in GiB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak: float = self._answer()["peak_gib"]
        self._process.wait()
        return peak

    def stop(self) -> None:
        """End it whatever it does, if it has not ended."""
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(OSError), self._process:  # closes its pipes and waits
            pass

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise WorkerFailed(f"ended early; see {self._log.name}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def race(title: str, tasks: Mapping[str, Task], repeats: int, logs: Path, cold: bool = True) -> dict[str, Measured]:
    """Start all, run a repetition of each in turn, again and again, and end all. A program that fails is left out."""
    logs.mkdir(parents=True, exist_ok=True)
    found: dict[str, Measured] = {}
    try:
        _race(title, tasks, repeats, logs, cold, found)
    except KeyboardInterrupt:
        raise Interrupted(found) from None
    return found


def _race(
    title: str, tasks: Mapping[str, Task], repeats: int, logs: Path, cold: bool, found: dict[str, Measured]
) -> None:
    """Put what is measured into `found`."""
    workers: dict[str, Worker] = {}
    with contextlib.ExitStack() as stack:
        for number, (name, task) in enumerate(tasks.items()):
            log = logs / f"{_file_name(title)}-{_file_name(name)}.log"
            log.unlink(missing_ok=True)
            cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            keeping = ["--cache", cache] if cold and task.cold else []
            found[name] = {"updates": task.updates}
            label = f"{title}, {name} ({number + 1} of {len(tasks)})"
            try:
                if keeping:
                    _say(f"{label}: compiles with an empty cache")
                    worker = Worker([*task.command, *keeping], log)
                    stack.callback(worker.stop)
                    found[name]["cold_seconds"] = worker.ready["compile_seconds"]
                    found[name]["cold_peak_gib"] = worker.close()
                _say(f"{label}: compiles")
                workers[name] = worker = Worker([*task.command, *keeping], log)
                stack.callback(worker.stop)
                found[name] |= worker.ready | {"seconds": []}
            except WorkerFailed as failure:
                _fail(label, found, name, failure)
        for repetition in range(repeats + 1):
            _say(f"{title}: " + (f"repetition {repetition} of {repeats}" if repetition else "warms up"))
            for name, worker in list(workers.items()):
                try:
                    _note(found[name], worker.repeat(), warm=repetition > 0)
                except WorkerFailed as failure:
                    _fail(f"{title}, {name}", found, name, failure)
                    del workers[name]
        for name, worker in workers.items():
            found[name]["peak_gib"] = worker.close()


def _first(measured: Measured, repetitions: int) -> Measured:
    """The first repetitions of a program."""
    parts = {name: seconds[:repetitions] for name, seconds in measured.get("parts", {}).items()}
    return measured | {"seconds": measured["seconds"][:repetitions]} | ({"parts": parts} if parts else {})


def _note(measured: Measured, answer: dict[str, Any], warm: bool) -> None:
    """The first repetition touches fresh memory and is kept apart."""
    if not warm:
        measured["warmup_seconds"] = answer["seconds"]
        return
    measured["seconds"].append(answer["seconds"])
    for part, seconds in answer.get("parts", {}).items():
        measured.setdefault("parts", {}).setdefault(part, []).append(seconds)


def _fail(label: str, found: dict[str, Measured], name: str, failure: WorkerFailed) -> None:
    found[name] = {"failed": str(failure)}
    _say(f"{label}: {failure}; goes on without it")


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
