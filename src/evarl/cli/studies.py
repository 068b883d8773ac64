"""What `evarl reproduce` prints of a plan and of a check."""

import dataclasses
import json
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evarl.cli.tables import PlainTable, notify, number, print_table
from evarl.errors import FaultError, plain_text
from evarl.stopping import orderly
from evarl.studies.jobs import Job, Store

if TYPE_CHECKING:
    from evarl.studies.check import Checked
    from evarl.studies.findings import OpenClaim
    from evarl.studies.plan import PlannedCondition

COLUMNS = ("condition", "jobs", "seeds", "steps of a seed", "hours", "MB of log", "hours estimated from")


CLAIM_COLUMNS = ("study", "scale", "seeds", "seeds to decide", "undecided claim")


def show_plan(jobs: list[Job], studies: list[str], store: Store, as_json: bool) -> int:
    """Print the unfinished jobs by condition, with their estimated time, and the open claims; returns the exit code."""
    from evarl.studies.findings import open_claims
    from evarl.studies.plan import plan, total_hours

    rows, claims = plan(jobs, store), open_claims(store.folder, studies)
    hours, unknown = total_hours(rows)
    if as_json:
        told = {"planned": [dataclasses.asdict(row) for row in rows], "hours": hours, "hours_unknown_of": unknown}
        print(json.dumps({"out": str(store.folder)} | told | {"claims": [dataclasses.asdict(one) for one in claims]}))
        return 0
    if rows:
        _print_jobs(rows, store)
    else:
        print("nothing: all jobs are finished")
    if claims:
        _print_claims(claims, store)
    return 0


def _print_jobs(rows: "list[PlannedCondition]", store: Store) -> None:
    """Print the unfinished jobs, and the hours of all together."""
    from evarl.studies.plan import total_hours

    hours, unknown = total_hours(rows)
    table = PlainTable(*COLUMNS)
    for row in rows:
        table.add_row(*_cells(row))
    print_table(table)
    several = "" if unknown == 0 else f", and those of {unknown} of {len(rows)} conditions, which are not known"
    print(
        f"\n{sum(row.jobs for row in rows)} jobs, {number(hours, '.1f')} hours one after the other{several}. "
        f"Estimates are from finished jobs in {plain_text(str(store.folder))}: training in proportion to seeds × steps, "
        "evaluation to seeds, compilation once a job. A log is deleted when its job is finished."
    )


def _print_claims(claims: "list[OpenClaim]", store: Store) -> None:
    """Print how many seeds would decide the claims that are undecided, the least number first."""
    from evarl.studies.power import FEASIBLE, WANTED, told

    table = PlainTable(*CLAIM_COLUMNS)
    for one in sorted(claims, key=lambda one: one.seeds_needed):
        table.add_row(one.study, one.scale, str(one.seeds), told(one.seeds_needed), one.claim)
    print()
    print_table(table)
    feasible = sum(one.feasible for one in claims)
    print(
        f"\n{len(claims)} undecided claims, by the reports in {plain_text(str(store.folder))}; {feasible} need at most "
        f"{FEASIBLE} seeds. Seeds decide with a chance of {100 * WANTED:.0f} % if the observed effects were the true ones, which "
        "is optimistic: effects that look large in few seeds are smaller on average."
    )


def _cells(row: "PlannedCondition") -> tuple[str, ...]:
    steps = "" if row.steps is None else f"{row.steps / 1e6:.3g}M"
    hours = "not known" if row.hours is None else number(row.hours, ".2f")
    seeds = row.which or ("" if row.steps is None else str(row.seeds))
    return row.condition, str(row.jobs), seeds, steps, hours, number(row.disk_megabytes, ".0f"), row.basis


def show_check(jobs: list[Job], store: Store, random_seed: int | None, count: int, as_json: bool) -> int:
    """Compute seeds of a finished job once more and print how they compare; returns the exit code."""
    from evarl.studies.check import check, choose

    chosen = secrets.randbelow(2**31) if random_seed is None else random_seed
    condition, job, seeds = choose(jobs, store, chosen, count)
    names = ", ".join(map(str, seeds))
    notify(f"checking seed {names} of {job.name}, chosen with --random-seed {chosen}")
    with tempfile.TemporaryDirectory(prefix="evarl-check-") as folder:
        found = check(condition, job, seeds, store, Path(folder), _run)
    if as_json:
        told = [dataclasses.asdict(one) | {"agrees": one.agrees} for one in found]
        print(json.dumps({"random_seed": chosen, "job": job.name, "checked": told}))
    else:
        for one in found:
            _print_checked(one)
    return 0 if all(one.agrees for one in found) else 1


def _run(job: Job, store: Store, cores: int | None) -> None:
    """Run a job and those that it needs on so many cores, with their progress on standard error."""
    from evarl.studies.local import LocalWorkers
    from evarl.studies.schedule import Display, run_jobs

    display = Display([job], store)
    with orderly(), display:
        failures = run_jobs([job], store, LocalWorkers(store, 1, cores), display.show)
    if failures:
        raise FaultError(f"check: {next(iter(failures.values()))}")


def _print_checked(one: "Checked") -> None:
    """Print the numbers of a seed beside those that were stored, and the verdict."""
    print(f"seed {one.seed} of {plain_text(one.job)}\n{one.why}\n")
    table = PlainTable("number", "stored", "computed again", "" if one.bits else "must lie in", "")
    for each in one.numbers:
        stored, again = (number(value, ".6g") for value in (each.stored, each.again))
        within = "" if each.interval is None else "{:.4g} to {:.4g}".format(*each.interval)
        table.add_row(each.what, stored, again, within, "agrees" if each.agrees else "DIFFERS")
    print_table(table)
    rest = " (everything else that is stored was compared, too)" if one.bits else ""
    print(f"\n{'confirmed' if one.agrees else 'NOT CONFIRMED'}{rest}")
