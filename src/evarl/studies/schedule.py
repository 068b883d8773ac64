"""Runs a grid of jobs: what is finished is left alone, what is needed comes first, what fails does not stop the rest."""

import time
from dataclasses import dataclass
from typing import Protocol

from evarl.studies.jobs import Job, Store, required

LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Ended:
    """How a worker ended: `failure` is one line, None if the job is finished."""

    failure: str | None = None


class Workers(Protocol):
    """Where jobs are done."""

    def free(self) -> int:
        """How many more jobs can be begun now."""

    def begin(self, job: Job) -> None:
        """Begin a job; called only when one is free."""

    def ended(self) -> dict[str, Ended]:
        """Jobs, by name, that have ended since this was last asked."""

    def stop(self) -> None:
        """At the end, good or bad: have workers that still run save what they have, and wait for them."""


class Watcher(Protocol):
    """Shows how far the work is."""

    def show(self, finished: int, failed: int, running: list[Job]) -> None:
        """Called several times a second."""


def run_jobs(jobs: list[Job], store: Store, workers: Workers, watcher: Watcher) -> dict[str, str]:
    """Do all jobs that are not finished; returns those that failed, by name, with a line that says why.

    Long jobs are begun first among those whose needs are met, so that no long one is left for the end.
    """
    everything = required(jobs, store)
    failures: dict[str, str] = {}
    finished = {job.name for job in everything if store.finished(job)}
    waiting = [job for job in everything if job.name not in finished]
    waiting.sort(key=lambda job: -_weight_behind(job, everything))
    running: dict[str, Job] = {}
    try:
        while waiting or running:
            for name, ended in workers.ended().items():
                job = running.pop(name)
                if ended.failure is not None:
                    failures[name] = ended.failure
                elif store.finished(job):
                    finished.add(name)
                else:
                    failures[name] = "the worker ended without a result"
            for job in [job for job in waiting if any(needed.name in failures for needed in job.needs.values())]:
                waiting.remove(job)
                failed = next(needed.name for needed in job.needs.values() if needed.name in failures)
                failures[job.name] = f"was not begun: it needs {failed}, which failed"
            ready = [job for job in waiting if all(needed.name in finished for needed in job.needs.values())]
            for job in ready[: workers.free()]:
                waiting.remove(job)
                running[job.name] = job
                workers.begin(job)
            watcher.show(len(finished), len(failures), list(running.values()))
            if waiting or running:
                time.sleep(LOOK_SECONDS)
    finally:
        workers.stop()
    return failures


def _weight_behind(job: Job, everything: list[Job]) -> float:
    """The job's own weight, or that of the heaviest job that waits for it."""
    behind = [other.weight for other in everything if job.name in {needed.name for needed in other.needs.values()}]
    return max([job.weight, *behind])
