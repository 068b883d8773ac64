"""`families`: families of worlds with a hidden context, where being evaluable pays."""

from typing import Any

from evarl.evaluation.predictors import BEST, EVALUATOR, MEAN, SHUFFLED, TOLD, ZEROED
from evarl.studies import figures
from evarl.studies.conditions import Condition, ConditionResults, Mode, condition, condition_results, mean_and_error
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, ReportFigure, ReportTable, StudyResults
from evarl.studies.scales import Family, StudyScale
from evarl.studies.verdicts import check_larger, lowered_by_share

TITLE = "Families of worlds: training for evaluability where the evaluator cannot know everything"
METHOD = (
    "A number that decides the return (the context) is hidden, and differs from site to site. The policy is assessed on the "
    "site; the evaluator predicts its value there from that alone. Final policies, on sites that were not used in training. "
    "Where a world is finite, values are exact.\n\n"
    "“passive” is an evaluator fitted beside ordinary training over the same contexts. “exact” is the policy gradient without "
    "linearisation; with the shape “assessment” β changes the policy in its assessment only, with “both” in deployment too. "
    "“slope” replaces it by the form through ∂V̂/∂Ξ, and “printed” is the paper's own gradient."
)
SITE = "site"
PASSIVE, MAIN = "passive", "exact, assessment, β=1"
"""The conditions that are compared in the claims."""
KEPT_RETURN = 0.01
"""Largest share of the passive policy's return that may be lost."""
WANTED = {"crossing": 0.4}
"""Largest error relative to the passive one that is claimed, by beginning of the name; half of it elsewhere."""


