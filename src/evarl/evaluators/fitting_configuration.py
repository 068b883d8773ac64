"""Settings of how an evaluator learns. Plain data, no JAX."""

from dataclasses import dataclass, field

from evarl.evaluators.configuration import NetworkConfig
from evarl.ranges import flag, real, whole


@dataclass(frozen=True)
class EvaluatorConfig:
    """A network, and how it is fitted to the memory of recent policies."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Its architecture."""
    learning_rate: float = 3e-3
    """Adam step size."""
    batch_size: int = 128
    """Queries in one gradient step, equally many from every stored policy."""
    steps: int = 5
    """Gradient steps before each policy update."""
    initial_steps: int = 500
    """Gradient steps on the filled memory when the warm-up ends."""
    warmup: int = 100
    """Policy updates before the evaluator is used; the memory fills meanwhile."""
    policies: int = 10
    """Most recent policies that the memory keeps."""
    transitions: int | None = None
    """Visited states kept of each policy; all of a batch when not given."""
    every: int = 1
    """Fit in one policy update out of this many: above 1, the evaluator lags behind the policy."""
    file: str | None = None
    """A pre-trained evaluator (made by `evarl pretrain`), to be held fixed in mode frozen."""

    def unfitted_updates(self) -> int:
        """Updates at the beginning of a run in which the evaluator takes no gradient step."""
        return self.warmup if self.initial_steps else self.warmup + self.every

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("batch_size", "steps", "policies", "every"):
            whole(flag("evaluator", name), getattr(self, name))
        for name in ("initial_steps", "warmup"):
            whole(flag("evaluator", name), getattr(self, name), least=0)
        if self.transitions is not None:
            whole("evaluator.transitions", self.transitions)
        real("evaluator.learning-rate", self.learning_rate, above=0)
        self.network.validate()
