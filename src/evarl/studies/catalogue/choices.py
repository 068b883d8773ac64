"""`choices`: what training can decide by itself (start states, the end of the warm-up, β) against what is set by hand."""

import dataclasses
from typing import Any

from evarl.evaluation.predictors import EVALUATOR, SHUFFLED, ZEROED
from evarl.studies.conditions import Condition, ConditionResults, condition, condition_results, mean_and_error
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, ReportTable, StudyResults
from evarl.studies.scales import Family, StudyScale
from evarl.studies.verdicts import check_larger, lowered_by_share

TITLE = "Start states, the end of the warm-up and β: set by hand, or decided in training"
METHOD = (
    "Navigation with the paper's hyperparameters (gradient “critic”), and crossing with a bridge that holds with probability "
    "0.15 or 0.9 (gradient “exact”, shape “assessment”); final policies. Errors are measured at start states of navigation and "
    "over new sites of crossing.\n\n"
    "“by hand” has the world's own start states, a warm-up of fixed length and a fixed β; the other conditions differ from it in "
    "one thing. “random states” and “greedy states” are drawn or chosen from states that base policies visit, in the deployment "
    "world. “automatic warm-up” ends when the evaluator has had positive skill for a while. “target error” lets β follow a "
    "target, with the β of the others as its upper limit."
)
BY_HAND, RANDOM, GREEDY, AUTOMATIC, TARGET = (
    "by hand",
    "random states",
    "greedy states",
    "automatic warm-up",
    "target error",
)
"""Names of the conditions."""
KEPT_RETURN = 0.01
"""Largest share of the return that an automatic warm-up may lose."""
CROSSING = "crossing, two values"
"""The family of worlds, by its name at every scale."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A world, and what is set in it by hand."""

    family: Family
    kind: str
    """Kind of the states at which errors are measured."""
    changes: dict[str, Any]
    earliest: int
    """Updates after which an automatic warm-up may end."""
    target: float
    """Target of the evaluation error."""


def jobs(scale: StudyScale) -> list[Job]:
    """Training jobs of all conditions in both worlds."""
    return [job for place in _places(scale).values() for one in _conditions(scale, place) for job in one.jobs]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Return and errors by world and condition, and the paired comparisons."""
    places = _places(scale)
    found = {
        world: {
            one.label: known
            for one in _conditions(scale, place)
            if (known := condition_results(store, one)) is not None
        }
        for world, place in places.items()
    }
    checks = [check for world, place in places.items() for check in _checks(world, place, found[world])]
    return StudyResults(checks=tuple(checks), tables=(_table(places, found),))


def _places(scale: StudyScale) -> dict[str, Place]:
    """Both worlds by name, with ten seeds unless the scale has fewer."""
    exact = {"gradient": "exact", "queries": "start", "shape": "assessment", "beta": 1.0}
    found = {
        "navigation": Place(scale.gradients, "start", {"gradient": "critic", "beta": 0.05}, 10, 0.1),
        "crossing": Place(scale.families[CROSSING], "site", exact, 20, 1.0),
    }
    few = {"assessment.base_updates": 20} if scale.name == "smoke" else {}  # after less, policies hardly differ
    return {
        world: dataclasses.replace(
            place,
            family=dataclasses.replace(
                place.family, seeds=min(10, place.family.seeds), changes=place.family.changes | few
            ),
            earliest=2 if few else place.earliest,
        )
        for world, place in found.items()
    }


def _conditions(scale: StudyScale, place: Place) -> list[Condition]:
    """The condition by hand, and those that differ from it: in their assessment, or in a setting of training."""
    window = {"evaluator.warmup_window": 2} if scale.name == "smoke" else {}
    automatic = {"evaluator.warmup": place.earliest, "evaluator.warmup_ends": "auto"} | window
    differing: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        BY_HAND: ({}, {}),
        RANDOM: ({"assessment.select": "random"}, {}),
        GREEDY: ({"assessment.select": "greedy"}, {}),
        AUTOMATIC: ({}, automatic),
        TARGET: ({}, {"target_error": place.target}),
    }
    (world,), common = place.family.worlds, place.family.changes | place.changes
    found = []
    for label, (states, changes) in differing.items():
        drawn = dataclasses.replace(place.family, changes=place.family.changes | states)
        settings = common | {"world": world} | changes
        found.append(condition(drawn, "colearned", settings, label, f"choices-{world}-{label.replace(' ', '-')}"))
    return found


def _checks(world: str, place: Place, rows: dict[str, ConditionResults]) -> list[ClaimCheck]:
    errors = {label: one.mae(place.kind) for label, one in rows.items()}
    returns = {label: one.returns() for label, one in rows.items()}
    known = lambda values, label: values.get(label, {})  # noqa: E731
    asked = dict.fromkeys(known(errors, TARGET), place.target)
    return [
        check_larger(
            f"{world}: start states that are chosen lower the evaluator's error, compared with random ones",
            f"MAE of {RANDOM} less that of {GREEDY}",
            known(errors, RANDOM),
            known(errors, GREEDY),
        ),
        check_larger(
            f"{world}: a warm-up that ends by itself lowers the evaluator's error, compared with one of fixed length",
            f"MAE of {BY_HAND} less that of {AUTOMATIC}",
            known(errors, BY_HAND),
            known(errors, AUTOMATIC),
        ),
        check_larger(
            f"{world}: a warm-up that ends by itself loses at most {100 * KEPT_RETURN:g} % of the return",
            f"return of {AUTOMATIC}, less that of {BY_HAND} lowered by {100 * KEPT_RETURN:g} %",
            known(returns, AUTOMATIC),
            lowered_by_share(known(returns, BY_HAND), KEPT_RETURN),
            equal="holds",
        ),
        check_larger(
            f"{world}: with a target of {place.target:g} the error ends below it",
            f"{place.target:g} less the MAE of {TARGET}",
            asked,
            known(errors, TARGET),
            "the target is one of the root mean square, which the MAE does not exceed",
        ),
        check_larger(
            f"{world}: with a target the return is above that with a fixed β",
            f"return of {TARGET} less that of {BY_HAND}",
            known(returns, TARGET),
            known(returns, BY_HAND),
        ),
    ]


COLUMNS = {"MAE": EVALUATOR, "Ξ shuffled": SHUFFLED, "Ξ zeroed": ZEROED}
"""Columns of errors, and the predictors in them."""


def _table(places: dict[str, Place], found: dict[str, dict[str, ConditionResults]]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for world, conditions in found.items():
        for label, one in conditions.items():
            errors = [mean_and_error(one.mae(places[world].kind, predictor)) for predictor in COLUMNS.values()]
            rows.append((world, label, len(one.rows), mean_and_error(one.returns()), *errors))
    return ReportTable(
        "choices",
        "Return and errors by world and condition",
        ("world", "training", "seeds", "return", *COLUMNS),
        tuple(rows),
        "Mean ± standard error over seeds. Errors: mean absolute error of predicted values, at start states of navigation and "
        "over sites of crossing.",
    )
