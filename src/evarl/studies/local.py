"""Workers on this machine: one process per job."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from evarl.storage.files import check_appendable, read_end
from evarl.studies.jobs import Job, Store

END = 2**16
"""Bytes at the end of a worker's output that are searched for the reason of its failure."""
MOST = 4
"""Maximum number of workers by default: a compiled program uses several cores by itself."""
STOP_SECONDS = 120.0
"""Time that workers have to save when they are stopped."""


def default_workers() -> int:
    """Default number of workers: the number of cores, up to 4."""
    return max(1, min(MOST, os.cpu_count() or 1))


class LocalWorkers:
    """Up to `count` processes; the output of each goes to `output.txt` in the job's folder."""

    def __init__(self, store: Store, count: int):
        self._store, self._count = store, count
        self._running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}

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
        self._running[job.name] = job, process

    def ended(self) -> dict[str, str | None]:
        """Jobs whose process has ended, with the reason if it failed."""
        found = {}
        for name, (job, process) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                found[name] = self._reason(job, code) if code else None
        return found

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait; workers that take too long are killed."""
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for _, process in self._running.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _reason(self, job: Job, code: int) -> str:
        path = self._store.work(job) / "output.txt"
        if code < 0:
            return f"the worker was killed by {signal.Signals(-code).name}; see {path}"
        lines = [line for line in read_end(path, END).decode(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1] if lines else f'exit code {code}'} (see {path})"
