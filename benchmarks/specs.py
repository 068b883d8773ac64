"""What one of our workers is asked to run, as plain data that fits on a command line. No JAX."""

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.presets import preset

Kind = Literal["factored", "listing", "pairs", "linear"]
KINDS: tuple[Kind, ...] = ("factored", "listing", "pairs", "linear")


@dataclass(frozen=True)
class Spec:
    """A program of this package and its settings."""

    program: str
    """Which one; see `benchmarks.worker`."""
    preset: str
    world: str
    updates: int = 1
    """Policy updates (for `fqe`, gradient steps) in one repetition."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset, by dotted name."""
    states: int = 64
    """Ground truth: states whose values are asked for,"""
    rollouts: int = 16
    """and rollouts from each."""
    devices: int = 0
    """Split the CPU into so many devices; 0 leaves it whole."""

    def config(self) -> TrainConfig:
        """The configuration of the run."""
        return with_settings(dataclasses.replace(preset(self.preset), world=self.world), self.changes).resolved()

    def command(self) -> tuple[str, ...]:
        """How its worker is started."""
        return (sys.executable, "-m", "benchmarks.worker", json.dumps(dataclasses.asdict(self)))


def aware(kind: Kind = "factored") -> dict[str, Any]:
    """Changes that make training evaluation-aware. Games and robots have standard start states, and train no base policy."""
    return {"beta": 0.01, "evaluator.network.kind": kind}


def over_contexts(context: str, count: int) -> dict[str, Any]:
    """Changes that make training one over contexts, drawn anew in each update, with two rollouts from each start."""
    return {"context": [context], "contexts": count, "context_updates": 1, "rollouts_per_start": 2}


EXACT: dict[str, Any] = {
    "beta": 1.0,
    "gradient": "exact",
    "shape": "assessment",
    "queries": "start",
    "evaluator.states": "start",
    "assessment.base_updates": 1,
    "assessment.entropy_coefficient": 0.03,
}
"""Changes that make training over contexts evaluation-aware, as in the presets `crossing` and `cartpole`."""
