"""`evarl ope RUN|FILE`: off-policy evaluation from the log of a run's training, or from a log in a file."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from evarl.cli.outside import OutsideOptions, only_one, sb3_policy
from evarl.cli.parsing import Flag, PrintsResults, parse, parse_seeds, write_results
from evarl.cli.tables import PlainTable, notify, number, print_table
from evarl.errors import FileError, InputError, plain_text
from evarl.ope.registry import LogSettings

if TYPE_CHECKING:
    from evarl.evaluation.logged import LoggedSeed
    from evarl.evaluation.logged_files import LoggedFile
    from evarl.ope.log import Estimate

FILE_ONLY = (
    *(
        "policy",
        "policy_import",
        "policy_sb3",
        "discount",
        "actions",
        "first_action",
        "log_prob",
        "select",
        "least_return",
        "least_reward",
    ),
    *("distribution", "guaranteed", "return_range"),
)
"""Options that a run does not have."""


@dataclass(frozen=True)
class Ope(PrintsResults, OutsideOptions):
    """Estimate the value of a policy from logged trajectories. No environment is stepped.

    RUN: the values of a run's final policies from the log of its training (--log-megabytes); writes ope.json there.
    FILE: the value of the policy that --policy, --policy-import or --policy-sb3 names, from a log in a file: .csv and .parquet
    with the columns episode, step, observation_0 …, action (or action_0 …), reward, terminated, truncated, log_prob; .npz and
    .hdf5 in the layout of D4RL; .safetensors of LoggedData.save; or minari:ID. Writes FILE.ope.json.
    """

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|FILE")]
    """Directory of a finished run, or file of a log."""
    seeds: str = "all"
    """Seeds of a run: all, or a list like "0 1 2"; of a run given by --policy, one seed, by default its first."""
    log_from: Literal["recent", "all"] | None = None
    """From a run: the part of its log, of the last updates (recent) or the whole training (all); by default what it has, all if
    it has both."""
    policy: str | None = None
    """Policy to evaluate from a file: uniform, or the directory of a run."""
    policy_import: str | None = None
    """Policy to evaluate from a file as module:name, a function of NumPy or JAX: observations → probabilities [B, A], or
    (observations, actions) → log-probabilities [B]; or what evarl.policies made of a model."""
    discount: float | None = None
    """Discount of returns in a file; must be given."""
    actions: int | None = None
    """Number of actions of the uniform policy; as many as the log shows unless given."""
    first_action: int | None = None
    """The number from which discrete actions in a file count, such as 1; those of policies are in the same order. By default 0,
    but for the uniform policy it must be given where the log has no action 0."""
    action_units: Literal["world", "policy"] = "world"
    """Units of continuous actions in a file, for a run given by --policy, whose own have their bounds at −1 and 1."""
    missing_final: Literal["repeat", "drop", "refuse"] = "repeat"
    """Where a trajectory does not terminate and the observation after its last step was not logged: let the last observation
    stand for it, drop the last step, or refuse the log."""
    log_prob: str | None = None
    """Name of the log-probabilities among the infos of a Minari data set."""
    distribution: Flag = False
    """From a file: also the distribution of returns, with quantiles, CVaR and bands."""
    return_range: tuple[float, float] | None = None
    """Least and greatest possible discounted return, for bands of the mean and of CVaR with --distribution."""
    guaranteed: Flag = False
    """From a file: also a lower bound that holds for every number of trajectories; needs --least-return or --least-reward."""
    least_return: float | None = None
    """Least possible discounted return by the rules of the task, for --guaranteed."""
    least_reward: float | None = None
    """Least possible reward by the rules of the task, for --guaranteed."""
    select: Literal["clip", "window"] | None = None
    """From a file: also the estimate that SLOPE selects from a family, of clipped ratios or of windows of actions."""
    settings: Annotated[LogSettings, tyro.conf.arg(name="")] = field(default_factory=LogSettings)
    out: str | None = None
    """File for the results; by default ope.json in the run, or FILE.ope.json."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, estimate, write the results and print them."""
    command = parse(Ope, arguments, "evarl ope", Ope(tyro.MISSING))
    command.settings.validate()
    if Path(command.log).is_dir():
        _run(command)
    else:
        _file(command)


