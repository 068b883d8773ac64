"""The protocol of a test: everything that is fixed before the first rollout. Its hash is the seed of all random numbers.

Whoever has the protocol can repeat the same rollouts. An issuer could try protocols until one is lucky, unless the protocol
contains a nonce that somebody else chose after the rest was fixed; `evarl verify` therefore makes fresh rollouts for a verifier
who did not choose the nonce in this way. No JAX.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt32

from evarl.certificates import hashes
from evarl.certificates.names import ClaimName
from evarl.errors import InputError

LEAST_LEVEL, LARGEST_LEVEL = 1e-9, 0.5
"""Range of levels: above, a statement would be more likely false than true; below, no simulation is reliable enough."""


def policy_name(seed: int) -> str:
    """The file of a seed's final policy within its run."""
    return f"policy/seed-{seed}.safetensors"


@dataclass(frozen=True)
class Calibration:
    """A calibration policy of the claim new-policy. The path of its run is given by the verifier and not part of the protocol."""

    seed: int
    files: dict[str, str]
    """SHA-256 by name within its run."""


@dataclass(frozen=True)
class Protocol:
    """A claim about one policy, and how it is tested."""

    claim: ClaimName
    world: str
    horizon: int
    discount: float
    seed: int
    """The seed of the run whose policy and evaluator are tested."""
    files: dict[str, str]
    """SHA-256 by name within the run: policy, configuration and, if there are any, evaluator and assessment."""
    alpha: float
    rollouts: int
    """n, or the budget of a sequential test; for evaluator-error of states, for new-policy of each calibration policy."""
    sequential: bool = False
    threshold: float | None = None
    delta: float | None = None
    """For single-episode: probability δ that the coverage is below 1 − α."""
    epsilon: float | None = None
    """For evaluator-overstatement and evaluator-error: the error that is allowed."""
    low: float | None = None
    """Least possible return; single-episode needs none."""
    high: float | None = None
    range_from: Literal["world", "user"] | None = None
    batch: int = 256
    """Number of rollouts that are made in parallel."""
    fresh: int = 32
    """Fresh start states for each rollout, whose predictions centre the control variate."""
    value_error: float | None = None
    """For new-policy: the level of the lower bounds that are used for the true values of the calibration policies."""
    calibration: tuple[Calibration, ...] = ()
    candidates: tuple[str, ...] = ()
    """In a comparison: SHA-256 of the policies in the order in which they are tested."""
    nonce: str = ""
    """Text chosen by somebody other than the issuer after the policy was fixed; empty if there is none."""
    world_sha256: str | None = None
    """SHA-256 of the file that the world is read from, if it is."""
    two_valued: bool = False
    """Whether every return is either `low` or `high` by the rules of the task."""

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest possible return."""
        if self.low is None or self.high is None:
            raise InputError("range: is missing; must be the least and the greatest possible return")
        return self.low, self.high

    @property
    def policy(self) -> str:
        """SHA-256 of the policy that is tested; empty in a forged protocol without one."""
        return self.files.get(policy_name(self.seed), "")

    @property
    def comparison(self) -> str:
        """SHA-256 of the comparison that this test is part of, the same for all its candidates; empty outside of one."""
        test = [self.threshold, self.alpha, self.rollouts, self.sequential, self.nonce]
        shared = [self.candidates, *test, self.low, self.high, self.two_valued, self.world_sha256]
        return hashes.of_data(shared) if self.candidates else ""

    @property
    def plan(self) -> str:
        """SHA-256 of everything but the nonce: what an issuer commits to before a verifier chooses the nonce."""
        return dataclasses.replace(self, nonce="").hash()

    @property
    def error(self) -> float:
        """The probability that the conclusion is false."""
        return self.alpha if self.delta is None else self.delta

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(self.to_dict())

    def key(self) -> UInt32[np.ndarray, "2"]:
        """The key of all random numbers, in JAX's old style."""
        return hashes.random_key(self.hash())
