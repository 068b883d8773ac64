"""`pipelines`: ordinary training evaluated off-policy, against EvA-RL evaluated by its evaluator, in three MinAtar games.

Each pipeline uses the data of its own training. The two policies of a seed begin with the same parameters and are compared
seed by seed.
"""

from evarl.studies import common
from evarl.studies.catalogue.ope_on_eva import AS_IN_PAPER, SOUND
from evarl.studies.catalogue.tradeoff import LOST
from evarl.studies.common import KINDS, with_mode
from evarl.studies.conditions import ConditionResults
from evarl.studies.jobs import Store
from evarl.studies.off_policy import checks_below_methods, log_tables
from evarl.studies.reports import ClaimCheck, StudyResults
from evarl.studies.scales import Family, StudyScale
from evarl.studies.verdicts import check_larger, lowered_by_share

TITLE = "Whole pipelines: ordinary training and off-policy evaluation, against EvA-RL and its evaluator"
PAPER = (
    "EvA-RL with β = 0.01 nearly matches the returns of ordinary training while its evaluator has a lower error than FQE, "
    "TIS, PDIS and DR have on the ordinary policy. (Figure only; 20 seeds, 10M steps.)"
)

jobs = common.training_jobs(
    "minatar", "minatar_own", frozen=False
)  # the ordinary policies are those with a passive evaluator


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Checks, tables and figures of both pipelines in every game."""
    return compared(store, *common.families_of(scale, "minatar", "minatar_own"))


def compared(store: Store, family: Family, *variants: Family) -> StudyResults:
    """Both pipelines in all worlds of a family and of variants of it, at the smallest β above 0 as in the paper."""
    worlds = common.results_by_world(store, family, *variants)
    beta = family.betas[0]
    shown = {world: [one for one in rows if one.condition.beta in (0.0, beta)] for world, rows in worlds.items()}
    return StudyResults(
        checks=tuple(check for rows in worlds.values() for check in _checks(rows, beta, "tis" in family.methods)),
        tables=(*common.errors_tables(worlds), *log_tables(worlds, KINDS)),
        figures=(
            common.trade_figure(worlds),
            *(common.errors_figure(shown, kind) for kind in KINDS),
            common.curves_figure(worlds),
            common.predictions_figure(worlds),
            common.scenario_figure(store, family),
        ),
    )


def _checks(rows: list[ConditionResults], beta: float, with_tis: bool) -> list[ClaimCheck]:
    """Checks of the return, and of the evaluator's error against off-policy methods and the passive evaluator."""
    aware, ordinary = with_mode(rows, "colearned", beta), with_mode(rows, "passive", 0.0)
    about = f"β = {beta:g}"
    found = [
        check_larger(
            f"{aware.world}, {about}: return nearly that of ordinary training (at most {LOST:.0%} lost)",
            f"return of EvA-RL less that of ordinary training, plus {LOST:.0%} of its size",
            aware.returns(),
            lowered_by_share(ordinary.returns(), LOST),
            equal="holds",
        )
    ]
    for kind in KINDS:
        for methods in (AS_IN_PAPER, SOUND):
            used = [method for method in methods if with_tis or method != "tis"]
            policy = f"{about}, methods on the ordinary policy"
            found += checks_below_methods(aware, ordinary, policy, used, kind)
        found.append(common.check_below_passive(aware, ordinary, kind, f"{aware.world}, {about}: "))
    return found
