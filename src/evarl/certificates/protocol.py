"""Terms of a test, as a user gives them, and its protocol: everything that is fixed before the first rollout.

The hash of the protocol is the seed of all random numbers, so that whoever has it can repeat the same rollouts. An issuer could
try protocols until one is lucky, unless the protocol contains a nonce that somebody else chose after the rest was fixed;
`evarl verify` therefore makes fresh rollouts for a verifier who did not choose the nonce in this way. No JAX.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt32

from evarl.certificates import hashes
from evarl.certificates.names import ClaimName, PredictorName
from evarl.errors import InputError
from evarl.settings import check_fields
from evarl.storage.files import CONTROL

LEAST_LEVEL, LARGEST_LEVEL = 1e-9, 0.5
"""Range of levels: above, a statement would be more likely false than true; below, no simulation is reliable enough."""
ROLLOUTS, BUDGET = 1000, 10_000
MOST_ROLLOUTS = 1_000_000
"""A certificate keeps every return, and a larger file would not be read."""
EPISODES, MOST_SITES = 100, 100_000
"""Episodes on each calibration site, unless given, and the greatest number of sites."""
DRAWN = "drawn"
"""Stands for a site that is drawn, in place of a site's context."""
LONGEST_NONCE = 200


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
    """n, or the budget of a sequential test; for evaluator-error of states, for new-policy of each calibration policy, for claims
    about sites on each calibration site."""
    sequential: bool = False
    threshold: float | None = None
    delta: float | None = None
    """For single-episode and claims about sites: probability δ that the coverage is below 1 − α."""
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
    """For new-policy and site-value: the level of the lower bounds that are used for true values in the calibration."""
    calibration: tuple[Calibration, ...] = ()
    candidates: tuple[str, ...] = ()
    """In a comparison: SHA-256 of the policies in the order in which they are tested."""
    nonce: str = ""
    """Text chosen by somebody other than the issuer after the policy was fixed; empty if there is none."""
    world_sha256: str | None = None
    """SHA-256 of the file that the world is read from, if it is."""
    two_valued: bool = False
    """Whether every return is either `low` or `high` by the rules of the task."""
    sites: int = 0
    """For claims about sites: the number of calibration sites."""
    contexts: tuple[str, ...] = ()
    """In a family of worlds: how contexts are drawn, one text for each."""
    site: tuple[str, ...] = ()
    """The new site: NAME=VALUE for each context, or drawn:NUMBER; empty in a calibration."""
    predictor: PredictorName | None = None
    """For claims about sites: what the margin is added to."""
    outside: str = ""
    """What the policy is, if this package did not train it; its parameters and code are in the policy's file."""

    @property
    def calibrating(self) -> "Protocol":
        """The protocol of the calibration that a test of a site uses; its hash determines the calibration sites."""
        return dataclasses.replace(self, site=(), threshold=None)

    @property
    def drawn(self) -> int:
        """The number of a site that is drawn, from 1; 0 for any other."""
        kind, _, number = self.site[0].partition(":") if self.site else ("", "", "")
        return int(number) if kind == DRAWN and number.isdecimal() else 0

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
        return self.alpha if self.delta is None or self.site else self.delta

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """SHA-256 of all fields."""
        return hashes.of_data(self.to_dict())

    def key(self) -> UInt32[np.ndarray, "2"]:
        """The key of all random numbers, in JAX's old style."""
        return hashes.random_key(self.hash())