def jobs(scale: StudyScale) -> list[Job]:
    """Training jobs of all conditions in all families; those that the claims compare come first, then other β."""
    every = [one for conditions in _families(scale).values() for one in conditions]
    every.sort(key=lambda one: (one.label not in (PASSIVE, MAIN), not one.label.startswith("exact, assessment")))
    return [job for one in every for job in one.jobs]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Return and errors by family and condition, and the claims that error falls while return stays."""
    found = by_family(scale, store)
    return StudyResults(
        checks=tuple(check for name, rows in found.items() for check in _checks(name, rows)),
        tables=(_table(found),),
        figures=(_figure(found),) if found else (),
    )


def by_family(scale: StudyScale, store: Store) -> dict[str, dict[str, ConditionResults]]:
    """Finished conditions by family and label."""
    found = {
        name: {one.label: known for one in conditions if (known := condition_results(store, one)) is not None}
        for name, conditions in _families(scale).items()
    }
    return {name: rows for name, rows in found.items() if rows}


def _settings(betas: tuple[float, ...], slope: bool) -> dict[str, tuple[Mode, dict[str, Any]]]:
    """By name of the condition: the kind of evaluator, and the settings that differ from the preset.

    The paper's gradient counts errors at all visited states, so that its evaluator must be fitted to them.
    """
    exact = {"gradient": "exact", "queries": "start"}
    named: dict[str, tuple[Mode, dict[str, Any]]] = {PASSIVE: ("passive", {"beta": 0.0})}
    for beta in betas:
        named[f"exact, assessment, β={beta:g}"] = ("colearned", exact | {"shape": "assessment", "beta": beta})
    middle, largest = betas[(len(betas) - 1) // 2], max(betas)
    named[f"exact, both, β={middle:g}"] = ("colearned", exact | {"shape": "both", "beta": middle})
    if slope:
        paired = {"gradient": "paired", "queries": "start", "shape": "assessment", "beta": largest}
        named[f"slope, assessment, β={largest:g}"] = ("colearned", paired)
    printed = {"gradient": "printed", "queries": "visited", "shape": "both", "beta": min(betas)}
    printed |= {"evaluator.states": "visited", "evaluator.transitions": 24}
    named[f"printed, both, β={min(betas):g}"] = ("colearned", printed)
    return named


def _families(scale: StudyScale) -> dict[str, list[Condition]]:
    every = {name: _conditions(name, family) for name, family in scale.families.items()}
    if scale.name != "smoke":
        return every
    return {name: [one for one in conditions if one.label in (PASSIVE, MAIN)] for name, conditions in every.items()}


def _conditions(name: str, family: Family) -> list[Condition]:
    (world,) = family.worlds
    found = []
    for label, (mode, changes) in _settings(family.betas, slope=name.startswith("crossing")).items():
        slug = f"families-{name}-{label}".replace(", ", "-").replace(" ", "-").replace("β=", "beta-")
        found.append(condition(family, mode, family.changes | {"world": world} | changes, label, slug))
    return found


def _checks(name: str, rows: dict[str, ConditionResults]) -> list[ClaimCheck]:
    if PASSIVE not in rows or MAIN not in rows:
        return []
    passive, aware = rows[PASSIVE], rows[MAIN]
    share = next((share for begins, share in WANTED.items() if name.startswith(begins)), 0.5)
    allowed = {seed: share * error for seed, error in passive.mae(SITE).items()}
    return [
        check_larger(
            f"{name}: the error over sites is at most {share:g} of the passive evaluator's",
            f"{share:g} times the passive evaluator's MAE, less that of {MAIN}",
            allowed,
            aware.mae(SITE),
            equal="holds",
        ),
        check_larger(
            f"{name}: at most {100 * KEPT_RETURN:g} % of the return is lost",
            f"return of {MAIN}, less that of passive training lowered by {100 * KEPT_RETURN:g} %",
            aware.returns(),
            lowered_by_share(passive.returns(), KEPT_RETURN),
            equal="holds",
        ),
    ]


COLUMNS = {
    "MAE": EVALUATOR,
    "best evaluator of Ξ": BEST,
    "Ξ shuffled": SHUFFLED,
    "Ξ zeroed": ZEROED,
    "constant": MEAN,
    "told the context": TOLD,
}
"""Columns of errors, and the predictors in them."""


def _table(found: dict[str, dict[str, ConditionResults]]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for name, conditions in found.items():
        first = len(rows)
        for label, one in conditions.items():
            errors = [mean_and_error(one.mae(SITE, predictor)) for predictor in COLUMNS.values()]
            ranks = mean_and_error(one.ranks(SITE))
            rows.append((name, label, len(one.rows), mean_and_error(one.returns()), *errors, ranks))
        known = [(mean_and_error(one.mae(SITE)), row) for row, one in enumerate(conditions.values(), first)]
        least = min(((error.mean, row) for error, row in known if error is not None), default=None)
        if least is not None:
            best.add((least[1], 4))
    return ReportTable(
        "families",
        "Return, and errors of predictors over sites",
        ("family", "training", "seeds", "return", *COLUMNS, "rank over sites"),
        tuple(rows),
        "Mean ± standard error over seeds. Return: mean value over sites. Errors: mean absolute error of the predicted value "
        "of a site; the evaluator's least in bold. The best evaluator of Ξ is the posterior mean given what the tests showed, "
        "which no evaluator can improve on in squared error. Rank: Spearman's correlation of predicted and true values over "
        "sites.",
        frozenset(best),
    )


def _figure(found: dict[str, dict[str, ConditionResults]]) -> ReportFigure:
    panels: dict[str, dict[str, list[figures.Point]]] = {}
    for name, conditions in found.items():
        for label, one in conditions.items():
            kind, _, beta = label.rpartition(", β=")
            error, value = mean_and_error(one.mae(SITE)), mean_and_error(one.returns())
            if error is not None and value is not None:
                panels.setdefault(name, {}).setdefault(kind or label, []).append((error, value, beta or "0"))
    caption = (
        "Return against the evaluator's mean absolute error over sites; β at the points, bars are standard errors."
    )
    return figures.against("return-against-error", caption, panels, ("evaluator MAE over sites", "return"))
