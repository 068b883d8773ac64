"""`held-out`: errors of evaluators on policies of seeds that they were not fitted to, with and without the assessment."""

from typing import TYPE_CHECKING, Any

from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.studies import figures
from evarl.studies.conditions import stored_score
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, MeanAndError, ReportFigure, ReportTable, StudyResults
from evarl.studies.scales import StudyScale

if TYPE_CHECKING:
    from evarl.evaluation.scores import Score

TITLE = "Do evaluators use the assessment? Errors on policies never seen"
METHOD = (
    "Policies of ordinary training are recorded at equal distances from the first update to the last: states met, returns-to-go "
    "and Ξ. Each kind of evaluator is fitted to those of some seeds and predicts, for each policy of the other seeds, the value "
    "averaged over the states that the policy met.\n\n"
    "“With Ξ” is the evaluator as it is used; “Ξ shuffled” shows it the assessment of another policy; “fitted without Ξ” is "
    "the same network, fitted and tested with all assessment returns at zero; “a constant” is the mean return-to-go of the "
    "policies that were fitted."
)
Scores = dict[str, dict[str, dict[str, "Score"]]]
"""By world, kind of evaluator and predictor."""
COLUMNS = {EVALUATOR: "with Ξ", SHUFFLED: "Ξ shuffled", BLIND: BLIND, CONSTANT: "a constant"}


def jobs(scale: StudyScale) -> list[Job]:
    """One job for each world: all kinds of evaluators are fitted to the same policies."""
    return [_job(preset, **vars(settings)) for preset, settings in scale.held_out.items()]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Errors and skill by world and kind of evaluator."""
    worlds = {
        job.settings["changes"]["world"]: {
            kind: {name: stored_score(one) for name, one in scores.items()}
            for kind, scores in store.result(job)["kinds"].items()
        }
        for job in jobs(scale)
        if store.finished(job)
    }
    return StudyResults(
        tables=(_table(worlds),),
        figures=(_figure(worlds),) if worlds else (),
        notes=("One split of the seeds: there are no confidence intervals.",),
    )


def _job(preset: str, world: str, updates: int, changes: dict[str, Any], **settings: int) -> Job:
    trained = changes | {"world": world, "updates": updates, "evaluator_mode": "colearned"}
    label = f"held-out-{world.replace('/', '-').lower()}"
    return Job(label, "held-out", {"preset": preset, "changes": trained} | settings, weight=30.0)


def _table(worlds: Scores) -> ReportTable:
    from evarl.evaluation.scores import skill  # imports JAX

    rows: list[tuple[Cell, ...]] = []
    for world, kinds in worlds.items():
        for kind, scores in kinds.items():
            errors = [scores[name].mse ** 0.5 for name in COLUMNS]
            found = skill([scores[EVALUATOR]], {name: [scores[name]] for name in (BLIND, CONSTANT)})
            rows.append((world, kind, *errors, found.estimate.mean))
    return ReportTable(
        "held-out",
        "Root mean squared error over held-out policies",
        ("world", "evaluator", *COLUMNS.values(), "skill"),
        tuple(rows),
        f"Skill is 1 − MSE(with Ξ) / MSE(the better of {BLIND!r} and 'a constant'); the mean squared errors are averaged over "
        "all held-out policies, of all held-out seeds, before they are divided.",
    )


def _figure(worlds: Scores) -> ReportFigure:
    panels = {
        world: {
            column if name == CONSTANT else f"{kind}, {column}": MeanAndError(scores[name].mse ** 0.5)
            for kind, scores in kinds.items()
            for name, column in COLUMNS.items()
        }
        for world, kinds in worlds.items()
    }
    coloured = [bar for bars in panels.values() for bar in bars if bar.endswith(COLUMNS[EVALUATOR])]
    caption = (
        "Root mean squared error over held-out policies; that of the evaluators with their assessment is coloured."
    )
    return figures.bars("held-out-errors", caption, panels, "RMSE", coloured, log=False)
