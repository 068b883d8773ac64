"""Issuing certificates: fix the protocol, register it, make the rollouts, conclude."""

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Attempt, Certificate, Place, load, save
from evarl.certificates.certified_policy import CertifiedPolicy, open_policy
from evarl.certificates.checks import check, obstacles, platform_here, same_rollouts
from evarl.certificates.claims import CLAIMS, conclude, gather
from evarl.certificates.conclusions import Conclusion, Evidence, Outcome
from evarl.certificates.evidence import Notify, PolicyTest
from evarl.certificates.page import page
from evarl.certificates.planning import calibration_of, calibration_runs, make_protocol
from evarl.certificates.protocol import Protocol, Terms, terms_of
from evarl.certificates.signing import load_private_key, sign
from evarl.errors import FileError, InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.provenance import machine
from evarl.runs.run import Run
from evarl.settings import checked
from evarl.storage.files import write_bytes

SAME = ("claim", "files", "nonce", "low", "high", "two_valued", "world_sha256", "site")
"""Fields in which two protocols must agree for the certificate of one to answer the threshold of the other."""


@dataclass(frozen=True)
class Issued:
    """A certificate and its file."""

    certificate: Certificate
    path: Path
    outcome: Outcome
    """The certificate's own outcome, or what follows from it for another threshold."""
    origin: Literal["new", "issued before", "answers another threshold"] = "new"

    @property
    def html(self) -> Path:
        """The page of the certificate."""
        return self.path.with_suffix(".html")


@checked
def certify(
    run: Run | str | Path,
    terms: Terms | None = None,
    *,
    seed: int | None = None,
    from_policies: Sequence[str | Path] = (),
    again: bool = False,
    sign_with: str | Path | None = None,
    notify: Notify = lambda line: None,
) -> Issued:
    """Test a claim about the final policy of a seed of a run; the certificate is written to the run's folder certificates.

    The same terms give the same rollouts, so a certificate that was issued is not made again, and an interrupted test is
    continued. A threshold that follows from an earlier certificate for the policy is answered from it.

    A policy that this package did not train is certified in a directory of its own, `OutsideRun.create(...)`. Otherwise the
    policy is that of the run's first seed unless given, and the terms are a lower bound on J from 1 000 rollouts.
    Terms with a site use the newest finished calibration of sites that agrees with them. `from_policies` are the runs of the
    calibration policies of the claim new-policy; `again` allows a further test of a claim
    that was tested before, and the levels of all tests add up; `sign_with` is the PEM file of an Ed25519 private key; `notify` is
    called with lines about progress.
    """
    keep_compiled_programs()
    test = planned(run, terms or Terms(), seed, from_policies)
    if not again and (standing := answered(test.policy, test.protocol, notify)) is not None:
        return standing
    return fulfil(test, again, sign_with, notify)


issue_certificate = certify
"""Another name of `certify`."""


def planned(run: Run | str | Path, terms: Terms, seed: int | None, from_policies: Sequence[str | Path]) -> PolicyTest:
    """The test of these terms; nothing is registered, and no rollouts are made."""
    policy = open_policy(run, seed)
    if terms.site and not terms.sites and not from_policies:
        return _planned_site(policy, terms)
    calibration = calibration_of(policy, calibration_runs(from_policies))
    if from_policies and not calibration:
        raise InputError("from-policies: contain only the policy to be certified; must be runs with other seeds")
    protocol = make_protocol(policy, terms, calibration)
    return PolicyTest(protocol, policy, calibration)


def _planned_site(policy: CertifiedPolicy, terms: Terms) -> PolicyTest:
    """The test of a site with the newest finished calibration that agrees with the terms, and with its evidence."""
    terms = dataclasses.replace(terms, claim="site-return") if terms.claim == "mean-return" else terms
    run = policy.run.path
    if not CLAIMS[terms.claim].about_sites or not policy.world.contexts:
        make_protocol(policy, terms)  # says why it is refused
    policy.check_predictor(terms.predictor or "value")
    begun = [one.protocol for one in ledger.read(run) if one.protocol is not None]
    found = [one for one in begun if (one.claim, one.seed, one.site) == (terms.claim, policy.seed, ())]
    finished = [one for one in found if _agrees(one, terms) and ledger.path_of(run, one).exists()]
    if not finished:
        more = "" if terms.claim == "site-return" else f" --claim {terms.claim}"
        more += "" if terms.predictor is None else f" --predictor {terms.predictor}"
        raise InputError(
            f"site: {terms.claim} of seed {policy.seed} has no finished calibration with alpha {terms.alpha:g} and these terms; "
            f"first evarl calibrate {run} --sites N{more}"
        )
    calibration = finished[-1]
    protocol = make_protocol(
        policy, dataclasses.replace(terms_of(calibration), site=terms.site, threshold=terms.threshold)
    )
    path = ledger.path_of(run, calibration)
    certificate, _ = load(path)
    _, changed = check(certificate, path, policy, ())
    if certificate.protocol != calibration:
        changed["protocol"] = "is that of another test"
    if not changed and (reasons := obstacles(certificate)):
        changed["platform"] = f"its rollouts cannot be compared here ({reasons[0]})"
    if changed:
        name, what = next(iter(changed.items()))
        raise FileError(f"{path}: is not used as calibration; {name}: {what}. See evarl verify")
    return PolicyTest(protocol, policy, measured={name: list(one) for name, one in certificate.evidence.items()})


