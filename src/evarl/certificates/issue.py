"""Issue certificates: fix the protocol, register it, roll out, conclude."""

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate, load, save
from evarl.certificates.checks import check, derive_test
from evarl.certificates.conclusions import Conclusion, Outcome, conclude
from evarl.certificates.evidence import PolicyTest, Say, gather
from evarl.certificates.page import page
from evarl.certificates.planning import Terms, calibration_of, make_protocol, run_directory
from evarl.certificates.platform import platform_here
from evarl.certificates.protocol import Protocol
from evarl.certificates.replay import obstacles, same_rollouts
from evarl.certificates.signing import load_private_key, sign
from evarl.certificates.subject import Subject, open_subject
from evarl.errors import FileError, InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.provenance import machine
from evarl.runs.run import Run
from evarl.storage.files import write_bytes

SAME = ("claim", "files", "nonce", "low", "high", "two_valued", "world_sha256")
"""In what a protocol must agree with another for its certificate to answer the other's threshold."""


@dataclass(frozen=True)
class Issued:
    """A certificate and where it is."""

    certificate: Certificate
    path: Path
    outcome: Outcome
    """Of what was asked for: the certificate's own, or what follows from it for another threshold."""
    origin: Literal["new", "issued before", "answers another threshold"] = "new"

    @property
    def html(self) -> Path:
        """The page for people."""
        return self.path.with_suffix(".html")


def issue_certificate(
    run: Run | str | Path,
    terms: Terms | None = None,
    *,
    seed: int | None = None,
    from_policies: Sequence[str | Path] = (),
    again: bool = False,
    sign_with: str | Path | None = None,
    say: Say = lambda line: None,
) -> Issued:
    """Test a claim about the final policy of a seed of a run; the certificate goes into the run's folder certificates.

    The same terms give the same rollouts, so a certificate that was issued is not made again, and a test that was killed goes
    on. A threshold that an earlier certificate for the policy already answers is answered from it.

    Args:
        run: a finished run.
        terms: what is to be shown; by default a lower bound of J from 1 000 rollouts.
        seed: whose policy; by default the first.
        from_policies: runs whose final policies C5 learns from.
        again: allow a further test of a claim that was tested before; the levels of all tests add up.
        sign_with: PEM file of an Ed25519 private key.
        say: told about progress.
    """
    keep_compiled_programs()
    test = planned(run, terms or Terms(), seed, from_policies)
    if not again and (standing := answered(test.subject, test.protocol, say)) is not None:
        return standing
    return fulfil(test, again, sign_with, say)


def planned(run: Run | str | Path, terms: Terms, seed: int | None, from_policies: Sequence[str | Path]) -> PolicyTest:
    """The test that these terms lead to; nothing is registered or rolled out."""
    subject = open_subject(run, seed)
    calibration = calibration_of(subject, [Run.load(run_directory(one)) for one in from_policies])
    if from_policies and not calibration:
        raise InputError("from-policies: hold no policy but the one to be certified; want runs with other seeds")
    protocol = make_protocol(subject, terms, calibration)
    return PolicyTest(protocol, subject, protocol.key(), calibration)


def fulfil(test: PolicyTest, again: bool, sign_with: str | Path | None, say: Say) -> Issued:
    """Carry out a protocol that is fixed, or give what it has led to before."""
    run, protocol = test.subject.run.path, test.protocol
    path = ledger.path_of(run, protocol)
    if sign_with is not None:
        load_private_key(Path(sign_with))  # refused now rather than after the rollouts
    if path.exists():
        certificate = _standing(path, protocol, test.subject, test.calibration, say)
        if sign_with is not None:
            save(path, certificate, sign(certificate.digest(), Path(sign_with)))
        return Issued(certificate, path, certificate.conclusion.outcome, "issued before")
    entry, earlier = ledger.register(run, protocol, again)
    evidence = gather(test, say)
    if changed := [name for name, digest in test.subject.files().items() if protocol.files.get(name) != digest]:
        raise InputError(f"{run}: {', '.join(changed)} changed while the policy was tested; nothing is certified")
    try:
        conclusion = conclude(protocol, evidence)
    except InputError as error:
        raise InputError(f"{error}. This test was begun, and counts against later ones") from error
    without_page = Certificate(
        conclusion=conclusion,
        protocol=protocol,
        protocol_sha256=protocol.hash(),
        evidence={name: tuple(column) for name, column in evidence.items()},
        earlier=earlier,
        ledger=ledger.place(entry),
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        code=hashes.of_code(),
        machine=machine(),
        platform=platform_here(),
        page_sha256="",
    )
    text = page(without_page, path.name).encode()
    certificate = dataclasses.replace(without_page, page_sha256=hashes.of_bytes(text))
    digest = certificate.digest()
    signature = None if sign_with is None else sign(digest, Path(sign_with))
    ledger.enter_certificate(run, digest)
    write_bytes(path.with_suffix(".html"), text)
    save(path, certificate, signature)
    return Issued(certificate, path, certificate.conclusion.outcome)


def answered(subject: Subject, protocol: Protocol, say: Say) -> Issued | None:
    """An earlier certificate from whose bounds of J the threshold of a protocol follows, if there is one.

    It must be about the same policy with the same assumptions, at the same level or a stricter one, and from this platform.
    """
    if protocol.claim != "J" or protocol.threshold is None:
        return None
    run = subject.run.path
    for entry in ledger.read(run):
        other = entry.protocol
        if other is None or other.hash() == protocol.hash() or other.candidates:
            continue
        path = ledger.path_of(run, other)
        if any(getattr(other, name) != getattr(protocol, name) for name in SAME) or not path.exists():
            continue
        certificate, _ = load(path)
        outcome = implied(certificate.conclusion, other, protocol.threshold)
        if outcome is None or certificate.confidence < 1 - protocol.alpha or obstacles(certificate):
            continue
        return Issued(_standing(path, other, subject, (), say), path, outcome, "answers another threshold")
    return None


def implied(conclusion: Conclusion, protocol: Protocol, threshold: float) -> Outcome | None:
    """Whether J ≥ threshold is certified or refuted by what a certificate of J states; None where it says neither."""
    if conclusion.bound is not None and conclusion.bound >= threshold:
        return "certified"
    upper = protocol.threshold if conclusion.outcome == "refuted" else conclusion.upper
    return "refuted" if upper is not None and upper < threshold else None


def _standing(
    path: Path, protocol: Protocol, subject: Subject, calibration: Sequence[Subject], say: Say
) -> Certificate:
    """A certificate that was issued before, after verifying it: files can be edited."""
    certificate, _ = load(path)
    test, changed = derive_test(protocol, subject, calibration)
    if certificate.protocol_sha256 != protocol.hash():
        changed["protocol"] = "is that of another test"
    if not changed:
        changed |= check(certificate, path, subject.run.path)
    if not changed and (reasons := obstacles(certificate)):
        changed["platform"] = f"its rollouts cannot be compared here ({reasons[0]})"
    if test is not None and not changed:
        say("a certificate of this test was issued before; its rollouts are made again")
        changed |= same_rollouts(certificate, test, say)
    if changed:
        name, what = next(iter(changed.items()))
        raise FileError(
            f"{path}: is not handed on; {name}: {what}. See evarl verify; if you move it away, the same command tests again"
        )
    return certificate
