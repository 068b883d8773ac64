"""`evarl study NAME`: the tables and figures of docs/studies.md, from runs that are kept and never made twice."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from evarl.cli.parsing import parse
from evarl.errors import plain_text


@dataclass(frozen=True)
class Study:
    """Make a study: `gradients` (gradient × β on navigation) or `held-out` (evaluators on policies never seen).

    Conditions whose result file exists are not run again. At the end the page's tables and figure are written anew.
    """

    name: tyro.conf.Positional[Literal["gradients", "held-out", "tables"]] = "tables"
    """Which study; `tables` only writes the page anew from the result files."""
    results: Path = Path("results")
    """Folder of the result files."""
    page: Path = Path("docs/studies.md")
    """Page whose tables are filled."""
    seeds: int = 10
    """Seeds of each condition (gradients)."""
    updates: int = 1000
    """Updates of each run (gradients)."""
    share: tuple[int, int] = (0, 1)
    """Of n processes that share the work, this is number i: `--share i n` (gradients)."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, run what is missing, and write the page."""
    command = parse(Study, arguments, "evarl study", Study())

    from evarl.runs.machine import keep_compiled_programs
    from evarl.studies import experiment_tables as tables
    from evarl.studies import gradients, held_out  # imports JAX

    def say(text: str) -> None:
        print(plain_text(text), file=sys.stderr, flush=True)

    keep_compiled_programs()
    if command.name == "gradients":
        gradients.study(command.results / "gradients", command.seeds, command.updates, say, command.share)
    elif command.name == "held-out":
        held_out.study(command.results / "held-out", say)
    if not command.page.exists():
        return
    by_gradient = tables.read_results(command.results / "gradients")
    by_kind = tables.read_results(command.results / "held-out")
    marks = {
        "gradients": tables.gradients_table(by_gradient),
        "differences": tables.differences_table(by_gradient),
        "held-out": tables.held_out_table(by_kind),
    }
    tables.fill_page(command.page, marks)
    tables.gradients_figure(by_gradient, command.page.parent / "gradients.png")
    print(f"tables in {plain_text(str(command.page))}")
