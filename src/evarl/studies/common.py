"""What the results share: the table of a condition with every control, the usual pictures, the usual checks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, ORDER
from evarl.ope.configuration import LABELS, Method
from evarl.studies import drawing
from evarl.studies.conditions import Seeds, assessment, conditions, found, measured, short
from evarl.studies.findings import Cell, Check, Measured, Picture, Table
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import Family
from evarl.studies.verdicts import all_larger

KINDS = ("start", "visited")


@dataclass(frozen=True)
class Said:
    """What a result says of itself; the rest of its report is the same for all."""

    checks: tuple[Check, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()


def all_jobs(family: Family) -> list[Job]:
    """Of all conditions in all worlds of a family."""
    return [job for world in family.worlds for condition in conditions(family, world) for job in condition.jobs]


def gathered(store: Store, family: Family, modes: Sequence[str]) -> dict[str, list[Seeds]]:
    """What was found, by world, for conditions of some modes; worlds and conditions of which nothing is known are left out."""
    everything: dict[str, list[Seeds]] = {}
    for world in family.worlds:
        kept = [found(store, one) for one in conditions(family, world) if one.mode in modes]
        known = [one for one in kept if one is not None]
        if known:
            everything[world] = known
    return everything


def one_of(seeds: Sequence[Seeds], mode: str, beta: float) -> Seeds | None:
    """The condition with a mode and a β."""
    return next((s for s in seeds if (s.condition.mode, s.condition.beta) == (mode, beta)), None)


def results_table(name: str, title: str, worlds: dict[str, list[Seeds]], kind: str) -> Table:
    """A row for each condition: return, and the mean absolute error of every predictor at one kind of states."""
    everyone = [seeds for rows in worlds.values() for seeds in rows]
    spoken = {p for seeds in everyone for p in seeds.predictors(kind)}
    columns = [p for p in (*ORDER, *LABELS.values()) if p in spoken]
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for seeds in everyone:
        errors = [measured(seeds.mae(predictor, kind)) for predictor in columns]
        known = [(one.mean, number) for number, one in enumerate(errors) if one is not None]
        if known:
            best.add((len(rows), 4 + min(known)[1]))
        row = (short(seeds.condition.world), seeds.condition.label, len(seeds.rows), measured(seeds.returns()))
        rows.append((*row, *errors))
    head = ("world", "training", "seeds", "return", *columns)
    note = (
        f"Return: true mean discounted return over the start states. All other columns: mean absolute error at {kind} "
        "states against Monte-Carlo truth, mean ± standard error over seeds; the least in bold."
    )
    return Table(name, title, head, tuple(rows), note, frozenset(best))


def below_every(
    seeds: Seeds | None, policy: str, methods: Sequence[Method], which: str, kind: str, of: Seeds | None = None
) -> Check:
    """The claim that the evaluator's error is below that of every off-policy method.

    `of` are the policies the methods are asked about, where they are not the evaluator's own.
    """
    asked = of or seeds
    world = short(seeds.condition.world) if seeds is not None else "?"
    claim = f"{world}, {policy}: evaluator MAE below every OPE baseline {which}, at {kind} states"
    theirs = {LABELS[method]: None if asked is None else asked.mae(LABELS[method], kind) for method in methods}
    mine = None if seeds is None else seeds.mae(EVALUATOR, kind)
    return all_larger(claim, "MAE of the best baseline less that of the evaluator", theirs, mine)


def scenario_picture(store: Store, family: Family) -> Picture | None:
    """Where the assessments of a family begin; None where there is nothing to see."""
    jobs = {world: assessment(family, world) for world in family.worlds}
    known = {short(world): store.result(job) for world, job in jobs.items() if store.finished(job)}
    shown = {name: np.array(one["observations"]) for name, one in known.items()}
    games = {name: (x, known[name]["channels"]) for name, x in shown.items() if x.ndim == 4}
    if games:
        caption = "The start states from which policies are assessed: drawn once from what a base policy visits."
        return drawing.boards("scenarios", caption, games)
    if "Navigation" in shown:
        caption = "Where policies are deployed, and the open field in which they are assessed, with its start states."
        return drawing.navigation_map("scenarios", caption, shown["Navigation"])
    return None


def predictions_picture(worlds: dict[str, list[Seeds]], kind: str = "visited") -> Picture | None:
    """True against predicted values of the first condition above β = 0 that has them, pooled over seeds."""
    panels = {}
    for world, rows in worlds.items():
        aware = [s for s in rows if s.condition.mode == "colearned" and s.condition.beta > 0] or rows
        clouds: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for row in aware[0].rows.values():
            asked = row["queries"].get(kind)
            for predictor, said in (asked or {"predictions": {}})["predictions"].items():
                clouds.setdefault(predictor, []).append((np.array(said), np.array(asked["truth"])))
        if clouds:
            panels[f"{short(world)}, β = {aware[0].condition.beta:g}"] = {
                name: (np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]))
                for name, pairs in clouds.items()
            }
    if not panels:
        return None
    caption = f"True values (Monte Carlo) against predictions at {kind} states, one point for each state and seed."
    return drawing.true_against_predicted("true-against-predicted", caption, panels)


def trade_picture(worlds: dict[str, list[Seeds]], kind: str = "visited") -> Picture | None:
    """Return against the evaluator's error, a line through the β of each kind of evaluator."""
    kinds = {"passive": "passive evaluator", "colearned": "co-learned evaluator", "frozen": "frozen evaluator"}
    panels: dict[str, dict[str, list[tuple[Measured, Measured, str]]]] = {}
    for world, rows in worlds.items():
        lines: dict[str, list[tuple[Measured, Measured, str]]] = {}
        for seeds in rows:
            x, y = measured(seeds.mae(EVALUATOR, kind)), measured(seeds.returns())
            if x is not None and y is not None:
                point = (x, y, f"β = {seeds.condition.beta:g}")
                lines.setdefault(kinds[seeds.condition.mode], []).append(point)
        if lines:
            panels[short(world)] = lines
    if not panels:
        return None
    caption = (
        f"Return against the evaluator's mean absolute error at {kind} states; bars are standard errors over seeds."
    )
    return drawing.against("return-against-error", caption, panels, ("evaluator MAE", "true discounted return"))


