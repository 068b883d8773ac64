"""`ope-on-eva`: the co-learned evaluator against off-policy evaluation of the same EvA-RL policies, in three MinAtar games.

Off-policy methods get the deployment trajectories that EvA-RL training logged in its last updates. Fitted Q evaluation is
fitted in two conventions: the sound one, and the one of a common library on logs like the paper's (greedy backup, Huber
loss, time limits that end the value).
"""

from evarl.evaluation.predictors import EVALUATOR, WITHOUT
from evarl.ope.configuration import Method
from evarl.studies import common
from evarl.studies.common import KINDS, Said, one_of
from evarl.studies.conditions import Seeds, short
from evarl.studies.findings import Check
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import Scale
from evarl.studies.verdicts import all_larger

TITLE = "The co-learned evaluator against off-policy evaluation, on EvA-RL policies"
PAPER = (
    "On the final EvA-RL policies, β ∈ {0.01, 0.1}, the co-learned evaluator has a lower error than FQE, TIS, PDIS and DR "
    "in all three games. (Figure only; 20 seeds, 10M steps.)"
)
AS_IN_PAPER: tuple[Method, ...] = ("fqe-greedy-huber", "tis", "pdis", "dr")
SOUND: tuple[Method, ...] = ("fqe", "tis", "pdis", "dr", "wpdis", "wdr")


def jobs(scale: Scale) -> list[Job]:
    """All conditions but those with a frozen evaluator."""
    family = scale.minatar
    return [job for job in common.all_jobs(family) if "frozen" not in job.needs]


def said(scale: Scale, store: Store) -> Said:
    """Checks for every game and β."""
    worlds = common.gathered(store, scale.minatar, ("passive", "colearned"))
    checks = [check for rows in worlds.values() for beta in scale.minatar.betas for check in _checks(rows, beta)]
    aware = {world: [s for s in rows if s.condition.beta > 0] for world, rows in worlds.items()}
    return Said(
        checks=tuple(checks),
        tables=tuple(
            common.results_table(f"errors-{kind}", f"Errors at {kind} states", worlds, kind) for kind in KINDS
        ),
        pictures=common.present(
            *(common.errors_picture({w: r[:1] for w, r in aware.items() if r}, kind) for kind in KINDS),
            common.predictions_picture(worlds),
            common.scenario_picture(store, scale.minatar),
        ),
    )


def _checks(rows: list[Seeds], beta: float) -> list[Check]:
    aware = one_of(rows, "colearned", beta)
    checks = []
    for kind in KINDS:
        checks.append(common.below_every(aware, f"β = {beta:g}", AS_IN_PAPER, "(FQE: greedy, Huber)", kind))
        checks.append(common.below_every(aware, f"β = {beta:g}", SOUND, "(FQE: sound)", kind))
        mine = None if aware is None else aware.mae(EVALUATOR, kind)
        checks.append(
            all_larger(
                f"{short(rows[0].condition.world)}, β = {beta:g}: evaluator MAE below every predictor that does not see "
                f"the assessment, at {kind} states (a control the paper does not show)",
                "MAE of the best of them less that of the evaluator",
                {name: None if aware is None else aware.mae(name, kind) for name in WITHOUT},
                mine,
            )
        )
    return checks
