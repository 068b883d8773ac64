"""Parts that several studies share: tables of errors with every control, figures and checks."""

from collections.abc import Callable, Sequence

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, ORDER
from evarl.ope.registry import LABELS
from evarl.studies import figures
from evarl.studies.conditions import (
    Condition,
    ConditionResults,
    Mode,
    assessment,
    condition_results,
    conditions,
    mean_and_error,
    short_name,
)
from evarl.studies.jobs import Job, Store
from evarl.studies.off_policy import ALL, RECENT, as_in_paper, by_part
from evarl.studies.reports import Cell, ClaimCheck, ReportFigure, ReportTable
from evarl.studies.scales import Family, StudyScale
from evarl.studies.verdicts import check_larger

KINDS = ("start", "visited")
"""Kinds of states at which predictors are evaluated."""

ResultsByWorld = dict[str, list[ConditionResults]]


def training_jobs(*families: str, frozen: bool = True) -> Callable[[StudyScale], list[Job]]:
    """A study's `jobs`: training in all worlds of those families that a scale has, with frozen evaluators or without."""

    def jobs(scale: StudyScale) -> list[Job]:
        worlds = [(family, world) for family in families_of(scale, *families) for world in family.worlds]
        found = [one for family, world in worlds for one in conditions(family, world)]
        return [job for one in found if frozen or one.mode != "frozen" for job in one.jobs]

    return jobs


def families_of(scale: StudyScale, *names: str) -> list[Family]:
    """The families of a scale with these names, without those that it does not have."""
    return [family for name in names if (family := getattr(scale, name)) is not None]


def results_by_world(store: Store, *families: Family, frozen: bool = False) -> ResultsByWorld:
    """Results of the conditions by world, those with a frozen evaluator if asked for; what is not finished is left out.

    A family with a variant has worlds of its own.
    """
    found: ResultsByWorld = {}
    for family, world in [(one, world) for one in families for world in one.worlds]:
        every = [one for one in conditions(family, world) if frozen or one.mode != "frozen"]
        rows = [results for one in every if (results := condition_results(store, one)) is not None]
        if rows:
            found[f"{world}, {family.variant}" if family.variant else world] = rows
    return found


def with_mode(rows: Sequence[ConditionResults], mode: Mode, beta: float) -> ConditionResults:
    """Results of the condition with a mode and a β; without any seeds if there are none."""
    found = [one for one in rows if (one.condition.mode, one.condition.beta) == (mode, beta)]
    like = rows[0].condition if rows else Condition("?", mode, beta)
    missing = Condition(like.world, mode, beta, variant=like.variant)
    return found[0] if found else ConditionResults(missing, {}, {})


def errors_tables(worlds: ResultsByWorld) -> tuple[ReportTable, ...]:
    """Tables of returns and errors, one for each kind of states."""
    return tuple(_errors_table(worlds, kind) for kind in KINDS)


def _errors_table(worlds: ResultsByWorld, kind: str) -> ReportTable:
    """A row for each condition: return, and the mean absolute error of every predictor at one kind of states."""
    found = [(results, results.errors(kind)) for rows in worlds.values() for results in rows]
    columns = [name for name in (*ORDER, *LABELS.values()) if any(name in errors for _, errors in found)]
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for results, errors in found:
        if errors:
            best.add((len(rows), 4 + columns.index(min(errors, key=lambda name: errors[name].mean))))
        row = (results.world, results.condition.label, len(results.rows), mean_and_error(results.returns()))
        rows.append((*row, *map(errors.get, columns)))
    head = ("world", "training", "seeds", "return", *columns)
    note = (
        f"Return: true mean discounted return over the start states. All other columns: mean absolute error at {kind} "
        "states against Monte-Carlo truth, mean ± standard error over seeds; the least in bold."
    )
    if any(RECENT in by_part(results) for results, _ in found):
        note += f" Off-policy estimates are from the log of the {RECENT}; another table has those from {ALL}."
    return ReportTable(f"errors-{kind}", f"Errors at {kind} states", head, tuple(rows), note, frozenset(best))


def check_below_passive(aware: ConditionResults, ordinary: ConditionResults, kind: str, about: str = "") -> ClaimCheck:
    """The claim that the error of EvA-RL's evaluator is below that of the passive evaluator."""
    claim = f"{about}evaluator MAE below that of the passive evaluator, at {kind} states (a control the paper does not show)"
    quantity = "MAE of the passive evaluator less that of EvA-RL's"
    return check_larger(claim[0].upper() + claim[1:], quantity, ordinary.mae(kind), aware.mae(kind))


