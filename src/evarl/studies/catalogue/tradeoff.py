"""`tradeoff`: a frozen evaluator against a co-learned one, β ∈ {0, 0.01, 0.1}, in three MinAtar games.

For each game and seed: ordinary training with a passive evaluator (β = 0, the baseline), evaluation-aware training with a
co-learned evaluator at each β, and with an evaluator that was fitted to the policies of an ordinary run and then frozen.
Measured: the true return of the final policies, and the evaluator's mean absolute error against Monte-Carlo truth.
"""

from evarl.studies import common
from evarl.studies.common import KINDS, with_mode
from evarl.studies.conditions import ConditionResults, mean_and_error, ratio
from evarl.studies.jobs import Store
from evarl.studies.reports import Cell, ClaimCheck, ReportTable, StudyResults
from evarl.studies.scales import StudyScale
from evarl.studies.verdicts import check_falling, check_larger, lowered_by_share

TITLE = "The trade-off between return and evaluability, and what co-learning does to it"
PAPER = (
    "With a frozen evaluator, increasing β consistently decreases the evaluation error and also reduces returns. With a "
    "co-learned evaluator, returns stay close to those of ordinary training while the error stays low. (Figure only; "
    "20 seeds, 10M steps.)"
)
LOST = 0.1
"""Maximum share of the return that may be lost for *close to the baseline*; the paper gives no number."""
jobs = common.training_jobs("minatar")


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks for every game, and tables and figures at both kinds of states."""
    worlds = common.results_by_world(store, scale.minatar, frozen=True)
    betas = (0.0, *scale.minatar.betas)
    return StudyResults(
        checks=tuple(check for rows in worlds.values() for check in _checks(rows, betas)),
        tables=(_normalised(worlds), *common.errors_tables(worlds)),
        figures=(
            common.trade_figure(worlds),
            common.curves_figure(worlds),
            common.predictions_figure(worlds),
            common.scenario_figure(store, scale.minatar),
        ),
    )


def _checks(rows: list[ConditionResults], betas: tuple[float, ...]) -> list[ClaimCheck]:
    game, baseline = rows[0].world, with_mode(rows, "passive", 0.0)
    frozen = {f"β = {beta:g}": with_mode(rows, "frozen", beta) for beta in betas}
    claim = f"{game}, frozen evaluator: return non-increasing in β"
    checks = [check_falling(claim, "the return", {name: one.returns() for name, one in frozen.items()})]
    for kind in KINDS:
        claim = f"{game}, frozen evaluator: error non-increasing in β, at {kind} states"
        checks.append(
            check_falling(claim, "the evaluator's MAE", {name: one.mae(kind) for name, one in frozen.items()})
        )
    for beta in betas[1:]:
        aware = with_mode(rows, "colearned", beta)
        checks.append(
            check_larger(
                f"{game}, co-learned evaluator, β = {beta:g}: return close to the baseline (at most {LOST:.0%} lost)",
                f"return less the baseline's, plus {LOST:.0%} of its size",
                aware.returns(),
                lowered_by_share(baseline.returns(), LOST),
                equal="holds",
            )
        )
        checks += [
            check_larger(
                f"{game}, β = {beta:g}: co-learned evaluator more accurate than the frozen one, at {kind} states",
                "MAE of the frozen evaluator less that of the co-learned one",
                frozen[f"β = {beta:g}"].mae(kind),
                aware.mae(kind),
            )
            for kind in KINDS
        ]
    return checks


def _normalised(worlds: common.ResultsByWorld) -> ReportTable:
    """Returns relative to the baseline beside the evaluator's errors, as in the paper's figure."""
    rows: list[tuple[Cell, ...]] = []
    for everything in worlds.values():
        baseline = with_mode(everything, "passive", 0.0).returns()
        for one in everything:
            errors = [mean_and_error(one.mae(kind)) for kind in KINDS]
            rows.append((one.world, one.condition.label, len(one.rows), ratio(one.returns(), baseline), *errors))
    head = ("world", "training", "seeds", "normalised return", *(f"evaluator MAE, {kind}" for kind in KINDS))
    note = (
        "Normalised: the true discounted return divided by that of ordinary training. Both are averaged over seeds before they "
        "are divided; the standard error is the jackknife's over pairs of seeds."
    )
    return ReportTable(
        "normalised", "Returns relative to ordinary training, and the evaluator's errors", head, tuple(rows), note
    )
