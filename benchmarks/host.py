"""`make bench-host`: training in Gymnasium's environments beside Stable-Baselines3 with the same settings, in one run.

Both step their environments one after the other in one process, and both have separate networks of 64 × 64 tanh units for
actor and critic. Repetitions are interleaved, and ratios are those of neighbouring repetitions.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.about import about
from benchmarks.catalogue import PYTHONS, SB3
from benchmarks.race import ROOT, Task, race
from benchmarks.specs import Spec
from benchmarks.tables import Sheet, spread
from evarl.errors import unknown_name
from evarl.storage.files import write_bytes

OURS, PEER = "evarl", "Stable-Baselines3"


@dataclass(frozen=True)
class Match:
    """A world, an algorithm and sizes that both sides are given."""

    world: str
    algorithm: str
    environments: int
    steps: int
    updates: int
    """In one repetition."""
    epochs: int = 10
    minibatches: int = 1

    def ours(self) -> Task:
        """Training as `evarl train` runs it."""
        changes: dict[str, Any] = {"environments": self.environments, "steps": self.steps, "rollouts_per_start": 1}
        changes |= {"agent.algorithm": self.algorithm, "agent.hidden_sizes": [64, 64]}
        changes |= {"agent.ppo.epochs": self.epochs, "agent.ppo.minibatches": self.minibatches}
        spec = Spec("training", "navigation", f"gymnasium/{self.world}", self.updates, changes)
        return Task(spec.command(), self.updates)

    def theirs(self, python: Path) -> Task:
        """The same of Stable-Baselines3, with one thread, which is its fastest for networks of this size."""
        sizes = {"world": self.world, "environments": self.environments, "steps": self.steps, "updates": self.updates}
        flags = sizes | {
            "algorithm": self.algorithm,
            "epochs": self.epochs,
            "minibatches": self.minibatches,
            "threads": 1,
        }
        script = str(ROOT / "benchmarks" / "peers" / "sb3_a2c.py")
        return Task((str(python), script, *(f"--{name}={value}" for name, value in flags.items())), self.updates)


MATCHES = {
    "cartpole-a2c": Match("CartPole-v1", "a2c", environments=8, steps=5, updates=200),
    "cartpole-ppo": Match("CartPole-v1", "ppo", environments=8, steps=128, updates=4, minibatches=16),
    "halfcheetah-ppo": Match("HalfCheetah-v5", "ppo", environments=4, steps=512, updates=1, minibatches=32),
    "hopper-ppo": Match("Hopper-v5", "ppo", environments=4, steps=512, updates=1, minibatches=32),
}


def main(
    matches: tuple[str, ...] = ("cartpole-a2c", "cartpole-ppo", "halfcheetah-ppo"),
    repeats: int = 7,
    python: Path = ROOT / PYTHONS[SB3] / "bin" / "python",
    out: Path = Path("runs/bench-host"),
) -> None:
    """Measure, print, and keep host.json and host.md in a directory.

    Args:
        matches: which of the matches above.
        repeats: interleaved repetitions of each program.
        python: the interpreter in whose environment Stable-Baselines3 is installed; `make bench-peers-setup` makes one.
        out: directory for the results.
    """
    sheet = Sheet("Steps per second: median (quartiles)", ("world", "algorithm", OURS, PEER, "ratio"))
    results: dict[str, Any] = {"about": about(), "matches": {}}
    for name in matches:
        if name not in MATCHES:
            raise SystemExit(str(unknown_name("match", name, MATCHES)))
        match = MATCHES[name]
        found = race(name, {OURS: match.ours(), PEER: match.theirs(python)}, repeats, out / "logs", cold=False)
        results["matches"][name] = found
        if any("failed" in one for one in found.values()):
            continue
        ours, theirs = (found[side]["steps"] / np.asarray(found[side]["seconds"]) for side in (OURS, PEER))
        speeds = (spread(speed, "{:,.0f}".format) for speed in (ours, theirs))
        sheet.add(match.world, match.algorithm.upper(), *speeds, spread(ours / theirs, "{:.2f}".format))
    write_bytes(out / "host.json", (json.dumps(results, indent=2) + "\n").encode())
    write_bytes(out / "host.md", sheet.markdown().encode())
    sheet.show()


if __name__ == "__main__":
    tyro.cli(main)
