"""Runs one job in a process of its own: `python -m evarl.studies.worker FOLDER < JOB.json`."""

import contextlib
import ctypes
import json
import math
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from evarl.errors import EvarlError
from evarl.runs.provenance import commit, machine, versions
from evarl.stopping import Stopped
from evarl.studies.jobs import Job, JobTakenError, Store

FAILED, STOPPED = 2, 130
PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""
WAIT_SECONDS = 1.0


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


def _work(job: Job, store: Store) -> None:
    with store.locked(job) as sittings:
        if store.finished(job):  # by a worker that was believed dead
            return
        from evarl.studies.tasks import TASKS  # imports JAX

        began = time.monotonic()
        result = TASKS[job.task](job, store)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        store.keep(
            job,
            {
                "task": job.task,
                "settings": job.settings,
                "needs": {part: needed.name for part, needed in job.needs.items()},
                "result": result,
                "seconds": round(time.monotonic() - began, 1),
                "sittings": sittings,
                "peak_memory_gib": round(usage.ru_maxrss / 2**20, 2),
                "machine": machine(),
                "versions": versions(),
                "commit": commit(),
            },
        )


def main() -> None:
    """Exit with 0 when the job is finished, 130 or 143 when stopped, and 2, with a line on standard error, if it failed."""
    _end_with_parent()
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


def _end_with_parent() -> None:
    """Make Linux send SIGTERM when the process that started this worker ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):  # not on other systems
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
