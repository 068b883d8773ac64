"""Verifying certificates: derive again what they state, and make rollouts that the issuer could not choose."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evarl.certificates import hashes, ledger, signing
from evarl.certificates.certificate import Certificate, joint_confidence, load
from evarl.certificates.certified_policy import open_policy
from evarl.certificates.checks import Changes, check, file_changes, fresh_key, fresh_rollouts, obstacles, same_rollouts
from evarl.certificates.claims import CLAIMS
from evarl.certificates.conclusions import Conclusion, percent
from evarl.certificates.evidence import Notify, PolicyTest
from evarl.certificates.planning import calibration_of, calibration_runs
from evarl.certificates.protocol import Protocol
from evarl.certificates.signing import Signature
from evarl.errors import EvarlError, FileError, InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.outside import OutsideRun
from evarl.settings import checked
from evarl.storage.files import refuse_links_out


@dataclass(frozen=True)
class Reliance:
    """What a verifier knows from other sources than the certificate."""

    nonce: str | None = None
    """Text that the verifier chose after knowing the plan."""
    plan: str | None = None
    """SHA-256 of the protocol without the nonce, as printed by `evarl certify --plan` before the nonce was chosen."""
    key: str | Path | None = None
    """PEM file with the issuer's public key."""
    head: str | None = None
    """SHA-256 of a ledger entry that was published before."""
    from_policies: Sequence[str | Path] = ()
    """Runs of the calibration policies of the claim new-policy."""
    policy: Any = None
    """The outside policy that the certificate is about, or what `evarl.wrap_policy` recognises."""


@dataclass(frozen=True)
class Verification:
    """The result of verifying a certificate."""

    path: Path
    certificate: Certificate
    signature: Signature | None
    changed: Changes
    """What is not as it must be: what, and how it differs."""
    conclusion: Conclusion
    """The conclusion that is confirmed if nothing has changed; no stronger than that of fresh rollouts, if there were any."""
    made: list[str] = field(default_factory=list)
    """The rollouts that were made: "same", "fresh"."""
    notes: list[str] = field(default_factory=list)
    """Differences that do not make the certificate invalid."""

    @property
    def verified(self) -> bool:
        """Whether nothing has changed."""
        return not self.changed


@checked
def verify_certificate(
    path: str | Path,
    run: str | Path | None = None,
    reliance: Reliance | None = None,
    *,
    rerun: bool = True,
    key: np.ndarray | None = None,
    notify: Notify = lambda line: None,
) -> Verification:
    """Verify a certificate against its run.

    Protocol, conclusion, confidence and page are derived again and compared. Then rollouts are made. On the platform of the
    issuer the same ones are repeated and must be equal to the last bit. On any other platform, and if the verifier did not
    choose the nonce after knowing the plan, fresh ones are made, and what is confirmed is what both show.

    The run is by default the one whose folder certificates it is in. Without `rerun` no rollouts are made, and the issuer's
    numbers are trusted. `key` is that of the fresh rollouts, in JAX's old style, and comes from the operating system unless
    given; `notify` is called with lines about progress.
    """
    path, reliance = Path(path), reliance or Reliance()
    certificate, signature = load(path)
    protocol, folder = certificate.protocol, Path(run) if run is not None else _run_of(path)
    refuse_links_out(folder)
    changed = _signature_changes(certificate, signature, reliance) | _reliance_changes(protocol, folder, reliance)
    changed |= file_changes(protocol, folder)
    found = Verification(
        path, certificate, signature, changed, certificate.conclusion, [], _notes(certificate, path, folder)
    )
    if changed:
        return found
    keep_compiled_programs()
    test, differing = _check(certificate, path, folder, reliance)
    changed |= differing
    if changed or test is None or not rerun:
        return found
    tested = test.policy.run
    reasons = obstacles(certificate) + (tested.other_versions() if isinstance(tested, OutsideRun) else [])
    found.notes.extend(f"bits are not compared: {reason}" for reason in reasons)
    if not reasons:
        changed |= same_rollouts(certificate, test, notify)
        found.made.append("same")
    chosen = reliance.nonce is None or reliance.plan is None or protocol.site  # a site is named after the nonce
    if (reasons or chosen) and not changed:
        replay = fresh_rollouts(certificate, test, fresh_key() if key is None else key, notify)
        changed |= replay.changed
        found.made.append("fresh")
        return dataclasses.replace(found, conclusion=replay.conclusion)
    return found


