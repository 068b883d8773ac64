"""`make bench`: how fast training is beside the world alone. Both are measured in turn, in one process, and repeated."""

import dataclasses
import json
import resource
import statistics
from pathlib import Path

import tyro
from rich.table import Table

from benchmarks.throughput import EnvironmentOnly, Measured, Training
from evarl.cli.tables import print_table
from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import preset

WORLDS: dict[str, tuple[TrainConfig, int]] = {
    "navigation": (preset("navigation"), 40),
    "gymnax/Asterix-MinAtar": (preset("minatar"), 20),
    "gymnax/Freeway-MinAtar": (preset("minatar"), 20),
    "gymnax/SpaceInvaders-MinAtar": (preset("minatar"), 20),
    "brax/reacher": (preset("brax"), 3),
}
"""Worlds with the paper's settings, and how many updates one repetition makes."""


def main(worlds: tuple[str, ...] = tuple(WORLDS), repeats: int = 7, out: Path = Path("runs/bench.json")) -> None:
    """Measure and print.

    Args:
        worlds: which worlds.
        repeats: interleaved repetitions of each program; the median is reported, with the quartiles behind it.
        out: file for the figures.
    """
    table = Table("world", "world alone", "training", "ratio", "compile s", "peak GiB", box=None)
    results = {}
    for name in worlds:
        base, updates = WORLDS[name]
        config = dataclasses.replace(base, world=name)
        programs = [EnvironmentOnly(config, updates), Training(config, updates)]
        for _ in range(repeats + 1):
            for program in programs:
                program.repeat()
        alone, training = (program.measured for program in programs)
        for measured in (alone, training):
            measured.seconds.pop(0)  # the first touches fresh memory
        ratios = [a / t for a, t in zip(alone.seconds, training.seconds, strict=True)]
        table.add_row(
            name,
            _spread(alone.steps_per_second()),
            _spread(training.steps_per_second()),
            f"{statistics.median(ratios):.2f}",
            f"{training.compile_seconds:.1f}",
            f"{training.memory_gib:.2f}",
        )
        results[name] = {
            "environment_only": _plain(alone),
            "training": _plain(training),
            "ratio": statistics.median(ratios),
            "process_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=2) + "\n")
    print_table(table)
    print(f"steps per second: median (quartiles) of {repeats} interleaved repetitions; figures in {out}")


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle / 1e3:.0f}k ({low / 1e3:.0f}–{high / 1e3:.0f}k)"


def _plain(measured: Measured) -> dict[str, object]:
    return dataclasses.asdict(measured) | {"steps_per_second": measured.steps_per_second()}


if __name__ == "__main__":
    tyro.cli(main)
