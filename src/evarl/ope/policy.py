"""The policy that is asked about, reduced to what estimators need."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float

from evarl.worlds.world import Key


class TargetPolicy(NamedTuple):
    """Functions of a batch [B, ...] of observations."""

    log_prob: Callable[[Array, Array], Float[Array, " B"]]
    """Observations and logged actions → log-probabilities (densities) of those very actions."""
    probabilities: Callable[[Array], Float[Array, "B A"]] | None
    """All action probabilities; None when actions are continuous."""
    sample: Callable[[Key, Array], Array]
    """A key and observations → one action for each."""