def _agrees(calibration: Protocol, terms: Terms) -> bool:
    """Whether a calibration has the level that terms ask for and whatever else they give."""
    stated = terms_of(calibration)
    given = [
        name for name in ("delta", "rollouts", "range", "nonce", "predictor") if getattr(terms, name) not in (None, "")
    ]
    return all(getattr(terms, name) == getattr(stated, name) for name in ["alpha", *given])


def fulfil(test: PolicyTest, again: bool, sign_with: str | Path | None, notify: Notify) -> Issued:
    """Carry out a test, or return the certificate that it has led to before."""
    run, protocol = test.policy.run.path, test.protocol
    path = ledger.path_of(run, protocol)
    if sign_with is not None:
        load_private_key(Path(sign_with))  # refused now rather than after the rollouts
    if path.exists():
        certificate = _issued_before(path, test, notify)
        if sign_with is not None:
            save(path, certificate, sign(certificate.digest(), Path(sign_with)))
        return Issued(certificate, path, certificate.conclusion.outcome, "issued before")
    entry, earlier = ledger.register(run, protocol, again)
    evidence = gather(test, notify)
    if changed := [name for name, digest in test.policy.files().items() if protocol.files.get(name) != digest]:
        raise InputError(f"{run}: {', '.join(changed)} changed while the policy was tested; nothing is certified")
    try:
        conclusion = conclude(protocol, evidence)
    except InputError as error:
        raise InputError(f"{error}. This test was begun, and counts against later ones") from error
    certificate, text = _certificate(protocol, evidence, conclusion, earlier, ledger.place(entry))
    digest = certificate.digest()
    signature = None if sign_with is None else sign(digest, Path(sign_with))
    ledger.enter_certificate(run, digest)
    write_bytes(path.with_suffix(".html"), text)
    save(path, certificate, signature)
    return Issued(certificate, path, certificate.conclusion.outcome)


def _certificate(
    protocol: Protocol, evidence: Evidence, conclusion: Conclusion, earlier: tuple[Attempt, ...], place: Place
) -> tuple[Certificate, bytes]:
    """A new certificate and its page."""
    without_page = Certificate(
        conclusion=conclusion,
        protocol=protocol,
        protocol_sha256=protocol.hash(),
        evidence={name: tuple(column) for name, column in evidence.items()},
        earlier=earlier,
        ledger=place,
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        code=hashes.of_code(),
        machine=machine(),
        platform=platform_here(),
        page_sha256="",
    )
    text = page(without_page, ledger.file_name(protocol)).encode()
    return dataclasses.replace(without_page, page_sha256=hashes.of_bytes(text)), text


def answered(policy: CertifiedPolicy, protocol: Protocol, notify: Notify) -> Issued | None:
    """An earlier certificate from whose bounds of J the threshold of a protocol follows, if there is one.

    It must be about the same policy under the same assumptions, at the same level or a stricter one, and from this platform.
    """
    if protocol.threshold is None or not (CLAIMS[protocol.claim].own_rollouts or protocol.site):
        return None
    run = policy.run.path
    for entry in ledger.read(run):
        other = entry.protocol
        if other is None or other.hash() == protocol.hash() or other.candidates:
            continue
        path = ledger.path_of(run, other)
        if any(getattr(other, name) != getattr(protocol, name) for name in SAME) or not path.exists():
            continue
        if protocol.site and other.calibrating != protocol.calibrating:
            continue
        certificate, _ = load(path)
        outcome = implied(certificate.conclusion, other, protocol.threshold)
        if outcome is None or certificate.confidence < 1 - protocol.alpha or obstacles(certificate):
            continue
        kept = _issued_before(path, PolicyTest(other, policy), notify)
        return Issued(kept, path, outcome, "answers another threshold")
    return None


def implied(conclusion: Conclusion, protocol: Protocol, threshold: float) -> Outcome | None:
    """Whether J ≥ threshold is certified or refuted by the bounds of a certificate; None if neither follows."""
    if conclusion.bound is not None and conclusion.bound >= threshold:
        return "certified"
    upper = protocol.threshold if conclusion.outcome == "refuted" else conclusion.upper
    return "refuted" if upper is not None and upper < threshold else None


def _issued_before(path: Path, asked: PolicyTest, notify: Notify) -> Certificate:
    """A certificate that was issued before, after it was verified: files can be edited."""
    certificate, _ = load(path)
    test, changed = check(certificate, path, asked.policy, asked.calibration)
    if certificate.protocol_sha256 != asked.protocol.hash():
        changed["protocol"] = "is that of another test"
    if not changed and (reasons := obstacles(certificate)):
        changed["platform"] = f"its rollouts cannot be compared here ({reasons[0]})"
    if test is not None and not changed:
        notify("a certificate of this test was issued before; its rollouts are repeated")
        changed |= same_rollouts(certificate, test, notify)
    if changed:
        name, what = next(iter(changed.items()))
        raise FileError(
            f"{path}: is not returned; {name}: {what}. See evarl verify; if you move the file away, the same command tests again"
        )
    return certificate
