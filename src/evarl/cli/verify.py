"""`evarl verify CERTIFICATE`: derive a certificate again and repeat its rollouts."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from evarl.cli.outside import OutsideOptions, only_one, sb3_policy
from evarl.cli.parsing import OpensRuns, parse
from evarl.cli.tables import notify
from evarl.errors import InputError, plain_text

if TYPE_CHECKING:
    from evarl.certificates.verify import Verification


LEDGER = "ledger.json"


@dataclass(frozen=True)
class Verify(OpensRuns, OutsideOptions):
    """Verify a certificate. Exit code 0: verified; 1: not verified, with the reasons; 2: the file is not a certificate, or was
    edited so that its checksum does not fit.

    Everything that can be derived is derived again. Then its rollouts are repeated, to the last bit on the platform that issued
    it; on other platforms, or without --nonce and --plan, fresh ones are made, so that it does not matter how the issuer chose
    random numbers.
    """

    certificate: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CERTIFICATE [CERTIFICATE …]")]
    """The JSON file, or several; the ledger is left out where it is among them."""
    run: str | None = None
    """Directory of its run, if it is not in that run's folder certificates."""
    nonce: str | None = None
    """The nonce that you gave to the issuer; with --plan no fresh rollouts are needed where bits can be compared."""
    plan: str | None = None
    """The plan (`evarl certify --plan`) that the issuer sent before you chose the nonce."""
    key: str | None = None
    """PEM file with the issuer's public key; without it nobody's signature is required."""
    head: str | None = None
    """SHA-256 of a ledger entry that was published before; the ledger must contain it."""
    from_policies: tuple[str, ...] = ()
    """For new-policy: the runs of the calibration policies."""
    policy_import: str | None = None
    """The policy of another package that the certificate is about, as module:name; or give it with --policy-sb3."""
    files_only: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Make no rollouts: check files, conclusion, page and ledger, and trust the issuer's numbers."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object for each certificate, in a line of its own, as the last lines of standard output."""


def run(arguments: list[str]) -> int:
    """Parse the arguments, verify and print."""
    command = parse(Verify, arguments, "evarl verify", Verify(tyro.MISSING))
    if not command.certificate:
        raise InputError("certificate: is missing; must be the JSON file of a certificate")
    only_one({"policy-sb3": command.policy_sb3, "policy-import": command.policy_import})
    given = command.certificate
    several = [one for one in given if Path(one).name != LEDGER] if len(given) > 1 else list(given)
    if len(several) < len(given):
        notify(f"note: {LEDGER} is the ledger of the certificates beside it, and is left out")
    verified = []
    for file in several:
        if len(several) > 1 and not command.json:
            print(f"{plain_text(file)}:")
        verified.append(_verified(command, file))
    return 0 if all(verified) else 1


def _verified(command: Verify, file: str) -> bool:
    """Verify one certificate and print what was found."""
    from evarl.certificates.verify import Reliance, verify_certificate  # imports JAX

    policy: Any = sb3_policy(command)
    if command.policy_import is not None:
        from evarl.certificates.certificate import load
        from evarl.evaluation.outside import imported_in

        protocol = load(Path(file))[0].protocol
        policy = imported_in(command.policy_import, protocol.world, protocol.horizon)
    reliance = Reliance(command.nonce, command.plan, command.key, command.head, command.from_policies, policy)
    found = verify_certificate(file, command.run, reliance, rerun=not command.files_only)
    if command.json:
        print(json.dumps(_record(found)))
    else:
        _print(found)
    return found.verified


def _record(found: "Verification") -> dict[str, object]:
    return {
        "verified": found.verified,
        "changed": found.changed,
        "notes": found.notes,
        "rollouts_made": found.made,
        "signed_by": None if found.signature is None else found.signature.key,
        "outcome": found.conclusion.outcome if found.verified else None,
        "statement": found.conclusion.statement if found.verified else None,
        "confidence": found.certificate.confidence if found.verified else None,
    }


def _print(found: "Verification") -> None:
    from evarl.certificates.conclusions import percent

    for note in found.notes:
        print(f"note: {plain_text(note)}", file=sys.stderr)
    for name, what in found.changed.items():
        print(plain_text(f"{name}: {what}"))
    if not found.verified:
        print("NOT verified: do not rely on this certificate")
        return
    made = {
        (): "no rollouts were made, and the issuer's numbers are trusted",
        ("same",): "the same rollouts were repeated, to the last bit",
        ("fresh",): "by fresh rollouts",
        ("same", "fresh"): "the same rollouts were repeated, to the last bit, and fresh ones were made",
    }[tuple(found.made)]
    print(f"verified ({made}): {found.conclusion.outcome}, at confidence {percent(found.certificate.confidence)}")
    print(plain_text(found.conclusion.statement))
    stated = found.certificate.conclusion.statement
    if found.conclusion.statement != stated:
        print("  This follows from the fresh rollouts and does not depend on how the issuer chose random numbers.")
        print(f"  The certificate, from its own rollouts, states: {plain_text(stated)}")
    if found.signature is not None:
        print(f"  signed by {found.signature.key}")
