"""`evarl certify RUN`: issue a certificate for a policy, or say why there is none."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from evarl.cli.parsing import OpensRuns, parse
from evarl.errors import InputError, plain_text

if TYPE_CHECKING:
    from evarl.certificates.issue import Issued
    from evarl.certificates.planning import Terms


@dataclass(frozen=True)
class Effort:
    """What is asked of a test of J, whether of one policy or of several candidates."""

    threshold: float | None = None
    """What J is to be shown to reach; `certify` gives the best lower bound without it, `compare` wants one."""
    alpha: float = 0.05
    """Probability of error that is allowed; for C2 the share of episodes that may return less."""
    range: tuple[float, float] | None = None
    """Least and greatest return that are possible by the rules of the task, not as seen; the world's own unless given."""
    rollouts: int | None = None
    """Deployment rollouts, 1000 unless given; in C4 the number of states, in C5 for each calibration policy."""
    sequential: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Roll out until the threshold is certified or refuted, or the budget is spent."""
    budget: int | None = None
    """Most rollouts of a sequential test, 10000 unless given."""
    again: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test a claim that was tested for this policy before; the certificate counts the levels of all tests."""
    nonce: str = ""
    """Text that somebody other than the issuer chose after the policy was fixed; all random numbers follow from it too."""
    sign: str | None = None
    """Sign the certificate with the Ed25519 private key in this PEM file (`evarl keygen` makes one)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


@dataclass(frozen=True)
class Certify(OpensRuns):
    """Issue a certificate for the final policy of a run: JSON and a page, in the run's folder certificates.

    Exit code 0: certified, or bounded where no threshold or epsilon was given; 1: refuted or not shown; 2: refused input.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a finished run."""
    claim: Literal["J", "C2", "C3", "C4", "C5"] = "J"
    """J: the mean return is at least …; C2: a new episode returns at least L(s); C3: L(s) = V̂(s) − λ overstates by at most
    ε on average; C4: the evaluator's RMSE is at most …; C5: J from an assessment alone (wants --from-policies)."""
    seed: int | None = None
    """Whose policy and evaluator; by default the first."""
    delta: float | None = None
    """For C2: probability δ that more than the share alpha of new episodes return less than the bound; as alpha unless given."""
    epsilon: float | None = None
    """For C3 and C4: the error that is allowed."""
    two_valued: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """For J: every return is one of the two ends of the range by the rules of the task (success or failure); gives a tighter
    bound."""
    from_policies: tuple[str, ...] = ()
    """For C5: runs that were trained in the same way, whose final policies it is learnt from."""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test nothing: print the SHA-256 of what would be tested, for a verifier who then chooses a nonce."""
    test: Annotated[Effort, tyro.conf.arg(name="")] = Effort()


def run(arguments: list[str]) -> int:
    """Parse the arguments, test, keep the certificate and print it."""
    command = parse(Certify, arguments, "evarl certify", Certify(tyro.MISSING))
    if command.claim == "C5" and not command.from_policies:
        raise InputError("from-policies: is missing; C5 wants runs whose policies it can learn from")

    from evarl.certificates.conclusions import percent
    from evarl.certificates.issue import issue_certificate, planned  # imports JAX

    asked = terms(
        command.test,
        claim=command.claim,
        delta=command.delta,
        epsilon=command.epsilon,
        two_valued=command.two_valued,
    )
    if command.plan:
        plan = planned(command.run, asked, command.seed, command.from_policies).protocol.plan
        print(json.dumps({"plan": plan}) if command.test.json else f"plan: {plan}")
        return 0
    issued = issue_certificate(
        command.run,
        asked,
        seed=command.seed,
        from_policies=command.from_policies,
        again=command.test.again,
        sign_with=command.test.sign,
        say=_progress,
    )
    conclusion = issued.certificate.conclusion
    if command.test.json:
        print(json.dumps(record(issued)))
    else:
        if issued.origin == "answers another threshold":
            print(
                f"{issued.outcome}: J ≥ {command.test.threshold:g}, by an earlier certificate, and nothing was tested:"
            )
        elif issued.origin == "issued before":
            print("This test was made before, and its certificate stands; other terms, or a nonce, give new rollouts.")
        print(f"{conclusion.outcome}, at confidence {percent(issued.certificate.confidence)}:")
        print(plain_text(conclusion.statement))
        if issued.certificate.earlier:
            print(f"  (with {len(issued.certificate.earlier)} earlier tests of this claim, whose levels count)")
        for name, number in conclusion.numbers.items():
            print(f"  {plain_text(name)}: {number:.6g}")
        print(f"  rollouts: {conclusion.rollouts}")
        print(f"  head of the ledger: {ledger_head(issued)}")
        path, html = plain_text(str(issued.path)), plain_text(str(issued.html))
        print(f"\ncertificate in {path}, page in {html}; check it with: evarl verify {path}")
    return 0 if issued.outcome in ("certified", "bounded") else 1


def terms(effort: Effort, **more: Any) -> "Terms":
    """What is to be tested."""
    from evarl.certificates.planning import Terms

    return Terms(
        threshold=effort.threshold,
        alpha=effort.alpha,
        range=effort.range,
        rollouts=effort.rollouts,
        sequential=effort.sequential,
        budget=effort.budget,
        nonce=effort.nonce,
        **more,
    )


def record(issued: "Issued") -> dict[str, Any]:
    """The result as plain data."""
    conclusion = issued.certificate.conclusion
    return {
        "outcome": issued.outcome,
        "origin": issued.origin,
        "statement": conclusion.statement,
        "confidence": issued.certificate.confidence,
        "earlier_tests": len(issued.certificate.earlier),
        "bound": conclusion.bound,
        "upper_bound": conclusion.upper,
        "rollouts": conclusion.rollouts,
        "numbers": conclusion.numbers,
        "certificate": str(issued.path),
        "page": str(issued.html),
        "ledger_head": ledger_head(issued),
    }


def ledger_head(issued: "Issued") -> str:
    """SHA-256 of the newest entry of the run's ledger, to be published."""
    from evarl.certificates import ledger

    return ledger.head(ledger.read(issued.path.parent.parent))


def _progress(line: str) -> None:
    """Over the last line, where somebody is looking."""
    if sys.stderr.isatty():
        print(f"\r\033[K{plain_text(line)}", end="" if "rollouts" in line else "\n", file=sys.stderr, flush=True)
