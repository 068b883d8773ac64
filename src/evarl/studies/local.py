"""Workers on this machine: a process for each job."""

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
"""Bytes at the end of a worker's output in which the reason of its failure stands."""
MOST = 4
"""Workers by default, at the most: a compiled program keeps several cores busy by itself."""


STOP_SECONDS = 120.0
"""How long workers may take to save when they are stopped."""


def default_workers() -> int:
    """As many as there are cores, up to a few."""
    return max(1, min(MOST, os.cpu_count() or 1))


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]


class LocalWorkers:
    """Up to `count` processes; what each of them prints goes to `output.txt` in the job's folder."""

    def __init__(self, store: Store, count: int):
        self._store, self._count = store, count
        self._running: dict[str, _Running] = {}

    def free(self) -> int:
        """How many more can be begun."""
        return self._count - len(self._running)

    def begin(self, job: Job) -> None:
        """Start a worker. It is in a session of its own, so that Ctrl-C reaches it through us, once."""
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
        with contextlib.suppress(BrokenPipeError):  # it died at once: `ended` will say why
            assert process.stdin is not None
            process.stdin.write(json.dumps(job.to_dict()).encode())
            process.stdin.close()
        self._running[job.name] = _Running(job, process)

    def ended(self) -> dict[str, Ended]:
        """Those whose process is gone."""
        found = {}
        for name, one in list(self._running.items()):
            code = one.process.poll()
            if code is not None:
                del self._running[name]
                found[name] = Ended(None if code == 0 else self._reason(one.job, code))
        return found

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait; one that takes too long is killed."""
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