def errors_picture(worlds: dict[str, list[Seeds]], kind: str) -> Picture | None:
    """The errors of all predictors, a panel for each condition."""
    panels = {}
    for world, rows in worlds.items():
        for seeds in rows:
            names = [p for p in (*ORDER, *LABELS.values()) if p in seeds.predictors(kind)]
            errors = {name: measured(seeds.mae(name, kind)) for name in names}
            panels[f"{short(world)}, β = {seeds.condition.beta:g}"] = {n: e for n, e in errors.items() if e is not None}
    if not panels:
        return None
    caption = f"Mean absolute error at {kind} states, with standard errors over seeds; the evaluator's is coloured."
    return drawing.bars(f"errors-{kind}", caption, panels, "MAE", (EVALUATOR,))


def curves_picture(worlds: dict[str, list[Seeds]]) -> Picture | None:
    """Learning curves of return and of the evaluator's error on fresh batches."""
    rows: dict[str, dict[str, dict[str, drawing.Band]]] = {}
    quantities = {"return": "return of an episode", "evaluation_error_fresh": "evaluation error, fresh batch"}
    for metric, label in quantities.items():
        for world, everything in worlds.items():
            panel = {
                seeds.condition.label: (seeds.curves["steps"], seeds.curves[metric])
                for seeds in everything
                if metric in seeds.curves
            }
            rows.setdefault(label, {})[short(world)] = panel
    if not worlds:
        return None
    caption = (
        "Learning curves: mean and Student's 95 % interval over seeds. Top: undiscounted return of the episodes that "
        "ended. Bottom: mean |return-to-go − prediction| on the batch just collected, before the evaluator saw it; it "
        "contains the noise of single returns."
    )
    return drawing.curves("learning-curves", caption, rows)


def present(*pictures: Picture | None) -> tuple[Picture, ...]:
    """Those that there are."""
    return tuple(picture for picture in pictures if picture is not None)
