"""`evarl calibrate RUN --sites N`: draw sites, test and measure a policy on each, for bounds on new sites."""

import json
from dataclasses import dataclass

import tyro

from evarl.certificates.names import PredictorName, SiteClaimName
from evarl.cli.certify import print_issued, progress, record
from evarl.cli.parsing import Flag, PrintsResults, RunPath, parse
from evarl.errors import InputError, plain_text


@dataclass(frozen=True)
class Calibrate(PrintsResults):
    """Draw sites like those of training, and on each take the test and measure what the policy returns. The result is a
    certificate about sites that are drawn in the same way, and `evarl certify RUN --site` uses it for single sites.

    Exit code 0: calibrated; 2: invalid input.
    """

    run: RunPath
    """Directory of a finished run that was trained with --context and --beta."""
    sites: int
    """Number of calibration sites; at least 19 for site-return at alpha 0.05, and 24 for site-value."""
    claim: SiteClaimName = "site-return"
    """What will be bounded on a new site: the mean return of as many episodes, or its expectation."""
    predictor: PredictorName = "value"
    """What the margin is added to: the value that the evaluator predicts from the test, or a lower quantile of it, with which a
    clear test gives a tight bound (for runs that were trained with --evaluator.lower-quantile)."""
    seed: int | None = None
    """Seed of the policy and its evaluator; by default the first of the run."""
    rollouts: int | None = None
    """Episodes on each site, 100 unless given."""
    alpha: float = 0.05
    """Probability that the return on a new site is below its bound."""
    delta: float | None = None
    """If given: alpha is the share of new sites that may be below their bounds, and delta the probability that it is larger."""
    range: tuple[float, float] | None = None
    """For site-value: least and greatest possible return by the rules of the task; the world's own unless given."""
    again: Flag = False
    """Calibrate a policy that was calibrated before; the levels of all calibrations add up."""
    nonce: str = ""
    """Text that somebody other than the issuer chose after the policy was fixed; all random numbers depend on it."""
    sign: str | None = None
    """Sign the certificate with the Ed25519 private key in this PEM file (see `evarl keygen`)."""
    plan: Flag = False
    """Only print the SHA-256 of the protocol without nonce, for a verifier who then chooses a nonce."""


def run(arguments: list[str]) -> int:
    """Parse the arguments, calibrate and print the certificate."""
    command = parse(Calibrate, arguments, "evarl calibrate", Calibrate(tyro.MISSING, tyro.MISSING))
    if command.sites < 1:
        raise InputError(f"sites: {command.sites} is not allowed; must be a number of calibration sites, such as 100")

    from evarl.certificates.issue import issue_certificate, planned  # imports JAX
    from evarl.certificates.protocol import Terms

    names = ("claim", "alpha", "delta", "range", "rollouts", "nonce", "sites", "predictor")
    terms = Terms(**{name: getattr(command, name) for name in names})
    if command.plan:
        plan = planned(command.run, terms, command.seed, ()).protocol.plan
        print(json.dumps({"plan": plan}) if command.json else f"plan: {plan}")
        return 0
    issued = issue_certificate(
        command.run, terms, seed=command.seed, again=command.again, sign_with=command.sign, notify=progress
    )
    if command.json:
        print(json.dumps(record(issued)))
    else:
        print_issued(issued)
        more = (f" --alpha {command.alpha:g}" if command.alpha != 0.05 else "") + (
            f" --claim {command.claim}" if command.claim != "site-return" else ""
        )
        print(f"a new site: evarl certify {plain_text(command.run)} --site NAME=VALUE{more}")
    return 0
