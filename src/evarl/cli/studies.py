"""What `evarl reproduce` prints of a plan."""

import dataclasses
import json
from typing import TYPE_CHECKING

from evarl.cli.tables import PlainTable, number, print_table
from evarl.errors import plain_text
from evarl.studies.jobs import Job, Store

if TYPE_CHECKING:
    from evarl.studies.plan import PlannedCondition

COLUMNS = ("condition", "jobs", "seeds", "steps of a seed", "hours", "MB of log", "hours estimated from")


def show_plan(jobs: list[Job], store: Store, as_json: bool) -> None:
    """Print the unfinished jobs by condition, with their estimated time."""
    from evarl.studies.plan import plan, total_hours

    rows = plan(jobs, store)
    hours, unknown = total_hours(rows)
    if as_json:
        planned = [dataclasses.asdict(row) for row in rows]
        print(json.dumps({"out": str(store.folder), "planned": planned, "hours": hours, "hours_unknown_of": unknown}))
        return
    if not rows:
        print("nothing: all jobs are finished")
        return
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


def _cells(row: "PlannedCondition") -> tuple[str, ...]:
    steps = "" if row.steps is None else f"{row.steps / 1e6:.3g}M"
    hours = "not known" if row.hours is None else number(row.hours, ".2f")
    seeds = row.which or ("" if row.steps is None else str(row.seeds))
    return row.condition, str(row.jobs), seeds, steps, hours, number(row.disk_megabytes, ".0f"), row.basis
