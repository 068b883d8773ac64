"""`evarl ope RUN`: off-policy evaluation of a run's final policies from the log of its training."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.parsing import PrintsResults, RunPath, parse, parse_seeds, write_results
from evarl.cli.tables import PlainTable, notify, number, print_table
from evarl.errors import plain_text
from evarl.ope.registry import LogSettings

if TYPE_CHECKING:
    from evarl.evaluation.logged import LoggedSeed
    from evarl.ope.log import Estimate


@dataclass(frozen=True)
class Ope(PrintsResults):
    """Estimate the values of a run's final policies from the log of its training; writes ope.json.

    The run must have been trained with --log-megabytes. No environment is stepped.
    """

    run: RunPath
    """Directory of a finished run."""
    seeds: str = "all"
    """Seeds to evaluate: all, or a list like "0 1 2"."""
    settings: Annotated[LogSettings, tyro.conf.arg(name="")] = field(default_factory=LogSettings)
    out: str | None = None
    """File for the results; by default ope.json in the run."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, estimate, write the results and print them."""
    command = parse(Ope, arguments, "evarl ope", Ope(tyro.MISSING))
    command.settings.validate()
    seeds = parse_seeds(command.seeds)

    from evarl.evaluation.logged import estimate_run, logged_record  # imports JAX

    found = estimate_run(command.run, seeds, command.settings, notify)
    record = {"run": command.run, "rule": command.settings.rule, "seeds": [logged_record(one) for one in found]}
    file = write_results(command.out, Path(command.run) / "ope.json", record)
    if command.json:
        print(json.dumps(record | {"file": str(file)}))
        return
    for one in found:
        _print(one, command.settings.confidence)
    print(f"\nresults in {plain_text(str(file))}")


def _print(found: "LoggedSeed", confidence: float) -> None:
    rows = {method: _cells(one, confidence) for method, one in found.estimates.items()}
    title = f"seed {found.seed}: {found.trajectories} trajectories, {found.steps} steps"
    table = PlainTable("method", *next(iter(rows.values())), title=title)
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
        "J": number(one.value),
        "s.e.": number(one.standard_error),
        f"{confidence:.0%} interval": "—" if tightest is None else _interval(one, tightest),
        "effective sample": number(one.effective_sample_size, ".1f"),
        "largest weight": number(one.largest_weight_share, ".1%"),
        "Pareto k": number(one.pareto_k, ".2f"),
        "Bellman error": number(one.bellman_error),
    }


def _interval(one: "Estimate", name: str) -> str:
    return f"{one.intervals[name].low:.3f} to {one.intervals[name].high:.3f}"
