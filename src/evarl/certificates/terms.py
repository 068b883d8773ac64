"""The terms of a test, as they are given on the command line or in Python. No JAX."""

from dataclasses import dataclass

from evarl.certificates.names import ClaimName
from evarl.certificates.protocol import LARGEST_LEVEL, LEAST_LEVEL, Protocol
from evarl.errors import InputError
from evarl.storage.files import CONTROL

ROLLOUTS, BUDGET = 1000, 10_000
MOST_ROLLOUTS = 1_000_000
"""A certificate keeps every return, and a larger file would not be read."""
LONGEST_NONCE = 200


@dataclass(frozen=True)
class Terms:
    """What is to be shown and with how many rollouts; all of it is decided before the first rollout."""

    claim: ClaimName = "mean-return"
    threshold: float | None = None
    alpha: float = 0.05
    delta: float | None = None
    """For single-episode: probability δ that the coverage is below 1 − α; equal to alpha unless given."""
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

    def given(self) -> dict[str, object]:
        """Settings that not every claim has, by name, if they are given."""
        settings = {
            "threshold": self.threshold,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "range": self.range,
            "two-valued": self.two_valued or None,
            "sequential": self.sequential or None,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def number(self) -> int:
        """The number of rollouts, or the budget of a sequential test."""
        name, asked, default = (
            ("budget", self.budget, BUDGET) if self.sequential else ("rollouts", self.rollouts, ROLLOUTS)
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
        **effort,
    )
