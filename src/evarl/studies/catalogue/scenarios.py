"""`scenarios`: pictures of the start states of the assessments in three MinAtar games."""

import numpy as np

from evarl.studies import common
from evarl.studies.conditions import assessment, short_name
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ReportTable, StudyResults
from evarl.studies.scales import StudyScale

TITLE = "The driver's test: start states of the assessments"
PAPER = (
    "Five start states for each game, drawn from the states that a base A2C policy visits. (Pictures only; no claim.)"
)


def jobs(scale: StudyScale) -> list[Job]:
    """One job per game, which draws its assessment."""
    return [assessment(scale.minatar, world) for world in scale.minatar.worlds]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Pictures of the boards, and a table of the objects on them."""
    rows: list[tuple[Cell, ...]] = []
    for world, job in zip(scale.minatar.worlds, jobs(scale), strict=True):
        if store.finished(job):
            found = store.result(job)
            states = np.array(found["observations"])
            for number, state in enumerate(states):
                counts = {c: int(state[..., i].sum()) for i, c in enumerate(found["channels"])}
                what = ", ".join(f"{count} × {name}" for name, count in counts.items() if count)
                rows.append((short_name(world), number + 1, what))
    figure = common.scenario_figure(store, scale.minatar)
    table = ReportTable("scenarios", "What is on the boards", ("world", "scenario", "flags"), tuple(rows))
    return StudyResults(tables=(table,), figures=(figure,))
