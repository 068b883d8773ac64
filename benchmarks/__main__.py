"""`make bench`: how fast training is beside the world alone. Both are measured in turn, in one process, and repeated."""

import dataclasses
import json
import resource
import statistics
from pathlib import Path
from typing import Literal

import tyro
from rich.table import Table

from benchmarks.throughput import EnvironmentOnly, Measured, Training
from evarl.cli.tables import print_table
from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import preset
from evarl.runs.machine import keep_compiled_programs

WORLDS: dict[str, tuple[TrainConfig, int]] = {
    "navigation": (preset("navigation"), 40),
    "gymnax/Asterix-MinAtar": (preset("minatar"), 20),
    "gymnax/Freeway-MinAtar": (preset("minatar"), 20),
    "gymnax/SpaceInvaders-MinAtar": (preset("minatar"), 20),
    "brax/reacher": (preset("brax"), 3),
}
"""Worlds with the paper's settings, and how many updates one repetition makes."""

AWARE = ("navigation", "gymnax/Asterix-MinAtar")
"""Worlds in which evaluation-aware training is timed too."""


def main(worlds: tuple[str, ...] = tuple(WORLDS), repeats: int = 7, out: Path = Path("runs/bench.json")) -> None:
    """Measure and print.

    Args:
        worlds: which worlds.
        repeats: interleaved repetitions of each program; the median is reported, with the quartiles behind it.
        out: file for the figures.
    """
    keep_compiled_programs()
    speed = Table("world", "world alone", "training", "ratio", "compile s", "program GiB", box=None)
    cost = Table("world", "evaluator", "ms per update", "plain ms", "ratio", "compile s", box=None)
    results = {}
    for name in worlds:
        base, updates = WORLDS[name]
        config = dataclasses.replace(base, world=name)
        programs: dict[str, EnvironmentOnly | Training] = {
            "environment only": EnvironmentOnly(config, updates),
            "training": Training(config, updates),
        }
        if name in AWARE:
            programs |= {kind: Training(_aware(config, kind), updates) for kind in ("factored", "listing")}
        for _ in range(repeats + 1):
            for program in programs.values():
                program.repeat()
        measured = {label: program.measured for label, program in programs.items()}
        for one in measured.values():
            one.seconds.pop(0)  # the first touches fresh memory
        alone, training = measured["environment only"], measured["training"]
        speed.add_row(
            name,
            _spread(alone.steps_per_second()),
            _spread(training.steps_per_second()),
            f"{_ratio(alone, training):.2f}",
            f"{training.compile_seconds:.1f}",
            f"{training.memory_gib:.2f}",
        )
        for kind in measured.keys() - {"environment only", "training"}:
            times = [1e3 * statistics.median(m.seconds) / updates for m in (measured[kind], training)]
            ratio = f"{_ratio(measured[kind], training):.2f}"
            cost.add_row(
                name, kind, f"{times[0]:.1f}", f"{times[1]:.1f}", ratio, f"{measured[kind].compile_seconds:.1f}"
            )
        results[name] = {label: _plain(one) for label, one in measured.items()} | {
            "ratio": _ratio(alone, training),
            "process_peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"Training beside the world alone: steps per second, median (quartiles) of {repeats} interleaved repetitions")
    print_table(speed)
    print("\nEvaluation-aware training beside plain A2C: one update, evaluator steps included")
    print_table(cost)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory of this process {peak:.2f} GiB; figures in {out}")


def _aware(config: TrainConfig, kind: Literal["factored", "listing"]) -> TrainConfig:
    network = dataclasses.replace(config.evaluator.network, kind=kind)
    return dataclasses.replace(
        config,
        beta=0.01,
        evaluator=dataclasses.replace(config.evaluator, network=network),
        assessment=dataclasses.replace(config.assessment, base_updates=1),
    )


def _ratio(one: Measured, other: Measured) -> float:
    """Seconds of one over seconds of the other, repetition by repetition."""
    return statistics.median(a / b for a, b in zip(one.seconds, other.seconds, strict=True))


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle / 1e3:.0f}k ({low / 1e3:.0f}–{high / 1e3:.0f}k)"


def _plain(measured: Measured) -> dict[str, object]:
    return dataclasses.asdict(measured) | {"steps_per_second": measured.steps_per_second()}


if __name__ == "__main__":
    tyro.cli(main)
