"""`gradients`: gradient × β on navigation, with passive, co-learned and frozen evaluators."""

import dataclasses
import itertools
from typing import Any

from evarl.evaluation.predictors import CRITIC, EVALUATOR, WITHOUT, ZEROED
from evarl.learning.presets import studied
from evarl.stats import t_interval
from evarl.studies import figures
from evarl.studies.common import KINDS
from evarl.studies.conditions import Condition, ConditionResults, Mode, condition, condition_results, mean_and_error
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportFigure, ReportTable, StudyResults
from evarl.studies.scales import StudyScale
from evarl.studies.tables import interval
from evarl.studies.verdicts import check_larger, paired_differences

TITLE = "Gradients of the evaluability penalty, and its size β, on navigation"
METHOD = (
    "Navigation with the paper's hyperparameters, final policies. Return is the true undiscounted return from the start "
    "state; errors are in units of discounted return (γ = 0.99), against Monte-Carlo truth.\n\n"
    "“passive” is an evaluator fitted beside ordinary training. “few” shows the evaluator 8 of the 1 600 deployment returns of "
    "each policy. “ramped” raises β from 0 to its value over the whole run. “frozen” holds an evaluator fixed that was fitted "
    "to the policies of four other seeds; there the critic's value ends at the time limit as the evaluator's does, except "
    "in “bootstrapped”."
)
FEW = 8
"""Deployment returns of each policy that the evaluator is fitted to in the conditions *few*, out of 1 600."""
FROZEN_SEEDS = (1000, 4)
"""First seed and number of seeds of the runs that frozen evaluators are fitted to."""
QUERIES = {"critic": "visited", "printed": "visited", "paired": "start", "score": "start"}
"""States at which each gradient asks the evaluator."""
BEST_WITHOUT = "best predictor without Ξ"
"""Of each seed the predictor without Ξ with the least error: earlier versions kept the squared error of this one only."""
PASSIVE, FEW_PASSIVE, FROZEN = "passive β=0", "few passive β=0", "frozen critic β=0.0"
SMOKE = (PASSIVE, "critic β=0.05", FROZEN, "frozen ramped critic β=0.5")
"""Conditions that are run at the scale `smoke`."""
MAIN = (
    PASSIVE,
    "critic β=0.05",
    "ramped paired β=0.5",
    "ramped paired β=1.5",
    FEW_PASSIVE,
    "few critic β=0.05",
    "few printed β=0.01",
)
"""Conditions that get three times as many seeds as the others."""
CLAIMED = (*(name for name in MAIN if "passive" not in name), "frozen ramped critic β=0.5")
"""Conditions for which it is tested whether the penalty lowers the evaluator's error."""
LINES = ("passive", *QUERIES, "ramped paired", "few passive", "few printed", "frozen critic")
"""Conditions in the figure, without their β."""


