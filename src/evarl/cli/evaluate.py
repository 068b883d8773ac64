"""`evarl evaluate RUN`: predictions of a run's evaluators against true values, beside every control."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from evarl.cli.outside import OPTIONS, OutsideOptions, only_one, sb3_policy
from evarl.cli.parsing import Flag, PrintsResults, RunPath, options, parse, parse_seeds, write_results
from evarl.cli.tables import PlainTable, notify, number, print_table
from evarl.errors import plain_text
from evarl.ope.registry import LogSettings
from evarl.storage.files import write_bytes

if TYPE_CHECKING:
    from evarl.evaluation.results import Evaluation, Row
    from evarl.evaluation.scores import MeanAndError

SITES_HEAD = ("predictor", "MAE", "RMSE, noise-corrected", "bias", "rank over sites", "skill")
HEAD = ("predictor", "MAE", "RMSE, noise-corrected", "bias", "rank over states", "rank over seeds", "skill")


@dataclass(frozen=True)
class Evaluate(PrintsResults, OutsideOptions):
    """Compare the predictions of a run's evaluators with Monte Carlo values; writes evaluation.json and evaluation.png.

    With --policy-sb3 or --policy-import, a policy of another package is evaluated in place of the run's own: its true value, and
    what the run's evaluators predict from its assessment; writes evaluation-outside.json and evaluation-outside.png.
    """

    run: RunPath
    """Directory of a finished run."""
    seeds: str = "all"
    """Seeds to evaluate: all, or a list like "0 1 2"."""
    policy_import: str | None = None
    """Another policy as module:name: a function of JAX, (key, observations) → (actions, log-probabilities or None); a function of
    NumPy, observations → actions or probabilities; or what evarl.policies made of a model."""
    passive: str | None = None
    """Directory of a run with β = 0 and a co-learned evaluator, as a control; its own policies are evaluated."""
    rollouts: int | None = None
    """Rollouts from each state; by default 64, or 8 in worlds on the host."""
    states: int = 64
    """Number of start states drawn from μ_D, and of states visited by the policy."""
    sites: int | None = None
    """In a family of worlds: number of sites with fresh contexts, on each of which the policy is assessed and measured; by
    default 64."""
    replicates: int | None = None
    """Rollouts of each scenario of the assessment; by default as in the run's configuration."""
    random_seed: int = 0
    """Random seed."""
    ope: Flag = False
    """Add off-policy estimates from the log of the training (requires a run with --log-megabytes)."""
    log: LogSettings = field(default_factory=LogSettings)
    """Settings of off-policy evaluation, with --ope."""
    out: str | None = None
    """File for the results; by default evaluation.json in the run, or evaluation-outside.json for a policy of another package.
    The figure is written beside it."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, evaluate, keep the results and print them."""
    command = parse(Evaluate, arguments, "evarl evaluate", Evaluate(tyro.MISSING))
    seeds = parse_seeds(command.seeds)

    from evarl.evaluation.evaluate import evaluate  # imports JAX
    from evarl.report.figures import evaluation_picture
    from evarl.report.records import evaluation_record

    only_one({"policy-import": command.policy_import, "policy-sb3": command.policy_sb3})
    settings = options(command, "log", "out", *OPTIONS) | {"seeds": seeds, "ope": command.log if command.ope else None}
    settings["policy"] = sb3_policy(command)
    found = evaluate(**settings, notify=notify)
    drawn, record = evaluation_picture(found), evaluation_record(found, points=True)
    name = "evaluation.json" if found.policy is None else "evaluation-outside.json"
    file = write_results(command.out, Path(command.run) / name, record)
    picture = file.with_suffix(".png")
    write_bytes(picture, drawn)
    if command.json:
        print(json.dumps(evaluation_record(found, points=False) | {"file": str(file), "picture": str(picture)}))
        return
    _print(found)
    print(f"\nresults in {plain_text(f'{file} and {picture}')}")