def scenario_figure(store: Store, family: Family) -> ReportFigure | None:
    """Start states of the assessments of a family; None where they cannot be drawn."""
    jobs = {world: assessment(family, world) for world in family.worlds}
    known = {short_name(world): store.result(job) for world, job in jobs.items() if store.finished(job)}
    shown = {name: np.array(one["observations"]) for name, one in known.items()}
    games = {name: (x, known[name]["channels"]) for name, x in shown.items() if x.ndim == 4}
    if games:
        caption = "Start states of the assessments, drawn once from the states that a base policy visits."
        return figures.boards("scenarios", caption, games)
    if "Navigation" in shown:
        caption = "The deployment world, and the open field of the assessment with its start states."
        return figures.navigation_map("scenarios", caption, shown["Navigation"])
    return None


def predictions_figure(worlds: ResultsByWorld, kind: str = "visited") -> ReportFigure | None:
    """True against predicted values of the first condition above β = 0 that has them, pooled over seeds."""
    panels = {}
    for rows in worlds.values():
        one = next((one for one in rows if one.condition.mode == "colearned" and one.condition.beta > 0), rows[0])
        clouds: dict[str, list[list[list[float]]]] = {}
        for row in one.rows.values():
            asked = row["queries"].get(kind, {"predictions": {}})
            for predictor, values in asked["predictions"].items():
                clouds.setdefault(predictor, []).append([values, asked["truth"]])
        if clouds:
            pooled = {name: np.concatenate([np.array(pair) for pair in pairs], 1) for name, pairs in clouds.items()}
            panels[f"{one.world}, β = {one.condition.beta:g}"] = pooled
    caption = f"True values (Monte Carlo) against predictions at {kind} states, one point for each state and seed."
    return figures.true_against_predicted("true-against-predicted", caption, panels) if panels else None


def trade_figure(worlds: ResultsByWorld, kind: str = "visited") -> ReportFigure | None:
    """Return against the evaluator's error, a line through the β of each kind of evaluator."""
    kinds = {"passive": "passive evaluator", "colearned": "co-learned evaluator", "frozen": "frozen evaluator"}
    panels: dict[str, dict[str, list[figures.Point]]] = {}
    for rows in worlds.values():
        for one in rows:
            x, y = mean_and_error(one.mae(kind)), mean_and_error(one.returns())
            if x is not None and y is not None:
                line = panels.setdefault(one.world, {}).setdefault(kinds[one.condition.mode], [])
                line.append((x, y, f"β = {one.condition.beta:g}"))
    caption = (
        f"Return against the evaluator's mean absolute error at {kind} states; bars are standard errors over seeds."
    )
    labels = ("evaluator MAE", "true discounted return")
    return figures.against("return-against-error", caption, panels, labels) if panels else None


def errors_figure(worlds: ResultsByWorld, kind: str) -> ReportFigure | None:
    """Errors of all predictors, a panel for each condition; off-policy estimates from all of training where there are some."""
    shown = [as_in_paper(one) for rows in worlds.values() for one in rows]
    panels = {f"{one.world}, β = {one.condition.beta:g}{log}": one.errors(kind) for log, one in shown}
    caption = f"Mean absolute error at {kind} states, with standard errors over seeds; the evaluator's is coloured."
    return figures.bars(f"errors-{kind}", caption, panels, "MAE", (EVALUATOR,)) if panels else None


def curves_figure(worlds: ResultsByWorld) -> ReportFigure | None:
    """Learning curves of return and of the evaluator's error on fresh batches."""
    quantities = {"return": "return of an episode", "evaluation_error_fresh": "evaluation error, fresh batch"}
    panels = {
        label: {
            rows[0].world: {
                one.condition.label: (one.curves["steps"], one.curves[metric]) for one in rows if metric in one.curves
            }
            for rows in worlds.values()
        }
        for metric, label in quantities.items()
    }
    caption = (
        "Learning curves: mean and Student's 95 % interval over seeds. Top: undiscounted return of the episodes that "
        "ended. Bottom: mean |return-to-go − prediction| on the batch just collected, before the evaluator saw it; it "
        "contains the noise of single returns."
    )
    return figures.curves("learning-curves", caption, panels) if worlds else None
