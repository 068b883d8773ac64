"""What is made larger in `make bench-scaling`, and how far. No JAX."""

import math
from dataclasses import dataclass
from typing import Any

from benchmarks.specs import Spec, aware

NAVIGATION, ASTERIX, CROSSING = "navigation", "gymnax/Asterix-MinAtar", "crossing"
PRESETS = {NAVIGATION: "navigation", ASTERIX: "minatar", CROSSING: "crossing"}
SEEDS_ON_DEVICES = 4
EACH = 3
"""Environments of each context."""


@dataclass(frozen=True)
class Sweep:
    """Evaluation-aware training in a world, with one setting at several sizes."""

    world: str
    what: str
    """As tables call it."""
    setting: str
    """Its dotted name; `assessment.start_states`, `contexts` and `devices` are treated apart."""
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.world}: {self.what}"

    def spec(self, size: int, updates: int, tiny: bool = False) -> Spec:
        """The worker of one point."""
        changes: dict[str, Any] = {"beta": 1.0} if self.world == CROSSING else aware()
        changes |= {"environments": 8, "steps": 8} if tiny else {}
        devices = 0
        if self.setting == "devices":
            devices, changes["seeds"] = size, SEEDS_ON_DEVICES
        elif self.setting == "assessment.start_states":
            changes[self.setting] = grid(size)
        elif self.setting == "contexts":
            changes |= {"contexts": size, "environments": EACH * size}
        else:
            changes[self.setting] = size
        return Spec("training", PRESETS[self.world], self.world, updates, changes, devices=devices)


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
STEPS, HORIZON, CONTEXTS = "steps", "assessment horizon h", f"contexts ({EACH} environments each)"

SWEEPS = (
    Sweep(NAVIGATION, SEEDS, "seeds", (1, 2, 4, 8, 16, 30)),
    Sweep(NAVIGATION, ENVIRONMENTS, "environments", (8, 32, 128, 512)),
    Sweep(NAVIGATION, SCENARIOS, "assessment.start_states", (4, 16, 64, 256)),
    Sweep(NAVIGATION, WIDTH, "evaluator.network.width", (8, 32, 128)),
    Sweep(NAVIGATION, POLICIES, "evaluator.policies", (5, 20, 80, 320)),
    Sweep(NAVIGATION, DEVICES, "devices", (1, 2, 4)),
    Sweep(ASTERIX, SEEDS, "seeds", (1, 2, 5, 10)),
    Sweep(ASTERIX, ENVIRONMENTS, "environments", (16, 64, 256)),
    Sweep(ASTERIX, STEPS, "steps", (25, 100, 400)),
    Sweep(ASTERIX, SCENARIOS, "assessment.scenarios", (5, 20, 80)),
    Sweep(ASTERIX, HORIZON, "assessment.horizon", (10, 40, 160)),
    Sweep(ASTERIX, POLICIES, "evaluator.policies", (5, 20, 80)),
    Sweep(ASTERIX, DEVICES, "devices", (1, 2)),
    Sweep(CROSSING, SEEDS, "seeds", (1, 2, 5, 10)),
    Sweep(CROSSING, CONTEXTS, "contexts", (4, 16, 64, 256)),
    Sweep(CROSSING, STEPS, "steps", (40, 160, 640)),
    Sweep(CROSSING, HORIZON, "assessment.horizon", (6, 24, 96)),
    Sweep(CROSSING, POLICIES, "evaluator.policies", (100, 400, 1600)),
)
