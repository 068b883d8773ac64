"""`targets`: whose value follows where a batch cuts an episode, the critic's or the evaluator's own, in three Brax robots."""

import math
from dataclasses import replace
from typing import Any

from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, SHUFFLED, ZEROED
from evarl.ope.registry import LABELS
from evarl.studies.conditions import (
    Condition,
    ConditionResults,
    Values,
    condition_results,
    conditions,
    mean_and_error,
    ratio,
    short_name,
)
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, ReportTable, StudyResults
from evarl.studies.scales import FITTING, OWN_VALUES, Family, StudyScale
from evarl.studies.verdicts import check_larger

TITLE = "Targets where batches cut episodes: the critic's values follow, or the evaluator's own"
METHOD = (
    "A batch has far fewer steps than an episode, so that most of a return lies beyond the cut. With “critic's values” the "
    "critic's value follows there, as in the study “continuous”, whose jobs these are. With “own values” the evaluator's own "
    "value follows, for the same policy, at cuts and at time limits, as in fitted Q evaluation; the memory then has more "
    "policies, the batches of the fit more states, and the last update more gradient steps.\n\n"
    "Both are compared with sound fitted Q evaluation of the same policies, from the log of the last updates."
)
BEFORE, AFTER = "critic's values", "own values"
"""Names of the conditions."""
MOST = 1.5
"""Largest allowed ratio of the evaluator's error to that of fitted Q evaluation."""
FQE = LABELS["fqe"]


def jobs(scale: StudyScale) -> list[Job]:
    """Training jobs of both conditions in every robot."""
    return [job for pair in _conditions(scale).values() for one in pair for job in one.jobs]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Return and errors before and after in every robot, and whether fitted Q evaluation is reached."""
    found = {
        world: [known for one in pair if (known := condition_results(store, one)) is not None]
        for world, pair in _conditions(scale).items()
    }
    checks = [_check(world, one) for world, rows in found.items() for one in rows]
    return StudyResults(checks=tuple(checks), tables=(_table(found), _squared_table(found)))


def _conditions(scale: StudyScale) -> dict[str, tuple[Condition, Condition]]:
    """The conditions before and after, by world."""
    amounts = {"evaluator.final_steps": 5} if scale.name == "smoke" else FITTING
    return {
        short_name(world): (before, _with_own_values(before, OWN_VALUES | amounts))
        for world in scale.brax.worlds
        for before in [_colearned(scale.brax, world)]
    }


def _colearned(family: Family, world: str) -> Condition:
    """The condition with a co-learned evaluator and the least β above 0, with the same jobs as in `continuous`."""
    kind = "colearned", family.betas[0]
    (found,) = (one for one in conditions(family, world) if (one.mode, one.beta) == kind)
    return replace(found, label=BEFORE)


def _with_own_values(before: Condition, changes: dict[str, Any]) -> Condition:
    """The same seeds and assessment with some settings changed, and fitted Q evaluation as the only off-policy method."""

    def changed(job: Job) -> Job:
        settings = job.settings | {"changes": job.settings["changes"] | changes, "methods": ["fqe"]}
        return replace(job, label=f"targets-{job.label}", settings=settings)

    return replace(before, label=AFTER, jobs=tuple(map(changed, before.jobs)))


def _check(world: str, one: ConditionResults) -> ClaimCheck:
    allowed = {seed: MOST * error for seed, error in one.mae("start", FQE).items()}
    return check_larger(
        f"{world}, {one.condition.label}: evaluator MAE at start states at most {MOST:g} times that of sound FQE",
        f"{MOST:g} × MAE of FQE, less that of the evaluator",
        allowed,
        one.mae("start"),
        equal="holds",
    )


COLUMNS = {"evaluator": EVALUATOR, "Ξ zeroed": ZEROED, "Ξ shuffled": SHUFFLED, "critic": CRITIC, "FQE (sound)": FQE}
"""Columns of errors at start states, and the predictors in them."""


def _table(found: dict[str, list[ConditionResults]]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for world, both in found.items():
        for one in both:
            start = {name: one.mae("start", predictor) for name, predictor in COLUMNS.items()}
            measured = [one.returns(), *start.values(), _noise(one, "start")]
            visited = [one.mae("visited"), one.mae("visited", FQE)]
            rows.append(
                (
                    world,
                    one.condition.label,
                    len(one.rows),
                    *map(mean_and_error, measured),
                    ratio(start["evaluator"], start["FQE (sound)"]),
                    *map(mean_and_error, visited),
                )
            )
    head = ("world", "what follows", "seeds", "return", *COLUMNS, "noise", "evaluator / FQE")
    return ReportTable(
        "targets",
        "Return and errors before and after",
        (*head, "evaluator, visited", "FQE, visited"),
        tuple(rows),
        "Mean ± standard error over seeds. Mean absolute errors against Monte-Carlo truth, at start states and, in the last two "
        "columns, at visited states. Noise: the error at start states that a perfect predictor would have, since the truth is a "
        "mean over few rollouts. The ratio is that of averages over seeds, with the jackknife's standard error.",
    )


def _squared_table(found: dict[str, list[ConditionResults]]) -> ReportTable:
    """Squared errors, from which the noise of the true values can be taken away: with much of it, absolute errors look alike."""
    columns = COLUMNS | {BATCH: BATCH}
    rows: list[tuple[Cell, ...]] = []
    for world, both in found.items():
        for one in both:
            errors = [mean_and_error(one.mse("start", predictor)) for predictor in columns.values()]
            rows.append((world, one.condition.label, *errors))
    return ReportTable(
        "targets-squared",
        "Squared errors less noise",
        ("world", "what follows", *columns),
        tuple(rows),
        "Mean (V̂ − V̄)² − se² at start states, mean ± standard error over seeds. It is unbiased for the mean of (V̂ − V)², and may "
        "therefore be below 0.",
    )


def _noise(one: ConditionResults, kind: str) -> Values:
    """Mean absolute error of a perfect predictor, by seed: E|ε| = √(2/π) σ for normal errors ε of the true values."""
    errors = {seed: row["queries"][kind]["standard_error"] for seed, row in one.rows.items()}
    return {seed: math.sqrt(2 / math.pi) * sum(each) / len(each) for seed, each in errors.items()}
