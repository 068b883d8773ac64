"""Parts that several studies share: tables of errors with every control, figures and checks."""

from collections.abc import Sequence

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, ORDER
from evarl.ope.configuration import LABELS, Method
from evarl.studies import figures
from evarl.studies.conditions import (
    ConditionResults,
    assessment,
    condition_results,
    conditions,
    mae_of,
    mean_and_error,
    short_name,
)
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportFigure, ReportTable
from evarl.studies.scales import Family
from evarl.studies.verdicts import check_all_larger

KINDS = ("start", "visited")
"""Kinds of states at which predictors are evaluated."""

ResultsByWorld = dict[str, list[ConditionResults]]


def all_jobs(family: Family) -> list[Job]:
    """Training jobs of all conditions in all worlds of a family."""
    return [job for world in family.worlds for condition in conditions(family, world) for job in condition.jobs]


def results_by_world(store: Store, family: Family, modes: Sequence[str]) -> ResultsByWorld:
    """Results of the conditions with some modes, by world; what has no finished job is left out."""
    found = {
        world: [
            results
            for one in conditions(family, world)
            if one.mode in modes and (results := condition_results(store, one)) is not None
        ]
        for world in family.worlds
    }
    return {world: rows for world, rows in found.items() if rows}


def with_mode(rows: Sequence[ConditionResults], mode: str, beta: float) -> ConditionResults | None:
    """Results of the condition with a mode and a β; None if there are none."""
    return next((one for one in rows if (one.condition.mode, one.condition.beta) == (mode, beta)), None)


def errors_tables(worlds: ResultsByWorld) -> tuple[ReportTable, ...]:
    """Tables of returns and errors, one for each kind of states."""
    return tuple(_errors_table(worlds, kind) for kind in KINDS)


def _errors_table(worlds: ResultsByWorld, kind: str) -> ReportTable:
    """A row for each condition: return, and the mean absolute error of every predictor at one kind of states."""
    everything = [results for rows in worlds.values() for results in rows]
    known_predictors = {name for results in everything for name in results.predictors(kind)}
    columns = [name for name in (*ORDER, *LABELS.values()) if name in known_predictors]
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for results in everything:
        errors = [mean_and_error(results.mae(predictor, kind)) for predictor in columns]
        known = [(one.mean, number) for number, one in enumerate(errors) if one is not None]
        if known:
            best.add((len(rows), 4 + min(known)[1]))
        condition = results.condition
        row = (short_name(condition.world), condition.label, len(results.rows), mean_and_error(results.returns()))
        rows.append((*row, *errors))
    head = ("world", "training", "seeds", "return", *columns)
    note = (
        f"Return: true mean discounted return over the start states. All other columns: mean absolute error at {kind} "
        "states against Monte-Carlo truth, mean ± standard error over seeds; the least in bold."
    )
    return ReportTable(f"errors-{kind}", f"Errors at {kind} states", head, tuple(rows), note, frozenset(best))


def check_below_methods(
    evaluated: ConditionResults | None,
    asked: ConditionResults | None,
    about: str,
    methods: Sequence[Method],
    kind: str,
) -> ClaimCheck:
    """The claim that the evaluator's error is below that of every off-policy method.

    `evaluated` are the results of the evaluator's policies, `asked` those of the policies the methods are asked about.
    """
    world = short_name(evaluated.condition.world) if evaluated is not None else "?"
    which = "(FQE: greedy, Huber)" if "fqe-greedy-huber" in methods else "(FQE: sound)"
    claim = f"{world}, {about}: evaluator MAE below every OPE baseline {which}, at {kind} states"
    theirs = {LABELS[method]: mae_of(asked, LABELS[method], kind) for method in methods}
    quantity = "MAE of the best baseline less that of the evaluator"
    return check_all_larger(claim, quantity, theirs, mae_of(evaluated, EVALUATOR, kind))


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
    for world, rows in worlds.items():
        aware = [one for one in rows if one.condition.mode == "colearned" and one.condition.beta > 0] or rows
        clouds: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for row in aware[0].rows.values():
            asked = row["queries"].get(kind)
            for predictor, values in (asked or {"predictions": {}})["predictions"].items():
                clouds.setdefault(predictor, []).append((np.array(values), np.array(asked["truth"])))
        if clouds:
            panels[f"{short_name(world)}, β = {aware[0].condition.beta:g}"] = {
                name: (np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]))
                for name, pairs in clouds.items()
            }
    if not panels:
        return None
    caption = f"True values (Monte Carlo) against predictions at {kind} states, one point for each state and seed."
    return figures.true_against_predicted("true-against-predicted", caption, panels)


def trade_figure(worlds: ResultsByWorld, kind: str = "visited") -> ReportFigure | None:
    """Return against the evaluator's error, a line through the β of each kind of evaluator."""
    kinds = {"passive": "passive evaluator", "colearned": "co-learned evaluator", "frozen": "frozen evaluator"}
    panels: dict[str, dict[str, list[tuple[MeanAndError, MeanAndError, str]]]] = {}
    for world, rows in worlds.items():
        lines: dict[str, list[tuple[MeanAndError, MeanAndError, str]]] = {}
        for results in rows:
            x, y = mean_and_error(results.mae(EVALUATOR, kind)), mean_and_error(results.returns())
            if x is not None and y is not None:
                point = (x, y, f"β = {results.condition.beta:g}")
                lines.setdefault(kinds[results.condition.mode], []).append(point)
        if lines:
            panels[short_name(world)] = lines
    if not panels:
        return None
    caption = (
        f"Return against the evaluator's mean absolute error at {kind} states; bars are standard errors over seeds."
    )
    return figures.against("return-against-error", caption, panels, ("evaluator MAE", "true discounted return"))


def errors_figure(worlds: ResultsByWorld, kind: str) -> ReportFigure | None:
    """Errors of all predictors, a panel for each condition."""
    panels = {}
    for world, rows in worlds.items():
        for results in rows:
            names = [name for name in (*ORDER, *LABELS.values()) if name in results.predictors(kind)]
            errors = {name: mean_and_error(results.mae(name, kind)) for name in names}
            title = f"{short_name(world)}, β = {results.condition.beta:g}"
            panels[title] = {name: error for name, error in errors.items() if error is not None}
    if not panels:
        return None
    caption = f"Mean absolute error at {kind} states, with standard errors over seeds; the evaluator's is coloured."
    return figures.bars(f"errors-{kind}", caption, panels, "MAE", (EVALUATOR,))


def curves_figure(worlds: ResultsByWorld) -> ReportFigure | None:
    """Learning curves of return and of the evaluator's error on fresh batches."""
    rows: dict[str, dict[str, dict[str, figures.Band]]] = {}
    quantities = {"return": "return of an episode", "evaluation_error_fresh": "evaluation error, fresh batch"}
    for metric, label in quantities.items():
        for world, everything in worlds.items():
            panel = {
                results.condition.label: (results.curves["steps"], results.curves[metric])
                for results in everything
                if metric in results.curves
            }
            rows.setdefault(label, {})[short_name(world)] = panel
    if not worlds:
        return None
    caption = (
        "Learning curves: mean and Student's 95 % interval over seeds. Top: undiscounted return of the episodes that "
        "ended. Bottom: mean |return-to-go − prediction| on the batch just collected, before the evaluator saw it; it "
        "contains the noise of single returns."
    )
    return figures.curves("learning-curves", caption, rows)


def present(*drawn: ReportFigure | None) -> tuple[ReportFigure, ...]:
    """The figures that are not None."""
    return tuple(figure for figure in drawn if figure is not None)
