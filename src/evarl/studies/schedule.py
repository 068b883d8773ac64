"""Scheduler of jobs: needed jobs first, finished jobs skipped, failed jobs without effect on the others."""

import time
from collections.abc import Callable
from typing import Protocol

from evarl.studies.jobs import Job, Store, with_needs

LOOK_SECONDS = 0.25


class Workers(Protocol):
    """An engine that runs jobs."""

    def free(self) -> int:
        """Number of jobs that can be started now."""

    def start(self, job: Job) -> None:
        """Start a job; called only if `free` is positive."""

    def ended(self) -> dict[str, str | None]:
        """Names of the jobs that have ended since the last call, with the failure as one line or None for finished ones."""

    def stop(self) -> None:
        """Make running workers save and stop, and wait for them; always called at the end."""


def run_jobs(
    jobs: list[Job], store: Store, workers: Workers, watch: Callable[[int, int, list[Job]], None]
) -> dict[str, str]:
    """Run all unfinished jobs; returns the failed ones, by name, with a line that says why.

    `watch` is called several times a second with the numbers of finished and failed jobs and the running ones.
    Of the jobs whose needs are finished, long ones are started first, so that none is left for the end.
    """
    everything = with_needs(jobs, store)
    finished = {job.name for job in everything if store.finished(job)}
    waiting = [job for job in everything if job.name not in finished]
    waiting.sort(key=lambda job: -_weight_behind(job, everything))
    failures: dict[str, str] = {}
    running: dict[str, Job] = {}
    try:
        while waiting or running:
            for name, failure in workers.ended().items():
                job = running.pop(name)
                if failure is None and store.finished(job):
                    finished.add(name)
                else:
                    failures[name] = failure or "the worker ended without a result"
            for job in list(waiting):
                if failed := [needed.name for needed in job.needs.values() if needed.name in failures]:
                    waiting.remove(job)
                    failures[job.name] = f"was not started: it needs {failed[0]}, which failed"
            ready = [job for job in waiting if all(needed.name in finished for needed in job.needs.values())]
            for job in ready[: workers.free()]:
                waiting.remove(job)
                running[job.name] = job
                workers.start(job)
            watch(len(finished), len(failures), list(running.values()))
            if waiting or running:
                time.sleep(LOOK_SECONDS)
    finally:
        workers.stop()
    return failures


def _weight_behind(job: Job, everything: list[Job]) -> float:
    """The weight of the job, or of the heaviest job that needs it."""
    behind = [other.weight for other in everything if job.name in {needed.name for needed in other.needs.values()}]
    return max([job.weight, *behind])
