"""The protocol of a test: everything that is fixed before the first rollout. Its hash seeds all random numbers of the test.

Whoever has the protocol can make the same rollouts again. Whoever issues it could try out protocols until one is lucky, unless
it contains a nonce that somebody else chose after all the rest was fixed; `evarl verify` therefore makes fresh rollouts of its
own for a verifier who did not choose the nonce in this way.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evarl.certificates import hashes
from evarl.errors import InputError

Claim = Literal["J", "C2", "C3", "C4", "C5"]

LEAST_LEVEL, LARGEST_LEVEL = 1e-9, 0.5
"""A statement that is more likely false than true is no certificate, and no simulation is more reliable than the former."""


def policy_name(seed: int) -> str:
    """The file of a seed's final policy within its run."""
    return f"policy/seed-{seed}.safetensors"


@dataclass(frozen=True)
class Calibration:
    """One of the policies that C5 learns from. Where its run lies is no part of the protocol: verifiers say that themselves."""

    seed: int
    files: dict[str, str]
    """SHA-256 by name within its run."""


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
    """Of C2: probability that fewer than the share 1 − alpha of episodes reach the bound."""
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
    nonce: str = ""
    """Text chosen by somebody other than the issuer, after the policy was fixed; empty if there is none."""
    world_sha256: str | None = None
    """Of the file that the world is read from, if it is."""
    two_valued: bool = False
    """Whether every return is either `low` or `high` by the rules of the task; J only."""

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
        """The probability that what is concluded is false."""
        return self.alpha if self.delta is None else self.delta

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(self.to_dict())

    def key(self) -> np.ndarray:
        """The key of all random numbers, in JAX's old style."""
        return hashes.random_key(self.hash())
