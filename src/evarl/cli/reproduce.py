"""`evarl reproduce RESULT`: run what a result of the paper needs, and write its report."""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from evarl.cli.parsing import parse
from evarl.errors import FaultError, InputError, plain_text
from evarl.ranges import whole
from evarl.stopping import Stopped, orderly
from evarl.studies.scales import COMPILE_QUICKLY, SCALES, ResultName, ScaleName, with_seeds

if TYPE_CHECKING:
    from evarl.studies.findings import Findings
    from evarl.studies.jobs import Job, Store
    from evarl.studies.schedule import Workers

Name = ResultName | Literal["all"]


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a result of the paper: runs, tables, figures, verdicts, and a report to read in a browser.

    tradeoff, ope-on-eva, pipelines: MinAtar games. continuous: Brax robots. mismatch: 2-D navigation. tabular: random
    tabular worlds. curves: games and robots. scenarios: pictures of the assessments. all: all of them.

    Finished jobs are kept and never run twice: stop with Ctrl-C, go on with the same command.
    """

    result: tyro.conf.Positional[Name] = "all"
    """Which result."""
    scale: ScaleName = "laptop"
    """smoke: a minute or two, only to see that it works. laptop: hours on two cores. paper: the full protocol."""
    seeds: int | None = None
    """Seeds of each condition; the scale's own number when not given."""
    engine: Literal["local", "ray"] = "local"
    """Where jobs run: in processes on this machine, or on a Ray cluster (pip install 'evarl[ray]')."""
    workers: int | None = None
    """Jobs at the same time; by default as many as there are cores, up to 4, or as the cluster allows."""
    address: str | None = None
    """Of the Ray cluster; by default one is started on this machine."""
    out: str | None = None
    """Folder for jobs and reports, by default runs/reproduce-SCALE; on a cluster, on storage that all nodes share."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, run what is missing, write the reports and say what holds."""
    command = parse(Reproduce, arguments, "evarl reproduce", Reproduce())
    for name in ("seeds", "workers"):
        value = getattr(command, name)
        if value is not None:
            whole(name, value)
    if command.address is not None and command.engine != "ray":
        raise InputError(f"address: {command.address} goes with --engine ray only")

    if command.scale == "smoke":  # workers inherit it
        os.environ["XLA_FLAGS"] = f"{COMPILE_QUICKLY} {os.environ.get('XLA_FLAGS', '')}".rstrip()

    from evarl.sizes import check_reproduction, check_workers
    from evarl.studies.assemble import findings
    from evarl.studies.jobs import Store, with_needs
    from evarl.studies.page import Entry, verdicts
    from evarl.studies.results import NAMES, result
    from evarl.studies.schedule import run_jobs
    from evarl.studies.watch import Display
    from evarl.studies.write import write_findings, write_index

    scale = SCALES[command.scale]
    chosen = [result(name) for name in (NAMES if command.result == "all" else (command.result,))]
    if command.seeds is not None:
        conditions = sum(job.task == "train" for one in chosen for job in one.jobs(with_seeds(scale, 1)))
        check_reproduction(command.seeds, conditions)
        scale = with_seeds(scale, command.seeds)
    store = Store(Path(command.out or f"runs/reproduce-{command.scale}").absolute())
    store.check()
    jobs: list[Job] = [job for one in chosen for job in one.jobs(scale)]
    if command.workers is not None and command.address is None:
        check_workers(command.workers, len(with_needs(jobs)))
    with orderly(), Display(jobs, store) as display:
        try:
            failures = run_jobs(jobs, store, _workers(command, store), display)
        except KeyboardInterrupt as stopped:
            number = stopped.number if isinstance(stopped, Stopped) else signal.SIGINT
            raise Stopped("stopped; finished jobs are kept, go on with the same command", number) from stopped
    entries, pages = [], []
    for one in chosen:
        found = findings(one, scale, store, failures)
        page = write_findings(found, store.folder / one.name)
        entries.append(Entry(one.name, one.title, verdicts(found), f"{one.name}/report.html"))
        pages.append(page)
        if not command.json:
            _print(found, page)
    if len(chosen) > 1:
        pages.append(write_index(entries, store.folder))
    for name, why in failures.items():
        print(f"failed: {name}: {plain_text(why)}", file=sys.stderr)
    if command.json:
        summary = {entry.name: dict(entry.verdicts) for entry in entries}
        print(json.dumps({"out": str(store.folder), "verdicts": summary, "failures": failures}))
    elif len(chosen) > 1:
        print(f"\nall reports: {plain_text(str(pages[-1]))}")
    if failures:
        raise FaultError(
            f"{len(failures)} of the jobs failed; the reports are of the others. Try the same command again"
        )


def _workers(command: Reproduce, store: "Store") -> "Workers":
    if command.engine == "ray":
        from evarl.studies.ray_workers import RayWorkers

        return RayWorkers(store, command.address, command.workers)
    from evarl.studies.local import LocalWorkers, default_workers

    return LocalWorkers(store, command.workers or default_workers())


def _print(found: "Findings", page: Path) -> None:
    print(f"\n{found.name}: {found.title}")
    order = {"does not hold": 0, "undecided": 1, "holds": 2}
    for check in sorted(found.checks, key=lambda check: order[check.verdict]):
        effect = "" if check.effect is None else f" ({check.quantity}: {check.effect:.3g}"
        if check.effect is not None:
            effect += ")" if check.interval is None else f", {check.interval[0]:.3g} to {check.interval[1]:.3g})"
        print(f"  {check.verdict:<13} {check.claim}{effect}")
    print(f"  report: {plain_text(str(page))}")
