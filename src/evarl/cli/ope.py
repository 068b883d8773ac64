"""`evarl ope RUN`: off-policy evaluation of a run's final policies from the log of its training."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.evaluate import parse_seeds
from evarl.cli.parsing import OpensRuns, parse
from evarl.cli.tables import PlainTable, print_table
from evarl.errors import plain_text
from evarl.ope.registry import LogSettings

if TYPE_CHECKING:
    from evarl.evaluation.logged import LoggedSeed


@dataclass(frozen=True)
class Ope(OpensRuns):
    """Estimate the values of a run's final policies from the log of its training; writes ope.json.

    The run must have been trained with --log-megabytes. No environment is stepped.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a finished run."""
    seeds: str = "all"
    """Seeds to evaluate: all, or a list like "0 1 2"."""
    settings: Annotated[LogSettings, tyro.conf.arg(name="")] = field(default_factory=LogSettings)
    out: str | None = None
    """File for the results; by default ope.json in the run."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, estimate, write the results and print them."""
    command = parse(Ope, arguments, "evarl ope", Ope(tyro.MISSING))
    command.settings.validate()
    seeds = parse_seeds(command.seeds)

    from evarl.evaluation.logged import estimate_run, logged_record  # imports JAX
    from evarl.storage.files import write_bytes

    found = estimate_run(command.run, seeds, command.settings, _say)
    file = Path(command.out) if command.out else Path(command.run) / "ope.json"
    record = {"run": command.run, "rule": command.settings.rule, "seeds": [logged_record(one) for one in found]}
    write_bytes(file, (json.dumps(record, ensure_ascii=False) + "\n").encode())
    if command.json:
        print(json.dumps(record | {"file": str(file)}))
        return
    for one in found:
        _print(one, command.settings.confidence)
    print(f"\nresults in {plain_text(str(file))}")


def _say(line: str) -> None:
    print(plain_text(line), file=sys.stderr)


def _print(found: "LoggedSeed", confidence: float) -> None:
    head = f"seed {found.seed}: {found.trajectories} trajectories, {found.steps} steps"
    interval = f"{confidence:.0%} interval"
    columns = ("method", "J", "s.e.", interval, "effective sample", "largest weight", "Bellman error")
    table = PlainTable(*columns, box=None, title=head, title_justify="left", title_style="bold")
    for method, one in found.estimates.items():
        tightest = [one.intervals[name] for name in ("bootstrap", "t") if name in one.intervals]
        share = one.largest_weight_share
        table.add_row(
            method,
            f"{one.value:.3f}",
            "—" if one.standard_error is None else f"{one.standard_error:.3f}",
            f"{tightest[0].low:.3f} to {tightest[0].high:.3f}" if tightest else "—",
            "—" if one.effective_sample_size is None else f"{one.effective_sample_size:.1f}",
            "—" if share is None else f"{share:.1%}",
            "—" if one.bellman_error is None else f"{one.bellman_error:.3f}",
        )
    print()
    print_table(table)
    said: dict[str, list[str]] = {}
    for method, one in found.estimates.items():
        for name, bound in one.intervals.items():
            if name in ("bernstein", "hoeffding"):
                print(f"{method}: {confidence:.0%} {name} interval {bound.low:.3f} to {bound.high:.3f}")
        for warning in one.warnings:
            said.setdefault(warning, []).append(method)
    for warning, methods in said.items():
        print(f"warning: {', '.join(methods)}: {warning}")
