"""`tradeoff`: a frozen evaluator against a co-learned one, β ∈ {0, 0.01, 0.1}, in three MinAtar games.

For each game and seed: ordinary training with a passive evaluator (β = 0, the baseline), evaluation-aware training with a
co-learned evaluator at each β, and with an evaluator that was fitted to the policies of an ordinary run and then frozen.
Measured: the true return of the final policies, and the evaluator's mean absolute error against Monte-Carlo truth.
"""

from evarl.evaluation.predictors import EVALUATOR
from evarl.studies import common
from evarl.studies.common import KINDS, Said, one_of
from evarl.studies.conditions import Seeds, measured, short
from evarl.studies.findings import Cell, Check, Table
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import Scale
from evarl.studies.verdicts import falling, larger, less_a_share

TITLE = "The trade-off between return and evaluability, and what co-learning does to it"
PAPER = (
    "With a frozen evaluator, increasing β consistently decreases the evaluation error and also reduces returns. With a "
    "co-learned evaluator, returns stay close to those of ordinary training while the error stays low. (Figure only; "
    "20 seeds, 10M steps.)"
)
LOST = 0.1
"""What *close to the baseline* is taken to mean: at most this share of its return is lost. The paper gives no number."""


def jobs(scale: Scale) -> list[Job]:
    """All conditions in all games."""
    return common.all_jobs(scale.minatar)


def said(scale: Scale, store: Store) -> Said:
    """Checks for every game, tables for both kinds of states, and pictures."""
    worlds = common.gathered(store, scale.minatar, ("passive", "colearned", "frozen"))
    betas = (0.0, *scale.minatar.betas)
    return Said(
        checks=tuple(check for rows in worlds.values() for check in _checks(rows, betas)),
        tables=(
            _normalised(worlds),
            *(common.results_table(f"errors-{kind}", f"Errors at {kind} states", worlds, kind) for kind in KINDS),
        ),
        pictures=common.present(
            common.trade_picture(worlds),
            common.curves_picture(worlds),
            common.predictions_picture(worlds),
            common.scenario_picture(store, scale.minatar),
        ),
    )


def _checks(rows: list[Seeds], betas: tuple[float, ...]) -> list[Check]:
    game = short(rows[0].condition.world)
    frozen = {f"β = {beta:g}": one_of(rows, "frozen", beta) for beta in betas}
    baseline = one_of(rows, "passive", 0.0)
    checks = [
        falling(
            f"{game}, frozen evaluator: return non-increasing in β",
            "the return",
            {name: None if one is None else one.returns() for name, one in frozen.items()},
        )
    ]
    for kind in KINDS:
        checks.append(
            falling(
                f"{game}, frozen evaluator: error non-increasing in β, at {kind} states",
                "the evaluator's MAE",
                {name: None if one is None else one.mae(EVALUATOR, kind) for name, one in frozen.items()},
            )
        )
    for beta in betas[1:]:
        aware, held = one_of(rows, "colearned", beta), one_of(rows, "frozen", beta)
        checks.append(
            larger(
                f"{game}, co-learned evaluator, β = {beta:g}: return close to the baseline (at most {LOST:.0%} lost)",
                f"return less the baseline's, plus {LOST:.0%} of its size",
                None if aware is None else aware.returns(),
                None if baseline is None else less_a_share(baseline.returns(), LOST),
            )
        )
        for kind in KINDS:
            checks.append(
                larger(
                    f"{game}, β = {beta:g}: co-learned evaluator more accurate than the frozen one, at {kind} states",
                    "MAE of the frozen evaluator less that of the co-learned one",
                    None if held is None else held.mae(EVALUATOR, kind),
                    None if aware is None else aware.mae(EVALUATOR, kind),
                )
            )
    return checks


def _normalised(worlds: dict[str, list[Seeds]]) -> Table:
    """Returns relative to the baseline, seed by seed, beside the evaluator's errors: what the paper's figure shows."""
    rows: list[tuple[Cell, ...]] = []
    for world, everything in worlds.items():
        baseline = one_of(everything, "passive", 0.0)
        below = {} if baseline is None else baseline.returns()
        for seeds in everything:
            ratios = {s: value / below[s] for s, value in seeds.returns().items() if below.get(s)}
            errors = [measured(seeds.mae(EVALUATOR, kind)) for kind in KINDS]
            rows.append((short(world), seeds.condition.label, len(seeds.rows), measured(ratios or None), *errors))
    head = ("world", "training", "seeds", "normalised return", *(f"evaluator MAE, {kind}" for kind in KINDS))
    note = "Normalised: the true discounted return divided by that of the same seed in ordinary training."
    return Table(
        "normalised", "Returns relative to ordinary training, and the evaluator's errors", head, tuple(rows), note
    )
