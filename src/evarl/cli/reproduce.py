"""`evarl reproduce STUDY`: run the jobs of a study and write its report."""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from evarl.cli.examples import examples
from evarl.cli.parsing import parse
from evarl.cli.studies import show_check, show_plan
from evarl.cli.tables import notify
from evarl.errors import FaultError, InputError, plain_text, unknown_name
from evarl.ranges import whole
from evarl.runs.provenance import commit
from evarl.stopping import Stopped, orderly
from evarl.studies.catalogue import OWN_STUDIES, PAPER_STUDIES, STUDIES, Study, study
from evarl.studies.jobs import Job, Store, with_needs
from evarl.studies.scales import COMPILE_QUICKLY, SCALES, ScaleName, StudyScale, with_seeds

if TYPE_CHECKING:
    from evarl.studies.schedule import Workers
    from evarl.studies.write import IndexEntry

ALL = "all"
CHANGES = (
    "warning: the source has changes that are not committed; results will name its commit with +changes, and nobody can compute "
    "them again from that. Commit first if they are to be kept"
)


@dataclass(frozen=True)
class Reproduce:
    """Run a study and write its report: tables, figures, and verdicts on the paper's claims."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """Name of the study, or all for every result of the paper."""
    scale: ScaleName = "laptop"
    """smoke: a minute or two, only to see that it works. laptop: hours on two cores. full: the steps of the paper's
    games with 10 seeds, days on two cores. paper: the full protocol."""
    seeds: int | None = None
    """Seeds of each condition; the scale's own number when not given."""
    seeds_per_job: int | None = None
    """Seeds of one job beyond the scale's own seeds, whose jobs stay as they are; smaller jobs are finished and kept sooner."""
    only: tuple[str, ...] = ()
    """Run, plan or check only the jobs whose names contain one of these words, such as reacher, and those that they need; the
    report is of all that are finished."""
    engine: Literal["local", "ray"] = "local"
    """Where jobs run: in processes on this machine, or on a Ray cluster (pip install 'evarl[ray]')."""
    workers: int | None = None
    """Jobs at the same time; by default as many as there are cores, up to 4, or as the cluster allows."""
    address: str | None = None
    """Address of the Ray cluster; by default one is started on this machine."""
    out: str | None = None
    """Folder for jobs and reports, by default runs/reproduce-SCALE; on a cluster, on storage that all nodes share."""
    report_only: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run nothing: write the report of the jobs that are finished, which names those that are missing."""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run nothing: list the jobs that are not finished, with the hours that finished ones in the folder let expect, and how many
    seeds would decide the claims that the reports there, of whichever scale, left undecided."""
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Compute a seed of a finished condition once more, both chosen by chance, and compare: the same bits on the same machine
    with the same versions and source, elsewhere within the spread over seeds. Exits with 1 if it differs."""
    seeds_checked: int = 1
    """Seeds of that condition that --check computes once more."""
    random_seed: int | None = None
    """Seed of the choice that --check makes; by default a new one, which is printed."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


def _listed(studies: dict[str, str]) -> str:
    return "\n".join(f"  {name:<11} {summary}" for name, summary in studies.items())


LIST = f"""Results of the paper:
{_listed(PAPER_STUDIES)}
  {ALL:<11} all of these

Studies that are not in the paper:
{_listed(OWN_STUDIES)}"""

Reproduce.__doc__ = f"""Run a study and write its report: tables, figures, and verdicts on the paper's claims.

{LIST}

Finished jobs are kept and never run twice: stop with Ctrl-C, go on with the same command.
"""


def run(arguments: list[str]) -> int:
    """Parse the arguments, run the jobs that are not finished, write the reports and print the verdicts.

    Without arguments, only list the studies. Returns the exit code.
    """
    if not arguments:
        print(f"{LIST}\n\n{examples('reproduce')}")
        return 0
    command = parse(Reproduce, arguments, "evarl reproduce", Reproduce(tyro.MISSING))
    _check(command)
    if command.scale == "smoke":  # workers inherit it
        os.environ["XLA_FLAGS"] = f"{COMPILE_QUICKLY} {os.environ.get('XLA_FLAGS', '')}".rstrip()

    from evarl.sizes import check_workers

    chosen = [study(name) for name in (PAPER_STUDIES if command.study == ALL else (command.study,))]
    scale = _scale(command, chosen)
    store = Store(Path(command.out or f"runs/reproduce-{command.scale}").absolute())
    store.check()
    jobs = _wanted([job for one in chosen for job in one.jobs(scale)], command.only)
    if command.plan:
        return show_plan(jobs, [one.name for one in chosen], store, command.json)
    if command.check:
        return show_check(jobs, store, command.random_seed, command.seeds_checked, command.json)
    if command.workers is not None and command.address is None:
        check_workers(command.workers, len(with_needs(jobs)))
    failures = {} if command.report_only else _run_jobs(command, jobs, store)
    entries = [_write(command, one, scale, store, failures) for one in chosen]
    _finish(command, entries, store, failures)
    return 0


