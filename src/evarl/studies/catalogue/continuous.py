"""`continuous`: ordinary training with off-policy evaluation against EvA-RL with its evaluator, in three Brax robots."""

from collections.abc import Iterator

from evarl.evaluation.predictors import CRITIC, EVALUATOR, ZEROED
from evarl.ope.registry import LABELS
from evarl.studies.catalogue.pipelines import compared
from evarl.studies.common import KINDS, families_of, results_by_world, training_jobs, with_mode
from evarl.studies.conditions import ConditionResults, mean_and_error, ratio
from evarl.studies.jobs import Store
from evarl.studies.off_policy import as_in_paper
from evarl.studies.reports import Cell, MeanAndError, ReportTable, StudyResults
from evarl.studies.scales import StudyScale

TITLE = "Continuous control: ordinary training and off-policy evaluation, against EvA-RL and its evaluator"
PAPER = (
    "With β = 5 × 10⁻⁴, EvA-RL keeps the return of ordinary training (ratios 1.052, 1.000, 0.999) and its evaluator is more "
    "accurate than FQE, PDIS and DR on HalfCheetah and Reacher, and than FQE and PDIS on Ant. (20 seeds.)"
)
NUMBERS = {
    "HalfCheetah": {"FQE": (29.19, 4.76), "PDIS": (5.28, 0.66), "DR": (7.29, 1.94), EVALUATOR: (4.18, 0.49)},
    "Reacher": {"FQE": (62.22, 3.49), "PDIS": (37.33, 8.12), "DR": (35.30, 2.87), EVALUATOR: (13.90, 0.26)},
    "Ant": {"FQE": (46.58, 5.94), "PDIS": (28.38, 5.48), "DR": (15.80, 5.74), EVALUATOR: (16.47, 6.61)},
}
"""The paper's mean absolute errors and their standard errors."""
RATIOS = {"HalfCheetah": (1.052, 0.005), "Reacher": (1.000, 0.001), "Ant": (0.999, 0.004)}
"""The paper's returns of EvA-RL over those of ordinary training."""
GREEDY = LABELS["fqe-greedy-huber"]
"""Fitted Q evaluation in the convention that has errors as large as the paper's."""
jobs = training_jobs("brax", "brax_ppo", frozen=False)  # `curves` has those with a frozen evaluator


def results(scale: StudyScale, store: Store) -> StudyResults:
    """The results of `pipelines` for the robots, with the paper's numbers beside ours."""
    found = compared(store, *families_of(scale, "brax", "brax_ppo"))
    notes = (
        "Brax is run with the spring backend. The paper does not say which physics, agents' settings or number of "
        "environments per log it used; errors in units of reward are therefore not comparable one to one.",
        "The assessment's start states are physical states of the robot; there is no figure of them.",
    )
    return StudyResults(found.checks, (beside(scale, store), *found.tables), found.figures, notes)


def beside(scale: StudyScale, store: Store) -> ReportTable:
    """The paper's table with our numbers in the same rows."""
    rows: list[tuple[Cell, ...]] = []
    for everything in results_by_world(store, *families_of(scale, "brax", "brax_ppo")).values():
        ordinary = with_mode(everything, "passive", 0.0)
        aware = with_mode(everything, "colearned", scale.brax.betas[0])
        name = aware.world
        rows += [
            (name, f"MAE: {label}", printed, *(mean_and_error(one.mae(kind, predictor)) for kind in KINDS))
            for label, predictor, one, printed in _compared(ordinary, aware, NUMBERS.get(name, {}))
        ]
        if ordinary.rows and aware.rows:
            ours = ratio(aware.returns(), ordinary.returns())
            theirs = MeanAndError(*RATIOS[name]) if name in RATIOS else None
            rows.append((name, "return of EvA-RL / ordinary training", theirs, ours, ours))
    return ReportTable(
        "beside-the-paper",
        "The paper's table, and the same here",
        ("world", "quantity", "the paper", *(f"here, {kind} states" for kind in KINDS)),
        tuple(rows),
        "Mean ± standard error over seeds. The ratio of returns is that of true discounted returns, each averaged over seeds "
        "before they are divided; its standard error is the jackknife's over pairs of seeds.",
    )


def _compared(
    ordinary: ConditionResults, aware: ConditionResults, numbers: dict[str, tuple[float, float]]
) -> Iterator[tuple[str, str, ConditionResults, MeanAndError | None]]:
    """Each predictor with its label, the results it is found in and the paper's number, if there is one."""
    printed = {name: MeanAndError(*number) for name, number in numbers.items()}
    log, logged = as_in_paper(ordinary)
    yield f"ordinary training, FQE (greedy, Huber){log}", GREEDY, logged, printed.get("FQE")
    yield f"ordinary training, FQE (sound){log}", "FQE", logged, None
    yield f"ordinary training, PDIS{log}", "PDIS", logged, printed.get("PDIS")
    yield f"ordinary training, DR{log}", "DR", logged, printed.get("DR")
    yield "ordinary training, critic", CRITIC, ordinary, None
    yield "ordinary training, passive evaluator", EVALUATOR, ordinary, None
    yield "EvA-RL, critic", CRITIC, aware, None
    yield "EvA-RL, evaluator without Ξ", ZEROED, aware, None
    yield "EvA-RL, evaluator", EVALUATOR, aware, printed.get(EVALUATOR)
