"""`scenarios`: pictures of the start states from which policies are assessed, in three MinAtar games."""

import numpy as np

from evarl.studies import common
from evarl.studies.common import Said
from evarl.studies.conditions import assessment, short
from evarl.studies.findings import Cell, Table
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import Scale

TITLE = "The driver's test: start states of the assessments"
PAPER = (
    "Five start states for each game, drawn from the states that a base A2C policy visits. (Pictures only; no claim.)"
)


def jobs(scale: Scale) -> list[Job]:
    """One assessment for each game."""
    return [assessment(scale.minatar, world) for world in scale.minatar.worlds]


def said(scale: Scale, store: Store) -> Said:
    """The boards, and how many flags each of them shows."""
    rows: list[tuple[Cell, ...]] = []
    for world, job in zip(scale.minatar.worlds, jobs(scale), strict=True):
        if store.finished(job):
            found = store.result(job)
            states = np.array(found["observations"])
            for number, state in enumerate(states):
                counts = {c: int(state[..., i].sum()) for i, c in enumerate(found["channels"])}
                what = ", ".join(f"{count} × {name}" for name, count in counts.items() if count)
                rows.append((short(world), number + 1, what))
    picture = common.scenario_picture(store, scale.minatar)
    table = Table("scenarios", "What is on the boards", ("world", "scenario", "flags"), tuple(rows))
    return Said(tables=(table,), pictures=common.present(picture))
