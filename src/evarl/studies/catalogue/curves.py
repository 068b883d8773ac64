"""`curves`: learning curves of return and evaluation error in all worlds."""

from evarl.studies import common
from evarl.studies.conditions import ConditionResults, mean_and_error, short_name
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, ReportFigure, ReportTable, StudyResults
from evarl.studies.scales import StudyScale
from evarl.studies.verdicts import check_larger

TITLE = "Learning curves"
PAPER = (
    "With a co-learned evaluator, returns closely follow those of ordinary training while evaluation errors are "
    "significantly lower than with a frozen one; with a frozen evaluator, returns are lower. (Figures; 20 seeds of MinAtar, "
    "5 of Brax, 10M steps.)"
)
LAST = 0.2
"""Final share of training over which curves are averaged for the table and the checks."""


def jobs(scale: StudyScale) -> list[Job]:
    """Training jobs of all conditions of the games and the robots."""
    return common.all_jobs(scale.minatar) + common.all_jobs(scale.brax)


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Learning curves, and a table of their averages over the end of training."""
    modes = ("passive", "colearned", "frozen")
    games, robots = (
        common.results_by_world(store, scale.minatar, modes),
        common.results_by_world(store, scale.brax, modes),
    )
    figures = []
    for worlds, family in ((games, "minatar"), (robots, "brax")):
        drawn = common.curves_figure(worlds)
        if drawn is not None:
            figures.append(ReportFigure(f"{drawn.name}-{family}", drawn.caption, drawn.png, drawn.svg))
    everything = games | robots
    return StudyResults(
        checks=tuple(check for rows in everything.values() for check in _checks(rows)),
        tables=(_table(everything),),
        figures=tuple(figures),
        notes=(
            "The evaluation error of a curve is that of single returns-to-go, whose own noise no evaluator can predict: it "
            "does not go to zero, as the paper's does. The other results have errors against true values.",
        ),
    )


def late(one: ConditionResults, metric: str) -> dict[int, float] | None:
    """Mean of a curve over the end of training, by seed; None if it is missing for any seed."""
    if metric not in one.curves:
        return None
    curve = one.curves[metric]
    tail = curve[:, -max(1, int(LAST * curve.shape[1])) :]
    found = {}
    for seed, row in zip(one.numbers, tail, strict=True):
        if not (row == row).any():
            return None
        found[seed] = float(row[row == row].mean())
    return found


def _checks(rows: list[ConditionResults]) -> list[ClaimCheck]:
    world = short_name(rows[0].condition.world)
    found = []
    for aware in (one for one in rows if one.condition.mode == "colearned"):
        held = common.with_mode(rows, "frozen", aware.condition.beta)
        if held is not None:
            found.append(
                check_larger(
                    f"{world}, β = {aware.condition.beta:g}: returns late in training lower with the frozen evaluator",
                    f"return with the co-learned evaluator less that with the frozen one, last {LAST:.0%} of training",
                    late(aware, "return"),
                    late(held, "return"),
                )
            )
    return found


def _table(worlds: common.ResultsByWorld) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for world, everything in worlds.items():
        for one in everything:
            numbers = [mean_and_error(late(one, metric)) for metric in ("return", "evaluation_error_fresh")]
            steps = int(one.curves["steps"][-1])
            rows.append((short_name(world), one.condition.label, len(one.rows), steps, *numbers))
    head = ("world", "training", "seeds", "steps", "return", "evaluation error, fresh batch")
    return ReportTable(
        "late", f"Over the last {LAST:.0%} of training", head, tuple(rows), "Mean ± standard error over seeds."
    )
