"""Workers on this machine: one process per job."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from evarl.storage.files import check_appendable, read_end
from evarl.studies.jobs import Job, Store
from evarl.studies.schedule import Ended

END = 2**16
"""Bytes at the end of a worker's output that are searched for the reason of its failure."""
MOST = 4
"""Maximum number of workers by default: a compiled program uses several cores by itself."""


STOP_SECONDS = 120.0
"""Time that workers have to save when they are stopped."""


def default_workers() -> int:
    """Default number of workers: the number of cores, up to 4."""
    return max(1, min(MOST, os.cpu_count() or 1))


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]


class LocalWorkers:
    """Up to `count` processes; the output of each goes to `output.txt` in the job's folder."""

    def __init__(self, store: Store, count: int):
        self._store, self._count = store, count
        self._running: dict[str, _Running] = {}

    def free(self) -> int:
        """Number of jobs that can be started now."""
        return self._count - len(self._running)

    def start(self, job: Job) -> None:
        """Start a worker, in a session of its own so that it gets Ctrl-C only through `stop`."""
        folder = self._store.work(job)
        folder.mkdir(parents=True, exist_ok=True)
        check_appendable(folder / "output.txt")
        with (folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "evarl.studies.worker", str(self._store.folder)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        with contextlib.suppress(BrokenPipeError):  # it ended at once: `ended` reports why
            assert process.stdin is not None
            process.stdin.write(json.dumps(job.to_dict()).encode())
            process.stdin.close()
        self._running[job.name] = _Running(job, process)

    def ended(self) -> dict[str, Ended]:
        """Jobs whose process has ended."""
        found = {}
        for name, one in list(self._running.items()):
            code = one.process.poll()
            if code is not None:
                del self._running[name]
                found[name] = Ended(None if code == 0 else self._reason(one.job, code))
        return found

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait; workers that take too long are killed."""
        for one in self._running.values():
            one.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for one in self._running.values():
            try:
                one.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()

    def _reason(self, job: Job, code: int) -> str:
        path = self._store.work(job) / "output.txt"
        lines = [line for line in read_end(path, END).decode(errors="replace").splitlines() if line.strip()]
        if code < 0:
            return f"the worker was killed by {signal.Signals(-code).name}; see {path}"
        return f"{lines[-1] if lines else f'exit code {code}'} (see {path})"
