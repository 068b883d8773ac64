"""`ope-on-eva`: the co-learned evaluator against off-policy evaluation of the same EvA-RL policies, in three MinAtar games.

Off-policy methods get the deployment trajectories that EvA-RL training logged: a sample of all of training, as in the paper, and
as a control those of its last updates. Fitted Q evaluation is fitted in two conventions: the sound one, and the one of a common
library on logs like the paper's (greedy backup, Huber loss, time limits that end the value).
"""

from evarl.evaluation.predictors import WITHOUT
from evarl.studies import common
from evarl.studies.common import KINDS, with_mode
from evarl.studies.conditions import ConditionResults
from evarl.studies.jobs import Store
from evarl.studies.off_policy import checks_below_methods, log_tables
from evarl.studies.reports import ClaimCheck, StudyResults
from evarl.studies.scales import StudyScale
from evarl.studies.verdicts import check_all_larger

TITLE = "The co-learned evaluator against off-policy evaluation, on EvA-RL policies"
PAPER = (
    "On the final EvA-RL policies, β ∈ {0.01, 0.1}, the co-learned evaluator has a lower error than FQE, TIS, PDIS and DR "
    "in all three games. (Figure only; 20 seeds, 10M steps.)"
)
AS_IN_PAPER: tuple[str, ...] = ("fqe-greedy-huber", "tis", "pdis", "dr")
SOUND: tuple[str, ...] = ("fqe", "tis", "pdis", "dr", "wpdis", "wdr")
jobs = common.training_jobs("minatar", "minatar_own", frozen=False)


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks of the evaluator's error in every game and for every β."""
    worlds = common.results_by_world(store, *common.families_of(scale, "minatar", "minatar_own"))
    checks = [
        check
        for rows in worlds.values()
        for beta in sorted({one.condition.beta for one in rows} - {0.0})
        for check in _checks(rows, beta)
    ]
    aware = {world: [one for one in rows if one.condition.beta > 0] for world, rows in worlds.items()}
    return StudyResults(
        checks=tuple(checks),
        tables=(*common.errors_tables(worlds), *log_tables(aware, KINDS)),
        figures=(
            *(common.errors_figure({world: rows[:1] for world, rows in aware.items() if rows}, kind) for kind in KINDS),
            common.predictions_figure(worlds),
            common.scenario_figure(store, scale.minatar),
        ),
    )


def _checks(rows: list[ConditionResults], beta: float) -> list[ClaimCheck]:
    aware = with_mode(rows, "colearned", beta)
    checks = []
    for kind in KINDS:
        for methods in (AS_IN_PAPER, SOUND):
            checks += checks_below_methods(aware, aware, f"β = {beta:g}", methods, kind)
        checks.append(
            check_all_larger(
                f"{aware.world}, β = {beta:g}: evaluator MAE below every predictor that does not see the assessment, at "
                f"{kind} states (a control the paper does not show)",
                "MAE of the best of them less that of the evaluator",
                {name: aware.mae(kind, name) for name in WITHOUT},
                aware.mae(kind),
            )
        )
    return checks
