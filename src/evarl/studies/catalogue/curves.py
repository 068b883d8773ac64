"""`curves`: learning curves of return and evaluation error in all worlds."""

from dataclasses import replace

from evarl.studies import common
from evarl.studies.conditions import ConditionResults, Values, mean_and_error
from evarl.studies.jobs import Store
from evarl.studies.reports import Cell, ClaimCheck, ReportTable, StudyResults
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
jobs = common.training_jobs("minatar", "brax")


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Learning curves, and a table of their averages over the end of training."""
    kinds = {"minatar": scale.minatar, "brax": scale.brax}
    families = {name: common.results_by_world(store, family, frozen=True) for name, family in kinds.items()}
    drawn = {name: common.curves_figure(worlds) for name, worlds in families.items()}
    everything = [rows for worlds in families.values() for rows in worlds.values()]
    return StudyResults(
        checks=tuple(check for rows in everything for check in _checks(rows)),
        tables=(_table([one for rows in everything for one in rows]),),
        figures=tuple(replace(one, name=f"{one.name}-{name}") for name, one in drawn.items() if one is not None),
        notes=(
            "The evaluation error of a curve is that of single returns-to-go, whose own noise no evaluator can predict: it "
            "does not go to zero, as the paper's does. The other results have errors against true values.",
        ),
    )


def late(one: ConditionResults, metric: str) -> Values:
    """Mean of a curve over the end of training, by seed; empty if it is missing for any seed."""
    if metric not in one.curves:
        return {}
    curve = one.curves[metric]
    tail = [row[row == row] for row in curve[:, -max(1, int(LAST * curve.shape[1])) :]]
    found = {seed: float(row.mean()) for seed, row in zip(sorted(one.rows), tail, strict=True) if len(row)}
    return found if len(found) == len(tail) else {}


def _checks(rows: list[ConditionResults]) -> list[ClaimCheck]:
    aware = {one.condition.beta: one for one in rows if one.condition.mode == "colearned"}
    frozen = {one.condition.beta: one for one in rows if one.condition.mode == "frozen"}
    return [
        check_larger(
            f"{one.world}, β = {beta:g}: returns late in training lower with the frozen evaluator",
            f"return with the co-learned evaluator less that with the frozen one, last {LAST:.0%} of training",
            late(one, "return"),
            late(frozen[beta], "return"),
        )
        for beta, one in aware.items()
        if beta in frozen
    ]


def _table(everything: list[ConditionResults]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for one in everything:
        numbers = [mean_and_error(late(one, metric)) for metric in ("return", "evaluation_error_fresh")]
        rows.append((one.world, one.condition.label, len(one.rows), int(one.curves["steps"][-1]), *numbers))
    head = ("world", "training", "seeds", "steps", "return", "evaluation error, fresh batch")
    title = f"Over the last {LAST:.0%} of training"
    return ReportTable("late", title, head, tuple(rows), "Mean ± standard error over seeds.")
