"""`pipelines`: ordinary training evaluated off-policy, against EvA-RL evaluated by its evaluator, in three MinAtar games.

Each pipeline uses the data of its own training. The two policies of a seed begin with the same parameters and are compared
seed by seed.
"""

from evarl.evaluation.predictors import EVALUATOR
from evarl.studies import common
from evarl.studies.common import KINDS, Said, one_of
from evarl.studies.conditions import Seeds, short
from evarl.studies.findings import Check
from evarl.studies.jobs import Job, Store
from evarl.studies.results.ope_on_eva import AS_IN_PAPER, SOUND
from evarl.studies.results.ope_on_eva import jobs as jobs_of_ope_on_eva
from evarl.studies.results.tradeoff import LOST
from evarl.studies.scales import Family, Scale
from evarl.studies.verdicts import larger, less_a_share

TITLE = "Whole pipelines: ordinary training and off-policy evaluation, against EvA-RL and its evaluator"
PAPER = (
    "EvA-RL with β = 0.01 nearly matches the returns of ordinary training while its evaluator has a lower error than FQE, "
    "TIS, PDIS and DR have on the ordinary policy. (Figure only; 20 seeds, 10M steps.)"
)


def jobs(scale: Scale) -> list[Job]:
    """The same as for `ope-on-eva`: the ordinary policies are those of the passive evaluator."""
    return jobs_of_ope_on_eva(scale)


def said(scale: Scale, store: Store) -> Said:
    """Checks for every game."""
    return compared(store, scale.minatar)


def compared(store: Store, family: Family) -> Said:
    """Both pipelines in all worlds of a family; at the smallest β above 0 as the paper does."""
    worlds = common.gathered(store, family, ("passive", "colearned"))
    beta = family.betas[0]
    shown = {world: [s for s in rows if s.condition.beta in (0.0, beta)] for world, rows in worlds.items()}
    return Said(
        checks=tuple(check for rows in worlds.values() for check in checks(rows, beta, "tis" in family.methods)),
        tables=tuple(
            common.results_table(f"errors-{kind}", f"Errors at {kind} states", worlds, kind) for kind in KINDS
        ),
        pictures=common.present(
            common.trade_picture(worlds),
            *(common.errors_picture(shown, kind) for kind in KINDS),
            common.curves_picture(worlds),
            common.predictions_picture(worlds),
            common.scenario_picture(store, family),
        ),
    )


def checks(rows: list[Seeds], beta: float, with_tis: bool) -> list[Check]:
    """Returns, the evaluator against the methods on the ordinary policy, and against the passive evaluator."""
    world, aware, ordinary = short(rows[0].condition.world), one_of(rows, "colearned", beta), one_of(rows, "passive", 0)
    found = [
        larger(
            f"{world}, β = {beta:g}: return nearly that of ordinary training (at most {LOST:.0%} lost)",
            f"return of EvA-RL less that of ordinary training, plus {LOST:.0%} of its size",
            None if aware is None else aware.returns(),
            None if ordinary is None else less_a_share(ordinary.returns(), LOST),
        )
    ]
    for kind in KINDS:
        for methods, which in ((AS_IN_PAPER, "(FQE: greedy, Huber)"), (SOUND, "(FQE: sound)")):
            used = [method for method in methods if with_tis or method != "tis"]
            policy = f"β = {beta:g}, methods on the ordinary policy"
            found.append(common.below_every(aware, policy, used, which, kind, of=ordinary))
        found.append(
            larger(
                f"{world}, β = {beta:g}: evaluator MAE below that of the passive evaluator, at {kind} states "
                "(a control the paper does not show)",
                "MAE of the passive evaluator less that of EvA-RL's",
                None if ordinary is None else ordinary.mae(EVALUATOR, kind),
                None if aware is None else aware.mae(EVALUATOR, kind),
            )
        )
    return found