@dataclass(frozen=True)
class Terms:
    """What is to be shown and with how many rollouts; all of it is decided before the first rollout."""

    claim: ClaimName = "mean-return"
    threshold: float | None = None
    alpha: float = 0.05
    delta: float | None = None
    """For single-episode: probability δ that the coverage is below 1 − α, equal to alpha unless given; for claims about sites the
    same, and unless given α is over calibration and site together."""
    epsilon: float | None = None
    """For evaluator-overstatement and evaluator-error: the error that is allowed."""
    range: tuple[float, float] | None = None
    """The least and the greatest return that any policy can have; the world's own unless given."""
    two_valued: bool = False
    """Whether every return is one of the two ends of the range by the rules of the task."""
    rollouts: int | None = None
    sequential: bool = False
    budget: int | None = None
    nonce: str = ""
    """Text from whoever will rely on the certificate, chosen after the policy was fixed; random numbers depend on it."""
    sites: int = 0
    """For claims about sites: the number of calibration sites; 0 for a site whose calibration is in the ledger."""
    site: tuple[str, ...] = ()
    """The new site: NAME=VALUE for each context, or "drawn" or "drawn:NUMBER"; without it, sites are calibrated."""
    predictor: PredictorName | None = None
    """For claims about sites: what the margin is added to, unless given the value in a calibration, and for a site that of its
    calibration."""

    def __post_init__(self) -> None:
        check_fields(self)

    def given(self) -> dict[str, object]:
        """Settings that not every claim has, by name, if they are given."""
        settings = {
            "threshold": self.threshold,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "range": self.range,
            "two-valued": self.two_valued or None,
            "sequential": self.sequential or None,
            "sites": self.sites or None,
            "site": " ".join(self.site) or None,
            "predictor": self.predictor,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def number(self) -> int:
        """The number of rollouts, of each site if there are sites, or the budget of a sequential test."""
        usual = EPISODES if self.sites else ROLLOUTS
        name, asked, default = (
            ("budget", self.budget, BUDGET) if self.sequential else ("rollouts", self.rollouts, usual)
        )
        found = default if asked is None else asked
        if not 1 <= found <= MOST_ROLLOUTS:
            raise InputError(f"{name}: {found} is not allowed; must be 1 to {MOST_ROLLOUTS:,}, since each is kept")
        return found

    def check(self) -> None:
        """Refuse values and combinations that no claim allows."""
        for name, level in {"alpha": self.alpha, "delta": self.delta}.items():
            if level is not None and not LEAST_LEVEL <= level <= LARGEST_LEVEL:
                raise InputError(
                    f"{name}: {level} is not allowed; must be a number from {LEAST_LEVEL:g} to {LARGEST_LEVEL}"
                )
        if not 0 <= self.sites <= MOST_SITES:
            raise InputError(f"sites: {self.sites} is not allowed; must be 1 to {MOST_SITES:,}")
        if self.epsilon is not None and not 0 < self.epsilon < float("inf"):
            raise InputError(f"epsilon: {self.epsilon} is not allowed; must be a number above 0")
        if len(self.nonce) > LONGEST_NONCE or CONTROL.search(self.nonce):
            raise InputError(f"nonce: is not allowed; must be at most {LONGEST_NONCE} printable characters on one line")
        if self.sequential and self.two_valued:
            raise InputError("two-valued: is not allowed with --sequential; use --rollouts")
        if self.sequential and self.threshold is None:
            raise InputError("threshold: is missing; a sequential test requires one")
        if self.sequential and self.rollouts is not None:
            raise InputError("rollouts: is not allowed with --sequential, which stops by itself; use --budget")
        if self.budget is not None and not self.sequential:
            raise InputError("budget: is allowed with --sequential only; use --rollouts")


def terms_of(protocol: Protocol) -> Terms:
    """The terms that lead to a protocol."""
    effort = {"budget": protocol.rollouts} if protocol.sequential else {"rollouts": protocol.rollouts}
    given = protocol.range_from == "user" and protocol.low is not None and protocol.high is not None
    return Terms(
        claim=protocol.claim,
        threshold=protocol.threshold,
        alpha=protocol.alpha,
        delta=protocol.delta,
        epsilon=protocol.epsilon,
        range=protocol.range if given else None,
        two_valued=protocol.two_valued,
        sequential=protocol.sequential,
        nonce=protocol.nonce,
        sites=protocol.sites,
        site=protocol.site,
        predictor=protocol.predictor,
        **effort,
    )