def _check(command: Reproduce) -> None:
    if command.study not in (*STUDIES, ALL):
        raise unknown_name("study", command.study, (*STUDIES, ALL))
    for name in ("seeds", "seeds_per_job", "workers", "seeds_checked"):
        value = getattr(command, name)
        if value is not None:
            whole(name.replace("_", "-"), value)
    if command.random_seed is not None:
        whole("random-seed", command.random_seed, least=0)
    if command.seeds_per_job is not None and command.seeds is None:
        raise InputError("seeds-per-job: is not allowed without --seeds: the scale's own seeds have jobs of their own")
    if command.plan and command.check:
        raise InputError("check: is not allowed with --plan, which runs nothing")
    if command.address is not None and command.engine != "ray":
        raise InputError(f"address: {command.address} is not allowed; requires --engine ray")


def _scale(command: Reproduce, chosen: list[Study]) -> StudyScale:
    """The scale with the number of seeds that was given."""
    from evarl.sizes import check_reproduction

    scale = SCALES[command.scale]
    if command.seeds is not None:
        trained = [job for one in chosen for job in one.jobs(with_seeds(scale, 1)) if job.task == "train"]
        check_reproduction(command.seeds, len(trained))
    return with_seeds(scale, command.seeds, command.seeds_per_job)


def _wanted(jobs: list[Job], words: tuple[str, ...]) -> list[Job]:
    """The jobs whose names contain one of the words; all if there are none."""
    found = [job for job in jobs if not words or any(word in job.name for word in words)]
    if not found:
        names = ", ".join(dict.fromkeys(job.name for job in jobs))
        raise InputError(f"only: no job is called {' or '.join(words)}; there are {names}")
    return found


def _run_jobs(command: Reproduce, jobs: list[Job], store: Store) -> dict[str, str]:
    """Run the jobs that are not finished; returns the failed ones with a line that says why."""
    from evarl.studies.schedule import Display, run_jobs

    if not all(store.finished(job) for job in with_needs(jobs, store)) and (commit() or "").endswith("+changes"):
        notify(CHANGES)
    display = Display(jobs, store)
    with orderly(), display:
        try:
            return run_jobs(jobs, store, _workers(command, store), display.show)
        except KeyboardInterrupt as stopped:
            number = stopped.number if isinstance(stopped, Stopped) else signal.SIGINT
            raise Stopped("stopped; finished jobs are kept, go on with the same command", number) from stopped


def _workers(command: Reproduce, store: Store) -> "Workers":
    if command.engine == "ray":
        from evarl.studies.ray_workers import RayWorkers

        return RayWorkers(store, command.address, command.workers)
    from evarl.studies.local import LocalWorkers, default_workers

    return LocalWorkers(store, command.workers or default_workers())


def _write(command: Reproduce, one: Study, scale: StudyScale, store: Store, failures: dict[str, str]) -> "IndexEntry":
    """Write the report of a study and print its verdicts."""
    from evarl.studies.assemble import study_report
    from evarl.studies.write import IndexEntry, power_text, sorted_checks, verdicts, write_report

    report = study_report(one, scale, store, failures)
    page = write_report(report, store.folder / one.name)
    if not command.json:
        print(f"\n{report.name}: {report.title}")
        for check in sorted_checks(report):
            effect = "" if check.effect is None else f"{check.quantity}: {check.effect:.3g}"
            if effect and check.interval is not None:
                effect += ", {:.3g} to {:.3g}".format(*check.interval)
            print(f"  {check.verdict:<13} {check.claim}" + (f" ({effect})" if effect else ""))
            if needs := power_text(check).partition("; ")[2]:
                print(f"{'':<16}{needs}")
        print(f"  report: {plain_text(str(page))}")
    return IndexEntry(one.name, one.title, verdicts(report), f"{one.name}/report.html")


def _finish(command: Reproduce, entries: "list[IndexEntry]", store: Store, failures: dict[str, str]) -> None:
    """Write the list of reports, and say which jobs failed."""
    from evarl.studies.write import write_index

    index = write_index(entries, store.folder) if len(entries) > 1 else None
    for name, why in failures.items():
        print(f"failed: {name}: {plain_text(why)}", file=sys.stderr)
    if command.json:
        summary = {entry.name: dict(entry.verdicts) for entry in entries}
        print(json.dumps({"out": str(store.folder), "verdicts": summary, "failures": failures}))
    elif index is not None:
        print(f"\nall reports: {plain_text(str(index))}")
    if failures:
        raise FaultError(
            f"{len(failures)} of the jobs failed; the reports are of the others. Try the same command again"
        )
