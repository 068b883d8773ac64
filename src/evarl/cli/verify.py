"""`evarl verify CERTIFICATE`: is it what was issued, is what it binds unchanged, and do the rollouts give it again?"""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from evarl.cli.parsing import OpensRuns, parse
from evarl.errors import plain_text


@dataclass(frozen=True)
class Verify(OpensRuns):
    """Check a certificate. Exit code 0: verified; 1: something has changed, and is named; 2: it is itself damaged."""

    certificate: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CERTIFICATE")]
    """The JSON file."""
    run: str | None = None
    """Directory of the run it is for, if it does not lie in that run's folder certificates."""
    files_only: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Check files and numbers only; without this the rollouts are made again from the certificate's own random numbers."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object as the last line of standard output."""


def run(arguments: list[str]) -> int:
    """Parse the arguments, verify and print."""
    command = parse(Verify, arguments, "evarl verify", Verify(tyro.MISSING))

    from evarl.certificates.conclusions import percent
    from evarl.certificates.verify import verify_certificate  # imports JAX

    found = verify_certificate(command.certificate, command.run, rerun=not command.files_only)
    if command.json:
        said = {"verified": found.verified, "changed": found.changed, "notes": found.notes}
        print(json.dumps(said | {"statement": found.certificate.conclusion.statement}))
        return 0 if found.verified else 1
    for note in found.notes:
        print(f"note: {plain_text(note)}", file=sys.stderr)
    for name, what in found.changed.items():
        print(plain_text(f"{name}: {what}"))
    conclusion = found.certificate.conclusion
    if found.verified:
        how = "the same rollouts were made again" if not command.files_only else "nothing was rolled out again"
        print(f"verified ({how}): {conclusion.outcome}, at confidence {percent(found.certificate.confidence)}")
        print(plain_text(conclusion.statement))
    else:
        print("NOT verified: nothing is promised any more")
    return 0 if found.verified else 1
