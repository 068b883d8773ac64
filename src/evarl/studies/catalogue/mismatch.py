"""`mismatch`: assessment in an open field with twice the step, deployment among obstacles; navigation, β = 0.05.

The paper's settings: 8 environments × 200 steps, 1 000 updates, 30 seeds, 4 scenarios of 3 steps. Off-policy methods get the
trajectories of training, some 2 000 for each seed: a sample of all of them, as in the paper, and as a control the last ones.

Ordinary training and EvA-RL have our evaluator network and gradient. A third condition, with the same assessment, has those of
the paper: the network that lists scenarios as its input, the gradient as it is printed, and a memory of recent policies.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evarl.evaluation.predictors import CRITIC, EVALUATOR, ORDER, ZEROED
from evarl.ope.registry import LABELS
from evarl.studies import common
from evarl.studies.catalogue.ope_on_eva import AS_IN_PAPER, SOUND
from evarl.studies.common import KINDS, with_mode
from evarl.studies.conditions import Condition, ConditionResults, condition, condition_results, mean_and_error
from evarl.studies.jobs import Job, Store
from evarl.studies.off_policy import as_in_paper, checks_below_methods, log_tables
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportTable, StudyResults
from evarl.studies.scales import METHODS, StudyScale
from evarl.studies.tables import number, text
from evarl.studies.verdicts import bootstrap_bounds, check_agrees, check_larger

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
AS_PRINTED: dict[str, Any] = {
    "evaluator.network.kind": "listing",
    "evaluator.memory": "recent",
    "gradient": "printed",
}
"""What `evarl.preset("navigation", paper=True)` has in place of our evaluator and gradient."""
PAPERS = "the paper's evaluator"
"""Name of the condition with it."""
GROUP, SLOWER = 5, 20
"""Seeds in one of its jobs, so that pieces are kept, and how many times as long one takes."""
SEEDS = 30
"""Seeds of the paper."""
RETURNS = {"passive": (-4.61, 0.21), "colearned": (-4.78, 0.33)}
_trained = common.training_jobs("navigation")


def jobs(scale: StudyScale) -> list[Job]:
    """Training with our evaluator, ordinary and EvA-RL, and with the paper's."""
    return [*_trained(scale), *as_printed(scale).jobs]


def as_printed(scale: StudyScale) -> Condition:
    """EvA-RL with exactly the paper's evaluator and gradient, assessed as the other conditions are."""
    family = scale.navigation
    pieces = replace(family, group=GROUP, weight=SLOWER * family.weight, variant=PAPERS)
    (world,), beta = family.worlds, family.betas[0]
    changes = family.changes | AS_PRINTED | {"world": world, "beta": beta}
    return condition(pieces, "colearned", changes, f"EvA-RL, β = {beta:g}", f"navigation-as-printed-{beta:g}")


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks and tables at both kinds of states, with the paper's numbers beside ours."""
    worlds = common.results_by_world(store, scale.navigation)
    rows = worlds.get("navigation", [])
    checks = _checks(*_compared(rows, scale)) if rows else []
    printed = condition_results(store, as_printed(scale))
    if printed is not None:
        worlds[PAPERS] = [printed]
        checks += _checks_as_printed(printed)
    return StudyResults(
        checks=tuple(checks),
        tables=(beside(scale, store), *common.errors_tables(worlds), *log_tables(worlds, KINDS)),
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
                found += checks_below_methods(aware, asked, about, methods, kind)
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


def _checks_as_printed(one: ConditionResults) -> list[ClaimCheck]:
    """Whether the paper's evaluator is below the methods on its own policies, and gives the paper's numbers."""
    found = []
    for kind in KINDS:
        for methods in (AS_IN_PAPER, SOUND):
            found += checks_below_methods(one, one, "methods on its policy", methods, kind)
        mae = MeanAndError(*NUMBERS["colearned"][EVALUATOR])
        claim = f"{one.world}: its MAE agrees with the paper's {text(mae)}, at {kind} states"
        found.append(check_agrees(claim, f"MAE less {number(mae.mean)}", one.mae(kind), mae, SEEDS))
    value = MeanAndError(*RETURNS["colearned"])
    claim = f"{one.world}: the return agrees with the paper's {text(value)}"
    returns = one.returns(discounted=False)
    return [*found, check_agrees(claim, f"return less {number(value.mean)}", returns, value, SEEDS)]


def _less_ours(one: ConditionResults, aware: ConditionResults, predictor: str, kind: str) -> str | None:
    """The paired bootstrap interval of a predictor's error less that of EvA-RL's evaluator."""
    mine = one.condition == aware.condition and predictor == EVALUATOR
    bounds = None if mine else bootstrap_bounds(one.mae(kind, predictor), aware.mae(kind))
    return None if bounds is None else "{:+.3f} to {:+.3f}".format(*bounds).replace("-", "−")


def beside(scale: StudyScale, store: Store) -> ReportTable:
    """The paper's table with our numbers in the same rows, and the controls."""
    worlds = common.results_by_world(store, scale.navigation)
    ordinary, aware = _compared(worlds.get("navigation", []), scale)
    conditions = [(ordinary, aware, "ordinary training"), (aware, aware, "EvA-RL")]
    if (printed := condition_results(store, as_printed(scale))) is not None:
        conditions.append((printed, printed, f"EvA-RL, {PAPERS}"))
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
        (
            *(row for each in conditions for row in _errors(*each)),
            *(row for one, _, who in conditions for row in _return(one, who)),
        ),
        "Mean ± standard error over seeds; the paper does not say at which states it measured. The last columns are 95 % "
        "intervals by paired bootstrap over seeds: above 0 means that EvA-RL's evaluator is more accurate"
        + (f"; in the rows of {PAPERS}, that this one is." if printed is not None else "."),
    )


def _errors(one: ConditionResults, aware: ConditionResults, who: str) -> Iterator[tuple[Cell, ...]]:
    """A row for each predictor's error, with the paper's number, and how it differs from that of an evaluator."""
    numbers = NUMBERS[one.condition.mode] if one.rows else {}
    log, logged = as_in_paper(one)
    asked = [*((predictor, "", one) for predictor in ORDER), *((LABELS[method], log, logged) for method in METHODS)]
    for predictor, about, results in asked if one.rows else ():
        name = "passive evaluator" if one.condition.mode == "passive" and predictor == EVALUATOR else predictor
        theirs = numbers.get(predictor)
        ours = [mean_and_error(results.mae(kind, predictor)) for kind in KINDS]
        differ = [_less_ours(results, aware, predictor, kind) for kind in KINDS]
        yield (who, f"MAE: {name}{about}", MeanAndError(*theirs) if theirs else None, *ours, *differ)


def _return(one: ConditionResults, who: str) -> Iterator[tuple[Cell, ...]]:
    """The row of the return, if it is known."""
    if (here := mean_and_error(one.returns(discounted=False))) is not None:
        yield (who, "return (undiscounted)", MeanAndError(*RETURNS[one.condition.mode]), here, here, None, None)