def _run(command: Ope) -> None:
    """Estimates of a run's own policies."""
    for name in FILE_ONLY:
        if getattr(command, name):
            raise InputError(
                f"{name.replace('_', '-')}: is for logs in files, and {command.log} is a run; must be left out"
            )
    seeds = parse_seeds(command.seeds)

    from evarl.evaluation.logged import estimate_run, logged_record  # imports JAX

    found = estimate_run(command.log, seeds, command.settings, notify, command.log_from)
    record = {
        "run": command.log,
        "rule": command.settings.rule,
        "log_from": found[0].part,
        "seeds": [logged_record(one) for one in found],
    }
    file = write_results(command.out, Path(command.log) / "ope.json", record)
    if command.json:
        print(json.dumps(record | {"file": str(file)}))
        return
    for one in found:
        where = "a sample of all of training" if one.part == "all" else "the last updates of training"
        title = f"seed {one.seed}: {one.trajectories} trajectories, {one.steps} steps, from {where}"
        _print(one, command.settings.confidence, title)
    print(f"\nresults in {plain_text(str(file))}")


def _file(command: Ope) -> None:
    """Estimates of a policy from a log in a file."""
    _check(command)

    from evarl.evaluation import logged_files as files  # imports JAX
    from evarl.ope.guarantees import GuaranteeSettings
    from evarl.ope.outside import target_policy

    first = command.first_action or 0
    data = files.read_log_file(command.log, command.missing_final, command.log_prob, first, notify)
    if command.policy == files.UNIFORM and command.first_action is None and command.actions is None:
        files.check_first_action(data)
    if command.policy is not None:
        seeds = parse_seeds(command.seeds)
        seed = None if seeds is None else seeds[0]
        policy = files.named_policy(data, command.policy, seed, command.actions, command.action_units)
    elif command.policy_import is not None:
        policy = files.imported_target(data, command.policy_import)
    else:
        outside = sb3_policy(command)
        assert outside is not None
        policy = target_policy(outside, data), outside.description
    least = GuaranteeSettings(least_return=command.least_return, least_reward=command.least_reward)
    guarantee = least if command.guaranteed else None
    asked = files.Asked(command.distribution, command.return_range, guarantee, command.select)
    assert command.discount is not None
    found = files.evaluate_log((command.log, data, command.discount), policy, command.settings, asked)
    record = files.log_record(found)
    default = Path(f"{Path(command.log.removeprefix('minari:')).name if ':' in command.log else command.log}.ope.json")
    file = write_results(command.out, default, record)
    if command.json:
        print(json.dumps(record | {"file": str(file)}))
        return
    _print_file(found, command.settings.confidence)
    print(f"\nresults in {plain_text(str(file))}")


def _check(command: Ope) -> None:
    """Refuse what is no log, and options that do not go together for a log in a file."""
    ends = command.log.lower().endswith((".csv", ".parquet", ".npz", ".hdf5", ".h5", ".safetensors"))
    if not (ends or command.log.startswith("minari:")):
        raise InputError(
            f"{command.log}: is neither the directory of a run nor a log; a log must end in .csv, .parquet, .npz, .hdf5 or "
            ".safetensors, or be minari:ID"
        )
    if not (command.log.startswith("minari:") or os.path.lexists(command.log)):
        raise FileError(f"{command.log}: no such file; must be the file of a log, or the directory of a run")
    named = {"policy": command.policy, "policy-import": command.policy_import, "policy-sb3": command.policy_sb3}
    only_one(named)
    if not any(value is not None for value in named.values()):
        raise InputError(
            "policy: is missing; must be given for a log in a file, with --policy, --policy-import or --policy-sb3"
        )
    if command.discount is None:
        raise InputError("discount: is missing; must be given for a log in a file, from 0 to 1")
    if command.policy_sb3 is None:
        sb3_policy(command)  # refuses options that belong to it
    if command.log_from is not None:
        raise InputError(f"log-from: is for runs, and {command.log} is a file; must be left out")
    if command.return_range is not None and not command.distribution:
        raise InputError("return-range: is for --distribution; must be left out without it")
    if not command.guaranteed and (command.least_return is not None or command.least_reward is not None):
        raise InputError("least-return and least-reward: are for --guaranteed; must be left out without it")