def jobs(scale: StudyScale) -> list[Job]:
    """Training jobs of all conditions."""
    return [job for condition in _conditions(scale) for job in condition.jobs]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Errors by condition, and each condition compared with its own β = 0."""
    found = {one.label: results for one in _conditions(scale) if (results := condition_results(store, one)) is not None}
    return StudyResults(
        checks=tuple(check for name in CLAIMED if name in found for check in _checks(found, name)),
        tables=(_table(found), _differences(found)),
        figures=(_figure(found),) if found else (),
    )


def _settings(betas: tuple[float, ...], updates: int, warmup: int) -> dict[str, tuple[Mode, dict[str, Any]]]:
    """By name of the condition: the kind of evaluator, and the settings that differ from the preset."""
    few, bounded = {"evaluator.transitions": FEW}, {"agent.truncation": "as-termination"}
    ramp = {"ramp": max(1, updates - warmup), "beta": 0.5}
    paired = ramp | {"gradient": "paired", "queries": "start"}
    named: dict[str, tuple[Mode, dict[str, Any]]] = {
        PASSIVE: ("passive", {"beta": 0.0}),
        "critic β=0.05": ("colearned", {"gradient": "critic", "queries": "visited", "beta": 0.05}),
        FEW_PASSIVE: ("passive", few | {"beta": 0.0}),
        "few critic β=0.05": ("colearned", few | {"gradient": "critic", "beta": 0.05}),
        "few printed β=0.01": ("colearned", few | {"gradient": "printed", "beta": 0.01}),
    }
    for (gradient, queries), beta in itertools.product(QUERIES.items(), betas):
        named[f"{gradient} β={beta}"] = ("colearned", {"gradient": gradient, "queries": queries, "beta": beta})
    named |= {
        "ramped critic β=0.5": ("colearned", ramp | {"gradient": "critic"}),
        "ramped paired β=0.5": ("colearned", paired),
        "ramped paired β=1.5": ("colearned", paired | {"beta": 1.5}),
    }
    for beta in (0.0, *betas):
        # the critic must estimate the same value as the evaluator, which ends at the time limit
        named[f"frozen critic β={beta}"] = ("frozen", bounded | {"gradient": "critic", "beta": beta})
    named |= {
        "frozen ramped critic β=0.5": ("frozen", bounded | ramp | {"gradient": "critic"}),
        "frozen ramped bootstrapped critic β=0.5": ("frozen", ramp | {"gradient": "critic"}),
    }
    return named


def _conditions(scale: StudyScale) -> list[Condition]:
    family = scale.gradients
    config = studied(family.preset, family.changes)
    found = []
    for name, (mode, changes) in _settings(family.betas, config.updates, config.evaluator.warmup).items():
        if scale.name != "smoke" or name in SMOKE:
            several = dataclasses.replace(family, seeds=family.seeds * (3 if name in MAIN else 1))
            slug = f"gradients-{name.replace(' ', '-').replace('β=', 'beta-')}"
            changes = family.changes | {"world": "navigation"} | changes
            found.append(condition(several, mode, changes, name, slug, FROZEN_SEEDS))
    return found


def _baseline(name: str) -> str:
    """The condition with β = 0 that a condition is compared with."""
    if name.startswith("frozen"):
        return FROZEN
    return FEW_PASSIVE if name.startswith("few") else PASSIVE


def _checks(found: dict[str, ConditionResults], name: str) -> list[ClaimCheck]:
    baseline = _baseline(name)
    return [
        check_larger(
            f"{name}: the penalty lowers the evaluator's MAE at {kind} states, compared with {baseline}",
            f"MAE of {baseline} less that of {name}",
            found[baseline].mae(kind) if baseline in found else {},
            found[name].mae(kind),
        )
        for kind in KINDS
    ]


def _table(found: dict[str, ConditionResults]) -> ReportTable:
    columns = {
        "start MAE": ("start", EVALUATOR),
        "visited MAE": ("visited", EVALUATOR),
        "start MAE, Ξ zeroed": ("start", ZEROED),
        "start MAE, critic": ("start", CRITIC),
        "visited MAE, critic": ("visited", CRITIC),
    }
    rows: list[tuple[Cell, ...]] = []
    for name, one in found.items():
        errors = [mean_and_error(one.mae(*column)) for column in columns.values()]
        returns = mean_and_error(one.returns(discounted=False))
        rows.append((name, len(one.rows), returns, *errors, one.skill("visited", (*WITHOUT, BEST_WITHOUT))))
    return ReportTable(
        "gradients",
        "Return and errors by condition",
        ("condition", "seeds", "return", *columns, "skill, visited"),
        tuple(rows),
        "Mean ± standard error over seeds. Skill is 1 − MSE(evaluator) / MSE(best predictor without Ξ) at visited states. It is "
        "a ratio: both mean squared errors are averaged over seeds before they are divided, and its standard error is the "
        "jackknife's over seeds.",
    )


def _differences(found: dict[str, ConditionResults]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    clear: set[tuple[int, int]] = set()
    for name, one in found.items():
        other = found.get(_baseline(name))
        if other is None or other is one:
            continue
        row: list[Cell] = [name, _baseline(name), len(one.rows.keys() & other.rows.keys())]
        compared = [(one.returns(discounted=False), other.returns(discounted=False))]
        compared += [(one.mae(kind), other.mae(kind)) for kind in KINDS]
        for mine, theirs in compared:
            cell = None
            if (differences := paired_differences(mine, theirs)) is not None:
                student = t_interval(differences)
                effect, bounds = interval(student.estimate, (student.low, student.high))
                cell = f"{effect} ({' to '.join(bounds or ())})"
                if student.low * student.high > 0:
                    clear.add((len(rows), len(row)))
            row.append(cell)
        rows.append(tuple(row))
    return ReportTable(
        "differences",
        "Each condition less its own β = 0, seed by seed",
        ("condition", "less", "seeds", "return", "start MAE", "visited MAE"),
        tuple(rows),
        "Mean difference of paired seeds with Student's 95 % interval; bold where the interval excludes 0.",
        frozenset(clear),
    )


def _figure(found: dict[str, ConditionResults]) -> ReportFigure:
    from evarl.truth.exact import best_return  # imports JAX
    from evarl.worlds.navigation import Navigation

    best = best_return(Navigation())
    panels: dict[str, dict[str, list[figures.Point]]] = {f"{kind} states": {} for kind in KINDS}
    for kind, line in itertools.product(KINDS, LINES):
        for name, one in found.items():
            kept, _, beta = name.rpartition(" β=")
            error, value = mean_and_error(one.mae(kind)), mean_and_error(one.returns(discounted=False))
            if kept == line and error is not None and value is not None:
                point = (error, MeanAndError(best - value.mean, value.standard_error), beta)
                panels[f"{kind} states"].setdefault(line, []).append(point)
    caption = (
        f"How far the return is below the best possible ({best:.3f}) against the evaluator's mean absolute error, both on "
        "logarithmic axes; β at the points, bars are standard errors over seeds."
    )
    labels = ("evaluator MAE", "return below the best possible")
    return figures.against("return-against-error", caption, panels, labels, log=True)
