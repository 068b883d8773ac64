"""Settings of fitted Q evaluation. Plain data, no JAX."""

from dataclasses import dataclass
from typing import Literal

from evarl.errors import InputError
from evarl.ranges import flag, real, sizes, whole

Convention = Literal["sound", "greedy-huber"]


@dataclass(frozen=True)
class FQEConfig:
    """Settings of fitted Q evaluation: the network, its optimiser, and the meaning of its backups."""

    hidden_sizes: tuple[int, ...] = (100, 100)
    """Widths of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size; constant for the first half of the steps, then decays linearly to a fiftieth."""
    batch_size: int = 100
    """Transitions in one gradient step."""
    steps: int = 10_000
    """Gradient steps."""
    target_interval: int = 20
    """Gradient steps between two copies into the target network, which make one backup. Values need about
    3 / (1 − discount) backups, or as many as there are time steps."""
    convention: Convention = "sound"
    """sound: back up the policy's expectation with squared loss, and only terminated steps end the value. greedy-huber: as
    d3rlpy on logs that mark terminals only, with the greedy action, Huber loss (squared for continuous actions), and time
    limits that end the value."""
    time_feature: bool = False
    """Estimate values over the T steps of the longest trajectory: t / T is a feature, and the value ends at step T. When not
    set, values have no horizon, and a time limit or a cut is bootstrapped at the final observation."""
    action_samples: int = 8
    """For continuous actions: draws of the policy at each observation, made once; each pass uses the next one."""
    held_out: float = 0.1
    """Share of the trajectories held out for the Bellman error; with 0 that error is undefined."""
    tolerance: float = 0.05
    """A fit has converged if its mean start value changes, and is expected to change further, by less than this share of
    the standard deviation of the values."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        for name in ("batch_size", "steps", "target_interval", "action_samples"):
            whole(flag("fqe", name), getattr(self, name))
        for name in ("learning_rate", "tolerance"):
            real(flag("fqe", name), getattr(self, name), above=0)
        sizes("fqe.hidden-sizes", self.hidden_sizes)
        if self.convention not in ("sound", "greedy-huber"):
            raise InputError(f"fqe.convention: {self.convention!r} is not allowed; must be sound or greedy-huber")
        real("fqe.held-out", self.held_out, least=0, most=1)
        if self.held_out == 1:
            raise InputError(f"fqe.held-out: {self.held_out} is not allowed; must be from 0 to below 1")
