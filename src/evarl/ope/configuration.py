"""Names of methods and rules, and how the log of a run is used. Plain data, no JAX."""

from dataclasses import dataclass, field
from typing import Literal

from evarl.errors import InputError
from evarl.ope.fqe_configuration import FQEConfig
from evarl.ranges import MOST, real, whole

Method = Literal["fqe", "fqe-greedy-huber", "tis", "pdis", "wis", "wpdis", "dr", "wdr", "magic"]
METHODS: tuple[Method, ...] = ("fqe", "fqe-greedy-huber", "tis", "pdis", "wis", "wpdis", "dr", "wdr", "magic")
"""Fitted Q evaluation in two conventions; trajectory-wise and per-decision importance sampling and their self-normalised
forms; doubly robust and its self-normalised form; MAGIC."""

LABELS: dict[Method, str] = {
    "fqe": "FQE",
    "fqe-greedy-huber": "FQE, greedy-huber",
    "tis": "TIS",
    "pdis": "PDIS",
    "wis": "self-normalised TIS",
    "wpdis": "self-normalised PDIS",
    "dr": "DR",
    "wdr": "self-normalised DR",
    "magic": "MAGIC",
}
"""Names as tables show them."""

Rule = Literal["pooled", "per-start", "neighbours"]
RULES: tuple[Rule, ...] = ("pooled", "per-start", "neighbours")


@dataclass(frozen=True)
class LogSettings:
    """How the log of a run is used."""

    methods: tuple[Method, ...] = METHODS
    """Which methods."""
    updates: int | None = None
    """Use the log of so many last updates; all of it when not given."""
    rule: Rule = "neighbours"
    """Which trajectories speak for a state: all (pooled), those that start there (per-start), or those that start near it
    (neighbours; in a world with one start state, all)."""
    confidence: float = 0.95
    """Of the two-sided intervals."""
    range: tuple[float, float] | None = None
    """Least and greatest possible contribution of a trajectory, for the bounds that need it; never from the data."""
    clip: float | None = None
    """Largest log-ratio allowed at a step; biased, none when not given."""
    resamples: int = 1000
    """Bootstrap samples."""
    fqe_refits: int = 0
    """Fits on resampled trajectories, for a standard error of fitted Q evaluation."""
    fqe: FQEConfig = field(default_factory=lambda: FQEConfig(time_feature=True))
    """Fitted Q evaluation. The values of a run end at its time limit, so time is a feature."""
    random_seed: int = 0
    """Random seed."""

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        if self.updates is not None:
            whole("updates", self.updates)
        if self.range is not None:
            for end in self.range:
                real("range", end)
            if not self.range[0] < self.range[1]:
                raise InputError(f"range: {self.range} is not allowed; want the lower end first")
        if self.clip is not None:
            real("clip", self.clip)
        whole("resamples", self.resamples, least=2)
        whole("fqe-refits", self.fqe_refits, least=0)
        whole("random-seed", self.random_seed, least=-MOST)
        self.fqe.validate()
