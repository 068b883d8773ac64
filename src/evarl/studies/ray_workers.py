"""Workers on a Ray cluster, which may be one started on this machine: one Ray task per job. Ray is optional."""

import dataclasses
import logging
import os
import socket
import traceback
import uuid
from pathlib import Path
from typing import Any

from evarl.errors import EvarlError, FileError, InputError
from evarl.storage.files import check_appendable
from evarl.studies.jobs import Job, Store
from evarl.studies.local import default_workers, work

DEATHS = 5
"""Number of times that the worker of a job may die before the job counts as failed."""
STOP_SECONDS = 60.0
"""Time that workers have to save when they are stopped; then they are killed."""
TAKEN_SECONDS = 120.0
"""Time that a job waits for the lock of a dead worker: on network file systems a lock outlives its machine for a while."""
KNOCK_SECONDS = 10.0
"""Time that a cluster has to accept a connection."""
UNSEEN = "unseen"
"""Returned by a job whose folder does not exist on its node."""
OBJECT_STORE_BYTES = 100 * 2**20
"""Object store of a Ray started here: it holds jobs and single lines; everything else is in the store's folder."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # jobs reserve no GPU and see those of their node
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # Ray's messages about dead workers would go to standard output
}
"""Environment variables that Ray reads when it is imported."""


class RayWorkers:
    """One Ray task per job, on one core; a job whose worker dies is started again and resumes from its checkpoint.

    Args:
        store: its folder must be on storage that all nodes see under the same path. Every job looks for a file that is
            put there now; if one does not find it, `ended` raises an `InputError`.
        address: of the cluster ("auto" for one that runs on this machine), which must have this version of evarl
            installed. None starts a Ray on this machine that ends with us.
        count: jobs at the same time, at the most; by default one for each core of the cluster.
    """

    def __init__(self, store: Store, address: str | None, count: int | None):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError as error:
            raise InputError("engine: ray is not installed; pip install 'evarl[ray]'") from error
        self._ray, self._count = ray, count
        self._store = dataclasses.replace(store, folder=store.folder.resolve())
        self._running: dict[str, Any] = {}
        self._mark = self._store.folder / f".seen-by-all-{uuid.uuid4().hex[:8]}"
        try:
            self._store.folder.mkdir(parents=True, exist_ok=True)
            self._mark.touch()
        except OSError as error:
            raise FileError(f"out: cannot work in {store.folder}: {error.strerror or error}") from error
        self._ours = not ray.is_initialized()
        if self._ours:
            self._connect(address)
        # A worker runs one job and ends, so that neither memory nor state of JAX is kept, and the job's lock ends with it.
        self._do = ray.remote(num_cpus=1, max_calls=1, max_retries=DEATHS)(_do)

    def free(self) -> int:
        """Number of jobs that can be started now; at least one in all, so that a cluster that grows on demand does."""
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        return (self._count or max(1, cores)) - len(self._running)

    def start(self, job: Job) -> None:
        """Submit a job to Ray."""
        task = self._do.options(name=job.name)
        self._running[job.name] = task.remote(str(self._store.folder), job.to_dict(), str(self._mark))

    def ended(self) -> dict[str, str | None]:
        """Jobs whose task has ended, with the reason if it failed."""
        if not self._running:
            return {}
        over = set(self._ray.wait(list(self._running.values()), num_returns=len(self._running), timeout=0)[0])
        return {name: self._how(name) for name, task in list(self._running.items()) if task in over}

    def stop(self) -> None:
        """Ask every worker to save and stop, wait, and shut down Ray if it was started here."""
        if self._ray.is_initialized():
            tasks = list(self._running.values())
            for task in tasks:
                self._ray.cancel(task)  # runs the worker's handler of SIGINT: training saves and stops
            late = self._ray.wait(tasks, num_returns=len(tasks), timeout=STOP_SECONDS)[1] if tasks else []
            for task in late:
                self._ray.cancel(task, force=True)
            if self._ours:
                self._ray.shutdown()
        self._running.clear()
        self._mark.unlink(missing_ok=True)

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            address = "local"  # for Ray, None is any cluster that it finds
            cores = self._count or default_workers()
            options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES, "num_cpus": cores}
        try:
            _knock(address)
            self._ray.init(address=address, **options)
        except (OSError, RuntimeError, ValueError) as error:
            self._mark.unlink(missing_ok=True)
            raise InputError(f"engine: no Ray at {address}: {_line(error.__cause__ or error)}") from error

    def _how(self, name: str) -> str | None:
        try:
            failure = self._ray.get(self._running.pop(name))
        except self._ray.exceptions.TaskCancelledError:
            return "the worker was stopped"
        except self._ray.exceptions.WorkerCrashedError:
            return f"the worker died {DEATHS + 1} times"
        except self._ray.exceptions.RayError as error:
            return _line(error)
        if failure == UNSEEN:
            raise InputError(
                f"out: a Ray worker does not see {self._store.folder}; choose a folder on storage that all nodes share"
            )
        return failure


def _do(folder: str, data: dict[str, Any], mark: str) -> str | None:
    """Run a job in a Ray worker; returns the failure as one line. Ray calls this again if the worker dies."""
    if not Path(mark).exists():
        return UNSEEN
    try:
        work(folder, data, TAKEN_SECONDS)
        return None
    except EvarlError as error:
        return str(error)
    except Exception as error:
        path = Store(Path(folder)).work(Job.from_dict(data)) / "output.txt"
        check_appendable(path)
        with path.open("a") as output:
            traceback.print_exc(file=output)
        return f"{_line(error)} (see {path})"


def _knock(address: str) -> None:
    """Fail at once if no server listens at the address: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def _line(error: BaseException) -> str:
    """An exception as one line: its type and the last line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"
