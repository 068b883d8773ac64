"""Scheduler of jobs (needed jobs first, finished jobs skipped, failed jobs without effect on the others), and its display."""

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from evarl.studies.jobs import Job, Store, with_needs

LOOK_SECONDS = 0.25
PLAIN_SECONDS = 30.0
"""Without a terminal, a line is printed this often, and whenever a job ends."""
ENOUGH = 0.02
"""Share of the work after which the remaining time is estimated."""


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


def time_left(seconds: float, gained: float, missing: float) -> str:
    """Estimated remaining time as text, from the share of work gained in some seconds; empty while that share is small.

    >>> time_left(600, 0.25, 0.75), time_left(7200, 0.5, 0.5), time_left(20, 0.1, 0.1), time_left(600, 0.01, 0.99)
    (', about 30 minutes left', ', about 2.0 hours left', ', about 1 minute left', '')
    """
    if gained < ENOUGH or missing <= 0:
        return ""
    minutes = max(1, round(seconds * missing / gained / 60))
    if minutes > 90:
        return f", about {minutes / 60:.1f} hours left"
    return f", about {minutes} minute{'s' if minutes > 1 else ''} left"


class Display(Progress):
    """One progress bar for all jobs, weighted by their duration, and one for each running job."""

    def __init__(self, jobs: list[Job], store: Store):
        console = Console(stderr=True, soft_wrap=True)
        name, text = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[text]}", markup=False)
        columns = (name, BarColumn(), TaskProgressColumn(), text, TimeElapsedColumn())
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._store, self._jobs = store, with_needs(jobs, store)
        self._weight = sum(job.weight for job in self._jobs)
        self._all = self.add_task("all jobs", total=self._weight, text="")
        self._bars: dict[str, TaskID] = {}
        self._said: tuple[int, int] = (-1, 0)
        self._when = 0.0
        self._began: tuple[float, float] | None = None
        """Time of the first update, and the share that was done then."""

    def show(self, finished: int, failed: int, running: list[Job]) -> None:
        """Update the bars."""
        said = {job.name: self._store.progress(job) for job in running}
        share = {job.name: 1.0 for job in self._jobs if self._store.result_file(job).exists()}
        done = sum(job.weight * share.get(job.name, said.get(job.name, (0.0, ""))[0]) for job in self._jobs)
        now, reached = time.monotonic(), done / self._weight
        began, first = self._began = self._began or (now, reached)
        text = f"{finished} of {len(self._jobs)} finished" + (f", {failed} failed" if failed else "")
        text += time_left(now - began, reached - first, 1 - reached)
        self.update(self._all, completed=done, text=text)
        for name in self._bars.keys() - said.keys():
            self.remove_task(self._bars.pop(name))
        for name, (part, what) in said.items():
            if name not in self._bars:
                self._bars[name] = self.add_task(name, total=1.0, text="")
            self.update(self._bars[name], completed=part, text=what)
        if self.disable and ((finished, failed) != self._said or now - self._when > PLAIN_SECONDS):
            self._said, self._when = (finished, failed), now
            going = "; ".join(f"{name}: {what or 'starting'}" for name, (_, what) in said.items())
            line = f"{reached:.0%}, {text}" + (f"; {going}" if going else "")
            self.console.print(line, markup=False, highlight=False)
