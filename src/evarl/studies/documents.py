"""Tables of the committed results in README.md, docs/reproduce.md, docs/studies.md and docs/findings.md.

`make results` asks `python -m evarl.studies.documents STUDY` for the scale at which it writes the report of a study, and
`python -m evarl.studies.documents` writes the pages. A study of games or robots is shown at scale `full` as soon as each of its
conditions has results there, and at `laptop` until then; in the table of all worlds, games or robots are as soon as ordinary
training and EvA-RL have.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from evarl.report.markdown import fill_page
from evarl.studies.catalogue import OWN_STUDIES, PAPER_STUDIES, families, study
from evarl.studies.catalogue.held_out import best_table
from evarl.studies.common import families_of, results_by_world, with_mode
from evarl.studies.conditions import ConditionResults, mean_and_error, ratio
from evarl.studies.findings import certificates_table, claims_table, numbers_table, read_checks, read_scale
from evarl.studies.jobs import Store
from evarl.studies.off_policy import RECENT, by_part
from evarl.studies.plan import SEEDS
from evarl.studies.reports import Cell, ReportTable
from evarl.studies.scales import FULL, LAPTOP, PAPER, Family, ScaleName, StudyScale
from evarl.studies.tables import markdown

FOLDER = Path("results/reproduce")
CERTIFICATES = Path(__file__).parents[3] / "results" / "benchmarks" / "certificates.json"
AT_PAPER = ("mismatch", "tabular")
"""Studies whose committed results are at scale `paper`."""
AT_FULL = ("tradeoff", "ope-on-eva", "pipelines", "curves", "scenarios", "continuous")
"""Studies that are shown at scale `full` as soon as every condition has results there."""
COLUMNS = {
    "critic": "critic",
    "FQE (sound)": "FQE",
    "FQE (greedy, Huber)": "FQE, greedy-huber",
    "PDIS": "PDIS",
    "DR": "DR",
}
"""Predictors beside the evaluator, by their names in docs/reproduce.md."""


def family_scale(store: Store, name: str) -> StudyScale:
    """The scale at which a family of worlds is shown."""
    family: Family = getattr(FULL, name)
    known = [_main(everything, family) for everything in results_by_world(store, family).values()]
    return FULL if len(known) == len(family.worlds) and all(a.rows and b.rows for a, b in known) else LAPTOP


def study_scale(store: Store, name: str) -> ScaleName:
    """The scale at which the report of a study is written."""
    if name in AT_PAPER:
        return "paper"
    measured: dict[str, bool] = {}
    for job in study(name).jobs(FULL):
        condition = SEEDS.sub("", job.label)
        measured[condition] = measured.get(condition, False) or store.finished(job)
    return "full" if name in AT_FULL and all(measured.values()) else "laptop"


def _main(everything: Sequence[ConditionResults], family: Family) -> tuple[ConditionResults, ConditionResults]:
    """Ordinary training, and EvA-RL with the smallest β."""
    return with_mode(everything, "passive", 0.0), with_mode(everything, "colearned", family.betas[0])


def main_table(store: Store) -> ReportTable:
    """A row for each world: return of ordinary training and EvA-RL, and the errors of the predictors at start states.

    Off-policy estimates are from all of training where they are there; a column says so, as soon as a world has them.
    """
    rows: list[tuple[Cell, ...]] = []
    logs: list[str] = []
    games = families_of(family_scale(store, "minatar"), "minatar", "minatar_own")
    for family in (PAPER.navigation, *games, family_scale(store, "brax").brax):
        for everything in results_by_world(store, family).values():
            ordinary, aware = _main(everything, family)
            if ordinary.rows and aware.rows:
                part, logged = next(iter(by_part(aware).items()))
                logs.append(part)
                steps = f"{aware.curves['steps'][-1] / 1e6:.1f}M × {len(aware.rows)} seeds"
                measured = [ordinary.returns(), aware.returns(), aware.mae("start"), ordinary.mae("start")]
                measured += [logged.mae("start", predictor) for predictor in COLUMNS.values()]
                rows.append((aware.world, steps, f"{family.betas[0]:g}", *map(mean_and_error, measured)))
    head = ("world", "steps", "β", "return, ordinary", "return, EvA-RL", "evaluator", "passive evaluator", *COLUMNS)
    if any(logs):
        head = (*head, "log of FQE, PDIS and DR")
        rows = [(*row, part or RECENT) for row, part in zip(rows, logs, strict=True)]
    return ReportTable("main", "", head, tuple(rows))


def families_table(folder: Path) -> ReportTable:
    """A row for each family of worlds: passive and evaluation-aware training, and their ratio."""
    rows: list[tuple[Cell, ...]] = []
    for name, known in families.by_family(LAPTOP, Store(folder)).items():
        if families.PASSIVE in known and families.MAIN in known:
            passive, aware = known[families.PASSIVE], known[families.MAIN]
            errors, returns = (
                (passive.mae(families.SITE), aware.mae(families.SITE)),
                (passive.returns(), aware.returns()),
            )
            cells = [*map(mean_and_error, errors), ratio(*errors[::-1]), *map(mean_and_error, returns)]
            rows.append((name, len(aware.rows), *cells))
    head = (
        "family of worlds",
        "seeds",
        "error, passive",
        "error, evaluable",
        "ratio",
        "return, passive",
        "return, evaluable",
    )
    return ReportTable("families", "", head, tuple(rows))


def verdict_table(folder: Path) -> ReportTable:
    """Number of claims with each verdict, by study, from the reports."""
    rows: list[tuple[Cell, ...]] = []
    for name in PAPER_STUDIES:
        file = folder / name / "checks.json"
        if os.path.lexists(file):
            verdicts = [str(check["verdict"]) for check in read_checks(file)]
            counts = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "undecided")]
            rows.append((name, read_scale(file), *counts))
    return ReportTable("verdicts", "", ("result", "scale", "hold", "do not hold", "undecided"), tuple(rows))


def blocks(folder: Path) -> dict[str, str]:
    """Contents of the marked places of the README, by name."""
    return {"families": _rows(families_table(folder))}


def paper_blocks(folder: Path) -> dict[str, str]:
    """Contents of the marked places of docs/reproduce.md, by name."""
    return {"results": _rows(main_table(Store(folder))), "verdicts": _rows(verdict_table(folder))}


def _rows(table: ReportTable) -> str:
    """The table in Markdown, without title and note."""
    return "\n".join(line for line in markdown(table).splitlines() if line.startswith("|"))


def study_blocks(folder: Path) -> dict[str, str]:
    """Contents of the marked places of docs/studies.md, by name: the tables of the studies that are not in the paper.

    A study of which nothing is finished has none.
    """
    results = [study(name).results(LAPTOP, Store(folder)) for name in OWN_STUDIES]
    return {table.name: _rows(table) for one in results for table in one.tables if table.rows}


def finding_blocks(folder: Path) -> dict[str, str]:
    """Contents of the marked places of docs/findings.md, by name: claims and controls by study, and other numbers."""
    store, found = Store(folder), {}
    for name in (*PAPER_STUDIES, "families"):
        file = folder / name / "checks.json"
        checks = read_checks(file)
        for kind, chosen in (("claims", False), ("controls", True)):
            table = claims_table(checks, chosen)
            if table.rows:
                found[f"{kind}-{name}"] = f"Scale `{read_scale(file)}`.\n\n{_rows(table)}"
    return found | {
        "numbers": _rows(numbers_table(store, family_scale(store, "brax"), PAPER)),
        "families": _rows(families_table(folder)),
        "held-out": _rows(best_table(LAPTOP, store)),
        "certificates": _rows(certificates_table(CERTIFICATES)),
    }


if __name__ == "__main__" and len(sys.argv) > 1:
    print(study_scale(Store(FOLDER), sys.argv[1]))
elif __name__ == "__main__":
    fill_page(Path("README.md"), blocks(FOLDER))
    fill_page(Path("docs/reproduce.md"), paper_blocks(FOLDER))
    fill_page(Path("docs/studies.md"), study_blocks(FOLDER))
    fill_page(Path("docs/findings.md"), finding_blocks(FOLDER))
