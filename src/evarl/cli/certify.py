"""`evarl certify RUN`: issue a certificate for a policy."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from evarl.certificates.names import DESCRIPTIONS, ClaimName, PredictorName
from evarl.cli.outside import ImportOptions, given_policy
from evarl.cli.parsing import OpensRuns, parse
from evarl.errors import InputError, plain_text

if TYPE_CHECKING:
    from evarl.certificates.issue import Issued
    from evarl.certificates.protocol import Terms

CLAIMS = "; ".join(f"{name}: {what}" for name, what in DESCRIPTIONS.items())


@dataclass(frozen=True)
class Effort:
    """Settings of a test of one policy or of several candidates."""

    threshold: float | None = None
    """Value that J is to be shown to reach; without it `certify` gives the best lower bound; `compare` requires it."""
    alpha: float = 0.05
    """Probability of error; for single-episode the share of episodes that may return less than the bound."""
    range: tuple[float, float] | None = None
    """Least and greatest possible return by the rules of the task, not as observed; the world's own unless given."""
    rollouts: int | None = None
    """Number of rollouts, 1000 unless given; for evaluator-error of states, for new-policy of each calibration policy."""
    sequential: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Make rollouts until the threshold is certified or refuted, or the budget is spent."""
    budget: int | None = None
    """Largest number of rollouts of a sequential test, 10000 unless given."""
    again: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test a claim that was tested for this policy before; the levels of all tests add up."""
    nonce: str = ""
    """Text that somebody other than the issuer chose after the policy was fixed; all random numbers depend on it."""
    sign: str | None = None
    """Sign the certificate with the Ed25519 private key in this PEM file (see `evarl keygen`)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


@dataclass(frozen=True)
class Certify(OpensRuns, ImportOptions):
    """Issue a certificate for the final policy of a run: a JSON file and a page, in the run's folder certificates.

    A policy of another package is given by --policy-sb3 or --policy-import, and its world by --world; RUN is then a directory for
    its certificates, which is made if need be. Claims about evaluators are not possible for it.

    Exit code 0: certified, or bounded if no threshold or epsilon is given; 1: refuted or not shown; 2: invalid input.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a finished run; for a policy of another package, one for its certificates."""
    world: str | None = None
    """World of a policy of another package, such as gymnasium/CartPole-v1; not needed again for a directory that was made."""
    horizon: int | None = None
    """Time limit of that world in steps; its own unless given."""
    discount: float | None = None
    """Discount of that policy's return; 1 unless given, the sum of rewards."""
    claim: Annotated[ClaimName, tyro.conf.arg(help=CLAIMS)] = "mean-return"
    seed: int | None = None
    """Seed of the policy and its evaluator; by default the first of the run."""
    delta: float | None = None
    """For single-episode: probability δ that the coverage is below 1 − alpha; equal to alpha unless given. For a site: that of
    its calibration."""
    epsilon: float | None = None
    """For evaluator-overstatement and evaluator-error: the error that is allowed."""
    two_valued: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """For mean-return: every return is one of the two ends of the range by the rules of the task (success or failure); gives a
    tighter bound."""
    site: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …")] = ()
    """For site-return and site-value: the context of a new site, one value for each context, or drawn, drawn:2, … for sites that
    are drawn. Its return is bounded from the test there alone, by the newest calibration (see `evarl calibrate`)."""
    predictor: PredictorName | None = None
    """For a site: use the newest calibration with this predictor, not the newest of all."""
    from_policies: tuple[str, ...] = ()
    """For new-policy: runs that were trained in the same way, whose final policies are the calibration policies."""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only print the SHA-256 of the protocol without nonce, for a verifier who then chooses a nonce."""
    test: Annotated[Effort, tyro.conf.arg(name="")] = Effort()


def run(arguments: list[str]) -> int:
    """Parse the arguments, issue the certificate and print it."""
    command = parse(Certify, arguments, "evarl certify", Certify(tyro.MISSING))

    from evarl.certificates.issue import issue_certificate, planned  # imports JAX

    more = {name: getattr(command, name) for name in ("claim", "delta", "epsilon", "two_valued", "site", "predictor")}
    asked = terms(command.test, **more)
    run: Any = outside_run(command) or command.run
    if command.plan:
        plan = planned(run, asked, command.seed, command.from_policies).protocol.plan
        print(json.dumps({"plan": plan}) if command.test.json else f"plan: {plan}")
        return 0
    issued = issue_certificate(
        run,
        asked,
        seed=command.seed,
        from_policies=command.from_policies,
        again=command.test.again,
        sign_with=command.test.sign,
        notify=progress,
    )
    if command.test.json:
        print(json.dumps(record(issued)))
    else:
        print_issued(issued, command.test.threshold)
    return 0 if issued.outcome in ("certified", "bounded") else 1


def outside_run(command: Certify) -> Any:
    """The directory of the policy of another package that the options name; None if there is none."""
    policy = given_policy(command)
    if policy is None:
        for name in ("world", "horizon", "discount"):
            if getattr(command, name) is not None:
                raise InputError(f"{name}: is that of the run; may be given with --policy-sb3 or --policy-import only")
        return None
    from evarl.evaluation.outside import outside_directory  # imports JAX

    place = command.world, command.horizon, command.discount
    return outside_directory(command.run, policy, *place)


def print_issued(issued: "Issued", threshold: float | None = None) -> None:
    """Print what is stated, with which confidence, and where the certificate is."""
    from evarl.certificates.conclusions import percent

    conclusion = issued.certificate.conclusion
    if issued.origin == "answers another threshold":
        print(f"{issued.outcome}: J ≥ {threshold:g}, by an earlier certificate; no rollouts were made:")
    elif issued.origin == "issued before":
        print("This test was made before and its certificate is valid; other terms or a nonce give new rollouts.")
    print(f"{conclusion.outcome}, at confidence {percent(issued.certificate.confidence)}:")
    print(plain_text(conclusion.statement))
    if issued.certificate.earlier:
        print(f"  (with {len(issued.certificate.earlier)} earlier tests of this claim, whose levels are counted)")
    for name, number in conclusion.numbers.items():
        print(f"  {plain_text(name)}: {number:.6g}")
    print(f"  rollouts: {conclusion.rollouts}")
    print(f"  head of the ledger: {ledger_head(issued)}")
    path, html = plain_text(str(issued.path)), plain_text(str(issued.html))
    again = " --policy-sb3 FILE (or --policy-import)" if issued.certificate.protocol.outside else ""
    print(f"\ncertificate in {path}, page in {html}; check it with: evarl verify {path}{again}")


def terms(effort: Effort, **more: Any) -> "Terms":
    """The terms of a test."""
    from evarl.certificates.protocol import Terms

    shared = {name: value for name, value in vars(effort).items() if name not in ("again", "sign", "json")}
    return Terms(**shared, **more)


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
    """SHA-256 of the newest entry of the run's ledger, which can be published."""
    from evarl.certificates import ledger

    return ledger.head(ledger.read(issued.path.parent.parent))


def progress(line: str) -> None:
    """Print progress over the last line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{plain_text(line)}", end="" if "rollouts" in line else "\n", file=sys.stderr, flush=True)
