"""`evarl evaluate RUN`: predictions of a run's evaluators beside the truth and beside every control."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from evarl.cli.parsing import OpensRuns, parse
from evarl.cli.tables import PlainTable, print_table
from evarl.errors import InputError, plain_text
from evarl.ope.configuration import LogSettings

if TYPE_CHECKING:
    from evarl.evaluation.evaluate import Evaluation, Row
    from evarl.evaluation.scores import Estimate

HEAD = ("predictor", "MAE", "RMSE, noise-corrected", "bias", "rank over states", "rank over seeds", "skill")


@dataclass(frozen=True)
class Evaluate(OpensRuns):
    """Measure the evaluators of a run against Monte-Carlo truth; writes evaluation.json and evaluation.png."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a finished run."""
    seeds: str = "all"
    """Seeds to evaluate: all, or a list like "0 1 2"."""
    passive: str | None = None
    """A run with β = 0 and a co-learnt evaluator, as a control; it is measured against its own truth."""
    rollouts: int | None = None
    """Rollouts from each state; by default 64, or 8 in worlds on the host."""
    states: int = 64
    """States of each kind: drawn from μ_D, and visited by the policy."""
    replicates: int | None = None
    """Rollouts of each scenario of the assessment; by default the run's own number."""
    random_seed: int = 0
    """Random seed."""
    ope: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Put off-policy estimates from the log of the training beside the others (wants a run with --log-megabytes)."""
    log: LogSettings = field(default_factory=LogSettings)
    """How the log is used, with --ope."""
    out: str | None = None
    """File for the results; by default evaluation.json in the run. The picture goes beside it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, evaluate, keep the results and print them."""
    command = parse(Evaluate, arguments, "evarl evaluate", Evaluate(tyro.MISSING))
    seeds = parse_seeds(command.seeds)

    from evarl.evaluation.evaluate import evaluate  # imports JAX
    from evarl.report.figures import evaluation_picture
    from evarl.report.records import evaluation_record
    from evarl.storage.files import write_bytes

    found = evaluate(
        command.run,
        seeds,
        passive=command.passive,
        rollouts=command.rollouts,
        states=command.states,
        replicates=command.replicates,
        random_seed=command.random_seed,
        ope=command.log if command.ope else None,
        say=lambda line: print(plain_text(line), file=sys.stderr),
    )
    file = Path(command.out) if command.out else Path(command.run) / "evaluation.json"
    picture = file.with_suffix(".png")
    drawn = evaluation_picture(found)
    write_bytes(file, (json.dumps(evaluation_record(found, points=True), ensure_ascii=False) + "\n").encode())
    write_bytes(picture, drawn)
    if command.json:
        print(json.dumps(evaluation_record(found, points=False) | {"file": str(file), "picture": str(picture)}))
        return
    _print(found)
    print(f"\nresults in {plain_text(f'{file} and {picture}')}")


def parse_seeds(text: str) -> list[int] | None:
    """The seeds that are meant; None for all."""
    if text == "all":
        return None
    try:
        return [int(seed) for seed in text.replace(",", " ").split()]
    except ValueError as error:
        raise InputError(f"seeds: '{text}' is not allowed; want all, or a list like \"0 1 2\"") from error


def _print(found: "Evaluation") -> None:
    from evarl.evaluation.predictors import EVALUATOR, PASSIVE

    one = len(found.seeds) == 1
    over = "standard errors are the Monte Carlo's" if one else f"mean ± standard error over {len(found.seeds)} seeds"
    about = f"{found.run}: {found.world}, β = {found.beta:g}, γ = {found.discount:g}, horizon {found.horizon}; {over}"
    print(plain_text(about))
    print(f"start states: {found.start_states}; {found.rollouts} rollouts from each state")
    _print_returns("true return over μ_D", found)
    if found.passive is not None:
        _print_returns("the passive run's", found.passive)
    for kind in found.seeds[0].queries:
        print()
        table = PlainTable(*HEAD, box=None, title=f"{kind} states", title_justify="left", title_style="bold")
        for row in (row for row in found.rows if row.queries == kind):
            table.add_row(row.predictor, *_cells(row))
        if found.passive is not None:
            table.add_row(f"{PASSIVE} †", *_cells(found.passive.row(EVALUATOR, kind)))
        print_table(table)
        if kind in found.best_without:
            print(f"skill is against the best without Ξ, here: {found.best_without[kind]}")
    _print_policies(found)
    print()
    if found.shuffled_with is not None:
        print(f"Ξ shuffled: mean error with the assessment returns of {found.shuffled_with}")
    if found.passive is not None:
        passive = plain_text(found.passive.run)
        print(f"† {passive}: other policies (β = 0), each against its own truth and its own best without Ξ")
    for note in found.notes:
        print(f"note: {plain_text(note)}")


def _print_policies(found: "Evaluation") -> None:
    """How well each predictor tells the seeds' policies apart."""
    if not found.policies:
        return
    title = f"over the {len(found.seeds)} policies: their values at start states"
    head = ("predictor", "MAE", "RMSE", "Spearman", "Kendall", "regret@1", "rank violation")
    table = PlainTable(*head, box=None, title=title, title_justify="left", title_style="bold")
    for name, one in found.policies.items():
        cells = [one.mean_absolute_error, one.root_mean_squared_error, one.spearman, one.kendall, one.regret_at_k]
        cells.append(one.mean_maximum_rank_violation)
        table.add_row(name, *("—" if cell is None else f"{cell:.3f}" for cell in cells))
    print()
    print_table(table)
    print("regret@1: what is lost by choosing the policy said to be best, as a share of the range of true values")


def _print_returns(label: str, found: "Evaluation") -> None:
    print(f"{label}: {_text(found.discounted)} discounted, {_text(found.undiscounted)} undiscounted")


def _cells(row: "Row") -> list[str]:
    if row.not_fitted is not None:
        return ["not fitted", *["—"] * (len(HEAD) - 2)]
    estimates: list[Any] = [row.mae, row.rmse, row.bias, row.rank_states]
    return [*map(_text, estimates), "—" if row.rank_seeds is None else f"{row.rank_seeds:.2f}", _text(row.skill)]


def _text(estimate: "Estimate") -> str:
    if estimate.mean is None:
        return "—"
    error = estimate.standard_error
    return f"{estimate.mean:.3f}" + ("" if error is None else f" ± {error:.3f}")
