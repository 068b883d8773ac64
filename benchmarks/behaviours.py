"""`python -m benchmarks.behaviours`: the time of an update with each kind of behaviour Ξ, relative to that with returns.

All kinds take turns in one process, so that a busy moment hits all of them; ratios are taken within a turn.
"""

import time

import jax
import numpy as np
import tyro

from evarl.learning.base_policies import build_assessment
from evarl.learning.configuration import with_settings
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.learning.presets import preset

LEARNT = ", learnt probes"
KINDS = ("returns", "rewards", "trajectory", "fingerprint", "returns+fingerprint", "returns+trajectory+fingerprint")
KINDS += (f"returns+fingerprint{LEARNT}",)


class Racer:
    """Training with one kind of behaviour, after the warm-up."""

    def __init__(self, name: str, kind: str, updates: int):
        probes = "learnt" if kind.endswith(LEARNT) else "start"
        settings = {"beta": 0.05, "gradient": "critic", "assessment.probes": probes}
        settings |= {"assessment.behaviour": kind.removesuffix(LEARNT)}
        settings |= {"evaluator.warmup": 0, "evaluator.initial_steps": 1}
        config = with_settings(preset(name), settings).resolved()
        self.updates, self.done = updates, 0
        self.engine = CompiledEngine(make_learner(config, build_assessment(config, print)), 1)
        self.state = self.engine.init([0])
        self.seconds()  # compiles

    def seconds(self) -> float:
        """Time of one update, over the next ones."""
        began = time.perf_counter()
        self.state, _ = self.engine.advance(self.state, self.done, self.updates)
        jax.block_until_ready(self.state)
        self.done += self.updates
        return (time.perf_counter() - began) / self.updates


def main(name: str = "navigation", kinds: tuple[str, ...] = KINDS, turns: int = 7, updates: int = 50) -> None:
    """Measure and print medians (quartiles).

    Args:
        name: a preset.
        kinds: kinds of behaviour; the first is what the others are compared with.
        turns: interleaved repetitions of each kind.
        updates: updates of each kind in one turn.
    """
    racers = {kind: Racer(name, kind, updates) for kind in kinds}
    seconds = np.array([[racer.seconds() for racer in racers.values()] for _ in range(turns)])  # [turns, kinds]
    low, middle, high = np.quantile(1e3 * seconds, (0.25, 0.5, 0.75), axis=0)
    ratios = np.quantile(seconds / seconds[:, :1], (0.25, 0.5, 0.75), axis=0)
    print(f"| behaviour | ms per update | ÷ {kinds[0]} |\n| --- | ---: | ---: |")
    for i, kind in enumerate(kinds):
        least, ratio, most = ratios[:, i]
        print(f"| {kind} | {middle[i]:.2f} ({low[i]:.2f}–{high[i]:.2f}) | {ratio:.2f} ({least:.2f}–{most:.2f}) |")


if __name__ == "__main__":
    tyro.cli(main)
