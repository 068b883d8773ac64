"""Settings of estimates from the log of a run. Plain data, no JAX."""

from dataclasses import dataclass, field

from evarl.ope.fqe_configuration import FQEConfig
from evarl.ope.registry import LABELS, chosen, estimators
from evarl.ope.settings import Rule, Settings
from evarl.ranges import whole

__all__ = ["LABELS", "LogSettings", "Method"]

Method = str
"""Name of a registered estimator."""


@dataclass(frozen=True)
class LogSettings(Settings):
    """Settings of estimates from the log of a run."""

    methods: tuple[Method, ...] = field(default_factory=lambda: tuple(estimators()))
    """Estimators, by their names."""
    updates: int | None = None
    """Number of last updates whose log is used; all when not given."""
    rule: Rule = "neighbours"
    """Trajectories from which the value of a state is estimated: all (pooled), those that start there (per-start), or those
    that start near it (neighbours; in a world with one start state, all). Fitted Q evaluation needs no rule."""
    fqe: FQEConfig = field(default_factory=lambda: FQEConfig(time_feature=True))
    """Fitted Q evaluation. The values of a run end at its time limit, so time is a feature."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        chosen(self.methods)
        if self.updates is not None:
            whole("updates", self.updates)
        super().validate()
