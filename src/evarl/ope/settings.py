"""Settings of off-policy estimates. Plain data, no JAX."""

from dataclasses import dataclass, field
from typing import Literal

from evarl.errors import InputError, unknown_name
from evarl.ope.fqe_configuration import FQEConfig
from evarl.ranges import MOST, real, whole

Rule = Literal["pooled", "per-start", "neighbours"]
RULES: tuple[Rule, ...] = ("pooled", "per-start", "neighbours")


@dataclass(frozen=True)
class Settings:
    """Settings that estimators share."""

    rule: Rule = "pooled"
    """Trajectories from which the value of a state is estimated: all (pooled), those that start there (per-start), or those
    that start near it (neighbours; in a world with one start state, all). Fitted Q evaluation needs no rule."""
    confidence: float = 0.95
    """Confidence level of the two-sided intervals."""
    range: tuple[float, float] | None = None
    """Least and greatest possible contribution of a trajectory, for Hoeffding and Bernstein intervals. It must be known
    beforehand, not taken from the data."""
    clip: float | None = None
    """Upper limit of the log importance ratio of a step, which makes estimates biased; none when not given."""
    resamples: int = 1000
    """Bootstrap samples."""
    warn_below: float = 0.05
    """Effective sample size, as a share of the trajectories, below which an estimate carries a warning."""
    fqe: FQEConfig = field(default_factory=FQEConfig)
    """Fitted Q evaluation."""
    fqe_refits: int = 0
    """Fits on resampled trajectories, for a standard error of fitted Q evaluation; 0 for none."""
    random_seed: int = 0
    """Random seed."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        if self.rule not in RULES:
            raise unknown_name("rule", self.rule, RULES)
        real("confidence", self.confidence, above=0, most=1)
        if self.confidence == 1:
            raise InputError(f"confidence: {self.confidence} is not allowed; must be below 1, such as 0.95")
        if self.range is not None:
            for end in self.range:
                real("range", end)
            if not self.range[0] < self.range[1]:
                raise InputError(f"range: {self.range} is not allowed; must have the lower end first")
        if self.clip is not None:
            real("clip", self.clip)
        whole("resamples", self.resamples, least=2)
        real("warn-below", self.warn_below, least=0, most=1)
        whole("fqe-refits", self.fqe_refits, least=0)
        if self.fqe_refits == 1:
            raise InputError(f"fqe-refits: {self.fqe_refits} is not allowed; must be 0, or at least 2")
        whole("random-seed", self.random_seed, least=-MOST)
        self.fqe.validate()
