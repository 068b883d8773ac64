"""Settings of an evaluator's network. Plain data, no JAX, so that `--help` stays quick."""

from dataclasses import dataclass
from typing import Literal

from evarl.errors import InputError
from evarl.ranges import flag, whole


@dataclass(frozen=True)
class NetworkConfig:
    """The network that maps an assessment and a query state to a value."""

    kind: Literal["listing", "paired", "factored", "linear"] = "factored"
    """The paper's appendix (listing), one token per state and return (paired), the same encoded once for all queries
    (factored), or an average of the returns weighted by similarity (linear)."""
    width: int = 32
    """Size of a token, and of the hidden layers."""
    heads: int = 2
    """Attention heads; must divide the width. Not used by linear."""
    layers: int = 2
    """Transformer blocks of listing and paired; factored has one block of its own, and linear none."""

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("width", "heads", "layers"):
            whole(flag("evaluator.network", name), getattr(self, name))
        if self.width % self.heads:
            raise InputError(f"evaluator.network.heads: {self.heads} does not divide the width {self.width}")
