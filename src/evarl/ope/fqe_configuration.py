"""Settings of fitted Q evaluation. Plain data, no JAX."""

from dataclasses import dataclass
from typing import Literal

from evarl.errors import InputError
from evarl.ranges import flag, real, sizes, whole

Convention = Literal["sound", "greedy-huber"]


@dataclass(frozen=True)
class FQEConfig:
    """A network, how it is fitted, and what its backups mean."""

    hidden_sizes: tuple[int, ...] = (100, 100)
    """Widths of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size; it stays for the first half of the steps and falls in a line to a fiftieth by the last one."""
    batch_size: int = 100
    """Transitions in one gradient step."""
    steps: int = 10_000
    """Gradient steps."""
    target_interval: int = 20
    """Gradient steps between two copies of the network into the target network: so many steps are one backup. Values
    need about 3 / (1 − discount) backups, or as many as there are time steps."""
    convention: Convention = "sound"
    """Back up the policy's expectation with squared loss and let only terminated steps end the value (sound), or do as
    d3rlpy does on logs that mark terminals alone: the greedy action, Huber loss (squared for continuous actions), and time
    limits that end the value (greedy-huber)."""
    time_feature: bool = False
    """Values over the T steps of the longest trajectory: t / T is a feature, and nothing follows step T. When not set,
    values have no horizon, and a time limit or a cut is bootstrapped at the final observation."""
    action_samples: int = 8
    """Continuous actions: draws of the policy for each observation, made once; each backup uses one of them in turn."""
    held_out: float = 0.1
    """Share of the trajectories kept apart for the Bellman error; 0 keeps none and leaves that error undefined."""
    tolerance: float = 0.05
    """Converged means: the mean start value still moves, and is still wrong, by less than this share of the values'
    spread."""

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("batch_size", "steps", "target_interval", "action_samples"):
            whole(flag("fqe", name), getattr(self, name))
        for name in ("learning_rate", "tolerance"):
            real(flag("fqe", name), getattr(self, name), above=0)
        sizes("fqe.hidden-sizes", self.hidden_sizes)
        if self.convention not in ("sound", "greedy-huber"):
            raise InputError(f"fqe.convention: {self.convention!r} is not known; want sound or greedy-huber")
        real("fqe.held-out", self.held_out, least=0, most=1)
        if self.held_out == 1:
            raise InputError(f"fqe.held-out: {self.held_out} is not allowed; want a share from 0 to below 1")
