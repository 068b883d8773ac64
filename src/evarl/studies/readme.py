"""Puts the main table of the committed results into the README: `python -m evarl.studies.readme` (`make results`)."""

import os
from pathlib import Path

from evarl.errors import FileError
from evarl.evaluation.predictors import EVALUATOR
from evarl.storage.plain import read_json
from evarl.studies.common import gathered, one_of
from evarl.studies.conditions import measured, short
from evarl.studies.experiment_tables import fill_page
from evarl.studies.findings import Cell, Table
from evarl.studies.jobs import Store
from evarl.studies.results import NAMES
from evarl.studies.scales import LAPTOP, PAPER
from evarl.studies.tables import markdown

FOLDER = Path("results/reproduce")
SCALES = {"mismatch": "paper", "tabular": "paper"}
"""Of the results that are kept; the others are at the scale of a laptop."""
COLUMNS = {
    "critic": "critic",
    "FQE (sound)": "FQE",
    "FQE (greedy, Huber)": "FQE, greedy-huber",
    "PDIS": "PDIS",
    "DR": "DR",
}


def main_table(store: Store) -> Table:
    """A row for each world: what EvA-RL costs in return, and how well its policy is evaluated by whom."""
    rows: list[tuple[Cell, ...]] = []
    for family in (PAPER.navigation, LAPTOP.minatar, LAPTOP.brax):
        for world, everything in gathered(store, family, ("passive", "colearned")).items():
            beta = family.betas[0]
            ordinary, aware = one_of(everything, "passive", 0.0), one_of(everything, "colearned", beta)
            if ordinary is None or aware is None:
                continue
            steps = f"{aware.curves['steps'][-1] / 1e6:.1f}M × {len(aware.rows)} seeds"
            returns = [measured(seeds.returns()) for seeds in (ordinary, aware)]
            errors = [measured(aware.mae(predictor, "start")) for predictor in (EVALUATOR, *COLUMNS.values())]
            passive = measured(ordinary.mae(EVALUATOR, "start"))
            rows.append((short(world), steps, f"{beta:g}", *returns, errors[0], passive, *errors[1:]))
    head = ("world", "steps", "β", "return, ordinary", "return, EvA-RL", "evaluator", "passive evaluator", *COLUMNS)
    return Table("main", "", head, tuple(rows))


def verdict_table(folder: Path) -> Table:
    """How many claims hold, by result, as the reports computed it."""
    rows: list[tuple[Cell, ...]] = []
    for name in NAMES:
        file = folder / name / "checks.json"
        if os.path.lexists(file):
            verdicts = _verdicts(file)
            counts = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "undecided")]
            rows.append((name, SCALES.get(name, "laptop"), *counts))
    return Table("verdicts", "", ("result", "scale", "hold", "do not hold", "undecided"), tuple(rows))


def blocks(folder: Path) -> dict[str, str]:
    """What stands between the marks of the README."""
    found = {"results": main_table(Store(folder)), "verdicts": verdict_table(folder)}
    return {name: _only_rows(markdown(table)) for name, table in found.items()}


def _verdicts(file: Path) -> list[str]:
    try:
        return [str(check["verdict"]) for check in read_json(file)["checks"]]
    except (KeyError, TypeError) as error:
        raise FileError(f"{file}: is not a list of checks; make it anew with `evarl reproduce`") from error


def _only_rows(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


if __name__ == "__main__":
    fill_page(Path("README.md"), blocks(FOLDER))