def _print(found: "Evaluation") -> None:
    from evarl.evaluation.predictors import EVALUATOR, PASSIVE

    one = len(found.seeds) == 1
    who = "seeds" if found.policy is None else "seeds' evaluators"
    over = "standard errors of Monte Carlo values" if one else f"mean ± standard error over {len(found.seeds)} {who}"
    about = f"{found.run}: {found.world}, β = {found.beta:g}, γ = {found.discount:g}, horizon {found.horizon}; {over}"
    print(plain_text(about))
    print(_measured(found))
    if found.predicted.mean is not None:
        where = "" if found.sites is None else " on each site"
        print(
            f"the evaluator predicts from one draw of each policy's test{where} (random seed {found.random_seed}), which another "
            "--random-seed draws anew"
        )
    for label, of in (("true return over μ_D", found), ("of the passive run", found.passive)):
        if of is not None:
            print(f"{label}: {_text(of.discounted)} discounted, {_text(of.undiscounted)} undiscounted")
    if found.policy is not None:
        print(f"predicted from its assessment: {_text(found.predicted)} discounted")
    for kind in found.seeds[0].queries:
        print()
        table = PlainTable(*(HEAD if found.sites is None else SITES_HEAD), title=_title(kind, found))
        for row in (row for row in found.rows if row.queries == kind):
            table.add_row(row.predictor, *_cells(row, found))
        if found.passive is not None:
            table.add_row(f"{PASSIVE} †", *_cells(found.passive.row(EVALUATOR, kind), found))
        print_table(table)
        if kind in found.best_without:
            print(f"skill: compared with the best predictor without Ξ, {found.best_without[kind]}")
    _print_policies(found)
    print()
    if found.sites is not None:
        _print_references(found)
    if found.shuffled_with is not None:
        print(f"Ξ shuffled: mean error with the assessments of {found.shuffled_with}")
    if found.passive is not None:
        compared = "compared with their own values and their own best predictor without Ξ"
        print(f"† {plain_text(found.passive.run)}: other policies (β = 0), {compared}")
    for note in found.notes:
        print(f"note: {plain_text(note)}")


def _print_references(found: "Evaluation") -> None:
    """What predictors are that know more than an evaluator may."""
    from evarl.evaluation.predictors import BEST, MEAN, TOLD

    names = {row.predictor for row in found.rows}
    for name, text in {
        MEAN: "the best constant for these sites",
        TOLD: "from the true values of the other sites; perfect knowledge of the context",
        BEST: "the posterior mean given the same returns; on average over sites no evaluator has a smaller squared error",
    }.items():
        if name in names:
            print(f"{name}: {text}")


def _print_policies(found: "Evaluation") -> None:
    """Errors and ranks of each predictor over the policies of the seeds."""
    if not found.policies:
        return
    title = f"over the {len(found.seeds)} policies: mean values at start states"
    head = ("predictor", "MAE", "RMSE", "Spearman", "Kendall", "regret@1", "rank violation")
    table = PlainTable(*head, title=title)
    for name, one in found.policies.items():
        cells = [one.mean_absolute_error, one.root_mean_squared_error, one.spearman, one.kendall, one.regret_at_k]
        cells.append(one.mean_maximum_rank_violation)
        table.add_row(name, *map(number, cells))
    print()
    print_table(table)
    print("regret@1: loss from choosing the policy with the highest prediction, as a share of the range of true values")


def _cells(row: "Row", found: "Evaluation") -> list[str]:
    if row.not_fitted is not None:
        return ["not fitted", *["—"] * (len(HEAD if found.sites is None else SITES_HEAD) - 2)]
    errors = map(_text, (row.mae, row.rmse, row.bias, row.rank_states))
    ranks = [number(row.rank_seeds, ".2f")] if found.sites is None else []
    return [*errors, *ranks, _text(row.skill)]


def _measured(found: "Evaluation") -> str:
    """What true values are."""
    if (sites := found.sites) is None:
        return f"start states: {found.start_states}; {found.rollouts} rollouts from each state"
    values = "exact values by dynamic programming" if sites.exact else f"{found.rollouts} episodes on each"
    return f"{sites.count} sites, contexts {' '.join(sites.contexts)} (random seed {sites.random_seed}); {values}"


def _title(kind: str, found: "Evaluation") -> str:
    return f"{kind} states" if found.sites is None else f"values of {found.sites.count} sites"


def _text(estimate: "MeanAndError") -> str:
    return number(estimate.mean, error=estimate.standard_error)
