"""Workers on this machine: one process per job, which runs `python -m evarl.studies.local FOLDER < JOB.json`."""

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from evarl.errors import EvarlError
from evarl.runs.provenance import commit, machine, source, versions
from evarl.stopping import Stopped
from evarl.storage.files import check_appendable, read_end
from evarl.studies.jobs import Job, JobTakenError, Store

END = 2**16
"""Bytes at the end of a worker's output that are searched for the reason of its failure."""
MOST = 4
"""Maximum number of workers by default: a compiled program uses several cores by itself."""
STOP_SECONDS = 120.0
"""Time that workers have to save when they are stopped."""
WAIT_SECONDS = 1.0
FAILED, STOPPED = 2, 130
PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>: the signal that a process gets when the one that started it ends, however it ends."""


def default_workers() -> int:
    """Default number of workers: the number of cores, up to 4."""
    return max(1, min(MOST, os.cpu_count() or 1))


def cores_of_each(count: int, most: int | None = None) -> list[set[int]]:
    """The cores of each of `count` workers: equally many of their own, at most `most`, or all where there are not enough.

    Programs that share two cores wait for one another in every small product: two jobs with a core each train a third faster.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [set()] * count
    here = sorted(os.sched_getaffinity(0))
    share = max(1, len(here) // count)
    each = [set(here[i * share : (i + 1) * share][:most]) for i in range(count)]
    return each if all(each) else [set(here[:most])] * count


class LocalWorkers:
    """Up to `count` processes, each on cores of its own; the output goes to `output.txt` in the job's folder."""

    def __init__(self, store: Store, count: int, cores: int | None = None):
        self._store, self._count = store, count
        self._cores = cores_of_each(count, cores)
        self._running: dict[str, tuple[Job, subprocess.Popen[bytes], set[int]]] = {}

    def free(self) -> int:
        """Number of jobs that can be started now."""
        return self._count - len(self._running)

    def start(self, job: Job) -> None:
        """Start a worker, in a session of its own so that it gets Ctrl-C only through `stop`."""
        folder = self._store.work(job)
        folder.mkdir(parents=True, exist_ok=True)
        check_appendable(folder / "output.txt")
        with (folder / "output.txt").open("ab") as output:
            command = [sys.executable, "-m", "evarl.studies.local", str(self._store.folder)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        cores = next(one for one in self._cores if self._cores.count(one) > self._users(one))
        if cores:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, cores)  # long before it counts them
        with contextlib.suppress(BrokenPipeError):  # it ended at once: `ended` reports why
            assert process.stdin is not None
            process.stdin.write(json.dumps(job.to_dict()).encode())
            process.stdin.close()
        self._running[job.name] = job, process, cores

    def ended(self) -> dict[str, str | None]:
        """Jobs whose process has ended, with the reason if it failed."""
        found = {}
        for name, (job, process, _) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                found[name] = self._reason(job, code) if code else None
        return found

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait; workers that take too long are killed."""
        for _, process, _ in self._running.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for _, process, _ in self._running.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _users(self, cores: set[int]) -> int:
        """Number of running workers that have these cores."""
        return sum(one == cores for _, _, one in self._running.values())

    def _reason(self, job: Job, code: int) -> str:
        path = self._store.work(job) / "output.txt"
        if code < 0:
            return f"the worker was killed by {signal.Signals(-code).name}; see {path}"
        lines = [line for line in read_end(path, END).decode(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1] if lines else f'exit code {code}'} (see {path})"


def work(folder: str, data: dict[str, Any], patience: float = 0.0) -> None:
    """Run a job to its end or to an interruption, after which another call resumes it. Finished jobs are skipped.

    While another process, such as a worker whose parent was killed, is working on the job, wait up to `patience` seconds.
    """
    # Runs store the paths of the files they use and resume only with the same paths, so the folder must be resolved.
    store, job = Store(Path(folder).resolve()), Job.from_dict(data)
    until = time.monotonic() + patience
    while True:
        try:
            return _work(job, store)
        except JobTakenError:
            if time.monotonic() >= until:
                raise
            time.sleep(WAIT_SECONDS)


def xla_flags() -> dict[str, str]:
    """The flags in XLA_FLAGS with their values, of which the last one counts: other flags may give other bits."""
    flags = (flag.partition("=") for flag in os.environ.get("XLA_FLAGS", "").split())
    return {name: value for name, _, value in flags}


def _work(job: Job, store: Store) -> None:
    with store.locked(job) as sittings:
        if store.finished(job):  # by a worker that was believed dead
            return
        from evarl.studies.tasks import TASKS  # imports JAX

        began = time.monotonic()
        result = TASKS[job.task](job, store)
        record = {
            "task": job.task,
            "settings": job.settings,
            "needs": {part: needed.name for part, needed in job.needs.items()},
            "result": result,
            "seconds": round(time.monotonic() - began, 1),
            "sittings": sittings,
            "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            "machine": machine(),
            "versions": versions(),
            "commit": commit(),
            "source": source(),
            "xla_flags": xla_flags(),
        }
        store.keep(job, record)


def main() -> None:
    """Exit with 0 when the job is finished, 130 or 143 when stopped, and 2, with a line on standard error, if it failed."""
    with contextlib.suppress(OSError, AttributeError):  # not on other systems than Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        work(sys.argv[1], json.load(sys.stdin), math.inf)
    except KeyboardInterrupt as stopped:
        sys.exit(stopped.exit_code if isinstance(stopped, Stopped) else STOPPED)
    except EvarlError as error:
        print(error, file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    else:
        return
    sys.exit(FAILED)


if __name__ == "__main__":
    main()