def _print_file(found: "LoggedFile", confidence: float) -> None:
    from evarl.evaluation.logged_files import quantiles

    one = found.found
    _print(one, confidence, f"{found.policy} from {found.log}: {one.trajectories} trajectories, {one.steps} steps")
    if (returns := found.distribution) is not None:
        table = PlainTable("return", "value", f"{confidence:.0%} band", title="distribution of returns")
        for name, (value, band) in quantiles(returns).items():
            table.add_row(name, number(value), _band(band))
        print()
        print_table(table)
        print(
            f"band: {returns.assumptions}; all rows hold together"
            if returns.band
            else f"no band: {returns.assumptions}"
        )
        for warning in returns.warnings:
            print(f"warning: distribution: {warning}")
    if (bound := found.guaranteed) is not None:
        told = " (no more than is known without a log)" if bound.trivial else ""
        print(f"\nguaranteed: J is at least {bound.value:.3f} at confidence {bound.confidence:.0%}{told}")
        print(f"it relies on {bound.assumptions}")
    if (chosen := found.selected) is not None:
        interval = (
            "no interval" if chosen.interval is None else f"{chosen.interval.low:.3f} to {chosen.interval.high:.3f}"
        )
        print(f"\nselected: {chosen.value:.3f} ({chosen.selection.chosen.name}; {interval}); {chosen.why}")
        for warning in chosen.warnings:
            print(f"warning: selected: {warning}")


def _band(ends: tuple[float, float] | None) -> str:
    """The ends of a band, which may be infinite."""
    low, high = ends or (-inf, inf)
    if isinf(low) and isinf(high):
        return "—"
    return f"at most {high:.3f}" if isinf(low) else f"at least {low:.3f}" if isinf(high) else f"{low:.3f} to {high:.3f}"


def _print(found: "LoggedSeed", confidence: float, title: str) -> None:
    rows = {method: _cells(one, confidence) for method, one in found.estimates.items()}
    table = PlainTable("method", *next(iter(rows.values())), title=plain_text(title))
    for method, cells in rows.items():
        table.add_row(method, *cells.values())
    print()
    print_table(table)
    for method, one in found.estimates.items():
        for name in (name for name in ("bernstein", "hoeffding") if name in one.intervals):
            print(f"{method}: {confidence:.0%} {name} interval {_interval(one, name)}")
    for what, methods in _by(lambda one: (one.estimand,), found).items():
        print(f"{', '.join(methods)}: {what}")
    for warning, methods in _by(lambda one: one.warnings, found).items():
        print(f"warning: {', '.join(methods)}: {warning}")


def _by(texts: Callable[["Estimate"], tuple[str, ...]], found: "LoggedSeed") -> dict[str, list[str]]:
    """The methods that say each text."""
    said: dict[str, list[str]] = {}
    for method, one in found.estimates.items():
        for text in texts(one):
            said.setdefault(text, []).append(method)
    return said


def _cells(one: "Estimate", confidence: float) -> dict[str, str]:
    """A row of the table, by column."""
    tightest = next((name for name in ("bootstrap", "t") if name in one.intervals), None)
    return {
        "J": "diverged" if one.diverged else number(one.value),
        "s.e.": number(one.standard_error),
        f"{confidence:.0%} interval": "—" if tightest is None else _interval(one, tightest),
        "effective sample": number(one.effective_sample_size, ".1f"),
        "largest weight": number(one.largest_weight_share, ".1%"),
        "Pareto k": number(one.pareto_k, ".2f"),
        "Bellman error": number(None if one.diverged else one.bellman_error),
    }


def _interval(one: "Estimate", name: str) -> str:
    return f"{one.intervals[name].low:.3f} to {one.intervals[name].high:.3f}"
