"""Everything that is fixed before the first rollout. Its hash is the seed of all that is random afterwards.

So nobody can choose among rollouts: whoever changes anything, if only the level, gets others. And whoever has the protocol
can make the same rollouts again.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evarl.certificates import hashes
from evarl.errors import InputError

Claim = Literal["J", "C2", "C3", "C4", "C5"]


def policy_name(seed: int) -> str:
    """The file of a seed's final policy within its run."""
    return f"policy/seed-{seed}.safetensors"


@dataclass(frozen=True)
class Calibration:
    """One of the policies that C5 learns from."""

    run: str
    """Its directory, as seen from that of the run that the certificate is for."""
    seed: int
    files: dict[str, str]
    """Their SHA-256 by name within the run."""


@dataclass(frozen=True)
class Protocol:
    """A claim about one policy, and how it is tested."""

    claim: Claim
    world: str
    horizon: int
    discount: float
    seed: int
    """Whose policy and evaluator of the run."""
    files: dict[str, str]
    """SHA-256 by name within the run: policy, configuration, and where there are any, evaluator and assessment."""
    alpha: float
    rollouts: int
    """n, or the budget of a sequential test; in C4 the number of states, in C5 for each calibration policy."""
    sequential: bool = False
    threshold: float | None = None
    delta: float | None = None
    """Of C2: what is left of certainty that the share 1 − alpha is reached."""
    epsilon: float | None = None
    """Of C3 and C4: the error that is allowed."""
    low: float | None = None
    """Least possible return; none is needed for C2."""
    high: float | None = None
    range_from: Literal["world", "user"] | None = None
    batch: int = 256
    """Rollouts that are made side by side."""
    fresh: int = 32
    """Fresh start states for each rollout, whose predictions the control variate is centred by."""
    value_error: float | None = None
    """Of C5: the level of the lower bounds that stand for true values."""
    calibration: tuple[Calibration, ...] = ()
    candidates: tuple[str, ...] = ()
    """In a comparison: SHA-256 of the policies in the order in which they are tested."""

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest return that are possible."""
        if self.low is None or self.high is None:
            raise InputError("range: is missing; want the least and the greatest return that are possible")
        return self.low, self.high

    @property
    def policy(self) -> str:
        """SHA-256 of the policy that is tested; empty where somebody has forged a protocol without one."""
        return self.files.get(policy_name(self.seed), "")

    @property
    def error(self) -> float:
        """The probability that what is concluded is false."""
        return self.alpha if self.delta is None else self.delta

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(self.to_dict())

    def key(self) -> np.ndarray:
        """The key of all that is random."""
        return hashes.random_key(self.hash())
