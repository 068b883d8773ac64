"""What is made larger in `make bench-scaling`, and how far. No JAX."""

import math
from dataclasses import dataclass
from typing import Any

from benchmarks.specs import Spec, aware

NAVIGATION, ASTERIX = "navigation", "gymnax/Asterix-MinAtar"
SEEDS_ON_DEVICES = 4


@dataclass(frozen=True)
class Sweep:
    """Evaluation-aware training in a world, with one setting at several sizes."""

    world: str
    what: str
    """As tables call it."""
    setting: str
    """Its dotted name; `assessment.start_states` and `devices` are treated apart."""
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.world}: {self.what}"

    def spec(self, size: int, updates: int, tiny: bool = False) -> Spec:
        """The worker of one point."""
        changes: dict[str, Any] = aware() | ({"environments": 8, "steps": 8} if tiny else {})
        devices = 0
        if self.setting == "devices":
            devices, changes["seeds"] = size, SEEDS_ON_DEVICES
        elif self.setting == "assessment.start_states":
            changes[self.setting] = grid(size)
        else:
            changes[self.setting] = size
        preset = "navigation" if self.world == NAVIGATION else "minatar"
        return Spec("training", preset, self.world, updates, changes, devices=devices)


def grid(count: int) -> str:
    """So many start states for the open field, spread over the square.

    >>> grid(2)
    '0.25,0.5 0.75,0.5'
    """
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    places = [((i % across + 0.5) / across, (i // across + 0.5) / down) for i in range(count)]
    return " ".join(f"{x:.4g},{y:.4g}" for x, y in places)


SEEDS, ENVIRONMENTS, SCENARIOS, WIDTH = "seeds", "environments", "scenarios k", "evaluator width"
POLICIES, DEVICES = "remembered policies m", f"devices ({SEEDS_ON_DEVICES} seeds)"

SWEEPS = (
    Sweep(NAVIGATION, SEEDS, "seeds", (1, 2, 4, 8, 16, 30)),
    Sweep(NAVIGATION, ENVIRONMENTS, "environments", (8, 32, 128, 512)),
    Sweep(NAVIGATION, SCENARIOS, "assessment.start_states", (4, 16, 64, 256)),
    Sweep(NAVIGATION, WIDTH, "evaluator.network.width", (8, 32, 128)),
    Sweep(NAVIGATION, POLICIES, "evaluator.policies", (5, 20, 80, 320)),
    Sweep(NAVIGATION, DEVICES, "devices", (1, 2, 4)),
    Sweep(ASTERIX, ENVIRONMENTS, "environments", (16, 64, 256)),
    Sweep(ASTERIX, SCENARIOS, "assessment.scenarios", (5, 20)),
    Sweep(ASTERIX, POLICIES, "evaluator.policies", (5, 20, 80)),
)
