"""`python -m benchmarks.versus OLD NEW`: two source trees of evarl raced against each other in one run.

Training at the paper's settings, plain and evaluation-aware, runs by turns in both trees, as `evarl train` with an empty
compilation cache. The table has the ratios of speed (NEW over OLD, above 1 is faster) and of compile time (below 1 is shorter):
medians over the repetitions, with the least and the greatest ratio of a pair.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import tyro

RUNS = {
    "navigation, plain": "navigation --updates 1500",
    "navigation, evaluation-aware": "navigation --updates 800 --beta 0.05",
    "Asterix, plain": "minatar --updates 60",
    "Asterix, evaluation-aware": "minatar --updates 60 --beta 0.01 --evaluator.warmup 5 --assessment.base-updates 1",
}


def timed(source: Path, arguments: str) -> dict[str, Any]:
    """The summary of one run by the code of a source tree."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTHONPATH": str(source.absolute()),
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/cache",
        }
        command = [sys.executable, "-c", "from evarl.cli.main import main; main()", "train", *arguments.split()]
        command += ["--quiet", "--json", "--out", f"{folder}/run"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
        return json.loads(done.stdout.strip().splitlines()[-1])


def main(
    old: Annotated[Path, tyro.conf.Positional],
    new: Annotated[Path, tyro.conf.Positional],
    repeats: int = 5,
    only: tuple[str, ...] = tuple(RUNS),
) -> None:
    """Race two source trees and print a table.

    Args:
        old: folder that contains the package `evarl` before a change, such as a clone's `src`.
        new: the same after it.
        repeats: pairs of runs.
        only: which runs.
    """
    print("| run | speed, new / old | compile time, new / old |\n| --- | --- | --- |")
    for name in only:
        speeds, compilations = [], []
        for _ in range(repeats):
            before, after = timed(old, RUNS[name]), timed(new, RUNS[name])
            speeds.append(before["seconds"] / after["seconds"])
            compilations.append(after["compile_seconds"] / before["compile_seconds"])
        print(f"| {name} | {_cell(speeds)} | {_cell(compilations)} |", flush=True)


def _cell(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    tyro.cli(main)
