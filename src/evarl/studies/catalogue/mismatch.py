"""`mismatch`: assessment in an open field with twice the step, deployment among obstacles; navigation, β = 0.05.

The paper's settings: 8 environments × 200 steps, 1 000 updates, 30 seeds, 4 scenarios of 3 steps. Off-policy methods get the
trajectories of the last updates, some 2 000 for each seed.
"""

from evarl.evaluation.predictors import CRITIC, EVALUATOR, ORDER, ZEROED
from evarl.ope.registry import LABELS
from evarl.studies import common
from evarl.studies.catalogue.ope_on_eva import AS_IN_PAPER, SOUND
from evarl.studies.common import KINDS, with_mode
from evarl.studies.conditions import ConditionResults, mean_and_error
from evarl.studies.jobs import Store
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportTable, StudyResults
from evarl.studies.scales import METHODS, StudyScale
from evarl.studies.verdicts import bootstrap_bounds, check_larger

TITLE = "An assessment with other dynamics than deployment: 2-D navigation"
PAPER = (
    "Although it is assessed in an open field with twice the step, EvA-RL's evaluator has a lower error (1.65 ± 0.18) than "
    "FQE, PDIS and DR on either policy, and the policy's return (−4.78 ± 0.33) is comparable with that of ordinary "
    "training (−4.61 ± 0.21). (30 seeds, 1 000 updates.)"
)
NUMBERS = {
    "passive": {"FQE, greedy-huber": (4.03, 0.29), "PDIS": (2.11, 0.06), "DR": (2.31, 0.02)},
    "colearned": {"FQE, greedy-huber": (4.13, 0.27), "PDIS": (1.97, 0.07), "DR": (2.21, 0.02), EVALUATOR: (1.65, 0.18)},
}
"""The paper's mean absolute errors; its FQE is compared with the convention that has errors of that size."""
RETURNS = {"passive": (-4.61, 0.21), "colearned": (-4.78, 0.33)}
PREDICTORS = (*ORDER, *(LABELS[method] for method in METHODS))
jobs = common.training_jobs("navigation")


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks and tables at both kinds of states, with the paper's numbers beside ours."""
    worlds = common.results_by_world(store, scale.navigation)
    rows = worlds.get("navigation", [])
    return StudyResults(
        checks=tuple(_checks(*_compared(rows, scale))) if rows else (),
        tables=(beside(scale, store), *common.errors_tables(worlds)),
        figures=(
            *(common.errors_figure(worlds, kind) for kind in KINDS),
            common.trade_figure(worlds),
            common.curves_figure(worlds),
            common.predictions_figure(worlds),
            common.scenario_figure(store, scale.navigation),
        ),
        notes=(
            "The paper does not give the obstacles' rectangles; ours leave a path of 8 steps, and the best possible return "
            "is −3.752 undiscounted, by dynamic programming.",
        ),
    )


def _compared(rows: list[ConditionResults], scale: StudyScale) -> tuple[ConditionResults, ConditionResults]:
    """Ordinary training and EvA-RL."""
    return with_mode(rows, "passive", 0.0), with_mode(rows, "colearned", scale.navigation.betas[0])


def _checks(ordinary: ConditionResults, aware: ConditionResults) -> list[ClaimCheck]:
    found = []
    for kind in KINDS:
        for methods in (AS_IN_PAPER, SOUND):
            for asked, policy in ((aware, "EvA-RL"), (ordinary, "ordinary")):
                about = f"methods on the {policy} policy"
                found.append(common.check_below_methods(aware, asked, about, methods, kind))
        for name, shown in ((CRITIC, CRITIC), (ZEROED, "evaluator without Ξ")):
            bounds = bootstrap_bounds(aware.mae(kind, name), aware.mae(kind))
            found.append(
                check_larger(
                    f"Evaluator MAE below that of the {shown}, at {kind} states (a control the paper does not show)",
                    f"MAE of the {name} less that of the evaluator",
                    aware.mae(kind, name),
                    aware.mae(kind),
                    "paired bootstrap interval [{:.3f}, {:.3f}]".format(*bounds) if bounds else "",
                )
            )
        found.append(common.check_below_passive(aware, ordinary, kind))
    returns, theirs = aware.returns(discounted=False), RETURNS["colearned"][0]
    at_least = "Return of EvA-RL at least the paper's (−4.78)"
    found.append(check_larger(at_least, "return less −4.78", returns, theirs, equal="holds"))
    found.append(
        check_larger(
            "Return of EvA-RL comparable with ordinary training (no more below it than in the paper, 0.17)",
            "return of EvA-RL less that of ordinary training, plus 0.17",
            {seed: value + 0.17 for seed, value in returns.items()},
            ordinary.returns(discounted=False),
            equal="holds",
        )
    )
    return found


def _less_ours(one: ConditionResults, aware: ConditionResults, predictor: str, kind: str) -> str | None:
    """The paired bootstrap interval of a predictor's error less that of EvA-RL's evaluator."""
    mine = one is aware and predictor == EVALUATOR
    bounds = None if mine else bootstrap_bounds(one.mae(kind, predictor), aware.mae(kind))
    return None if bounds is None else "{:+.3f} to {:+.3f}".format(*bounds).replace("-", "−")


def beside(scale: StudyScale, store: Store) -> ReportTable:
    """The paper's table with our numbers in the same rows, and the controls."""
    worlds = common.results_by_world(store, scale.navigation)
    ordinary, aware = _compared(worlds.get("navigation", []), scale)
    errors: list[tuple[Cell, ...]] = []
    returns: list[tuple[Cell, ...]] = []
    for one, who in ((ordinary, "ordinary training"), (aware, "EvA-RL")):
        mode = one.condition.mode
        for predictor in PREDICTORS if one.rows else ():
            printed = NUMBERS[mode].get(predictor)
            name = "passive evaluator" if mode == "passive" and predictor == EVALUATOR else predictor
            ours = [mean_and_error(one.mae(kind, predictor)) for kind in KINDS]
            differ = [_less_ours(one, aware, predictor, kind) for kind in KINDS]
            errors.append((who, f"MAE: {name}", MeanAndError(*printed) if printed else None, *ours, *differ))
        if (here := mean_and_error(one.returns(discounted=False))) is not None:
            returns.append((who, "return (undiscounted)", MeanAndError(*RETURNS[mode]), here, here, None, None))
    return ReportTable(
        "beside-the-paper",
        "The paper's table, and the same here with its controls",
        (
            "policy",
            "quantity",
            "the paper",
            *(f"here, {kind} states" for kind in KINDS),
            *(f"less EvA-RL's evaluator, {kind}" for kind in KINDS),
        ),
        (*errors, *returns),
        "Mean ± standard error over seeds; the paper does not say at which states it measured. The last columns are 95 % "
        "intervals by paired bootstrap over seeds: above 0 means that EvA-RL's evaluator is more accurate.",
    )