def _check(certificate: Certificate, path: Path, run: Path, reliance: Reliance) -> tuple[PolicyTest | None, Changes]:
    """The test of a certificate in its run, and what does not follow from it."""
    protocol, from_policies = certificate.protocol, reliance.from_policies
    if CLAIMS[protocol.claim].other_policies and not from_policies:
        raise InputError(
            f"from-policies: is missing; {protocol.claim} is verified with the runs of its calibration policies"
        )
    try:
        own = run if reliance.policy is None else OutsideRun.open(run, reliance.policy)
        policy = open_policy(own, protocol.seed)
        calibration = calibration_of(policy, calibration_runs(from_policies))
    except FileError as error:
        return None, {"run": str(error)}
    return check(certificate, path, policy, calibration)


def _run_of(path: Path) -> Path:
    folder = path.resolve().parent
    if folder.name != ledger.FOLDER:
        raise InputError(f"{path}: is not in the folder {ledger.FOLDER} of a run; give its run with --run")
    return folder.parent


def _signature_changes(certificate: Certificate, signature: Signature | None, reliance: Reliance) -> Changes:
    if signature is not None and not signing.is_valid(signature, certificate.digest()):
        return {"signature": "does not fit the certificate"}
    if reliance.key is None:
        return {}
    if signature is None:
        return {"signature": "is missing; the certificate is not signed"}
    if signature.key != signing.public_key(Path(reliance.key)):
        return {"signature": f"is of another key ({signature.key[:16]}…) than the one in {reliance.key}"}
    return {}


def _reliance_changes(protocol: Protocol, run: Path, reliance: Reliance) -> Changes:
    found = {}
    if reliance.nonce == "":
        raise InputError("nonce: is empty; must be the text that was given to the issuer, or be left out")
    if reliance.plan is not None and reliance.plan != protocol.plan:
        found["plan"] = f"is {protocol.plan:.16}… in the certificate; expected {reliance.plan:.16}…"
    if reliance.nonce is not None and reliance.nonce != protocol.nonce:
        found["nonce"] = f"is {protocol.nonce!r:.80} in the certificate; expected {reliance.nonce!r:.80}"
    if reliance.head is not None:
        try:
            entries = ledger.read(run)
        except EvarlError as error:
            return found | {ledger.LEDGER: str(error)}
        if reliance.head not in [ledger.NOTHING, *(entry.hash() for entry in entries)]:
            found[ledger.LEDGER] = f"does not contain the published head {reliance.head:.16}; entries were replaced"
    return found


def _notes(certificate: Certificate, path: Path, run: Path) -> list[str]:
    """What a verifier should know, although it does not make the certificate invalid."""
    protocol, found = certificate.protocol, []
    if not path.with_suffix(".html").exists():
        found.append("there is no page beside the certificate; only the certificate itself is verified")
    elif hashes.of_code() != certificate.code:
        found.append(
            "the figure on the page is not compared, since it was drawn by other code; the rest of the page is"
        )
    if CLAIMS[protocol.claim].other_policies:
        found.append(
            f"{protocol.claim} assumes that all policies and evaluators are results of the configured training"
        )
    try:
        tests = ledger.all_tests(ledger.read(run), protocol)
    except EvarlError:  # reported by the checks
        return found
    counted = {protocol.hash(), protocol.comparison, *(one.digest for one in certificate.earlier)}
    later = [one.error for one in tests if one.digest not in counted]
    if later:
        joint = percent(joint_confidence([1 - certificate.confidence, *later]))
        found.append(
            f"later tests of {protocol.claim} for this policy: {len(later)}; the stated confidence counts only earlier ones, and "
            f"that of all of them together is {joint}"
        )
    return found
