"""Checks of a certificate that need no rollouts: everything in it that can be derived is derived again and compared."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate
from evarl.certificates.conclusions import conclude
from evarl.certificates.evidence import PolicyTest
from evarl.certificates.page import page
from evarl.certificates.planning import make_protocol, terms_of
from evarl.certificates.protocol import Protocol
from evarl.certificates.subject import Subject, file_names
from evarl.errors import EvarlError, FileError
from evarl.storage.files import read_regular

Changes = dict[str, str]
"""What differs from what it should be, by name, and how."""

CHANGED = "has been changed since the certificate was issued"
FIGURE = re.compile(rb'src="data:image/[a-z+]+;base64,[A-Za-z0-9+/=]*"')


def file_changes(protocol: Protocol, run: Path) -> Changes:
    """Files of the run that are not those the protocol binds. Names come from the seed, never from the certificate."""
    found, known = {}, file_names(protocol.seed)
    for name, digest in protocol.files.items():
        if name not in known:
            found[f"protocol, files, {name}"] = "is no file that a certificate binds"
            continue
        try:
            if hashes.of_file(run / name) != digest:
                found[name] = CHANGED
        except FileError as error:
            found[name] = str(error).removeprefix(f"{run / name}: ")
    return found


def derive_test(
    protocol: Protocol, subject: Subject, calibration: Sequence[Subject]
) -> tuple[PolicyTest | None, Changes]:
    """The test that the terms of a protocol lead to in this run, and the fields in which the protocol is not that of this test.

    The test is made by the function that makes it for the issuer, so nothing that the run decides is taken from the certificate.
    """
    try:
        derived = make_protocol(subject, terms_of(protocol), calibration, protocol.candidates)
    except EvarlError as error:
        return None, {"protocol": f"cannot be that of this run ({error})"}
    return PolicyTest(derived, subject, derived.key(), calibration), _protocol_changes(protocol, derived)


def check(certificate: Certificate, path: Path, run: Path) -> Changes:
    """What in a certificate does not follow from its protocol and evidence, or does not agree with its page and ledger."""
    found = _conclusion_changes(certificate) | _ledger_changes(certificate, run)
    return found or _page_changes(certificate, path)  # a page is drawn only of what makes sense


def _protocol_changes(stated: Protocol, derived: Protocol) -> Changes:
    then, now = stated.to_dict(), derived.to_dict()
    found = {
        name: CHANGED if name in stated.files else "is not bound by the certificate"
        for name in sorted(stated.files.keys() | derived.files.keys())
        if stated.files.get(name) != derived.files.get(name)
    }
    for name in then.keys() - {"files"}:
        if then[name] != now[name]:
            found[f"protocol, {name}"] = f"is {then[name]!r:.80} in the certificate; the run gives {now[name]!r:.80}"
    if stated.candidates and stated.policy not in stated.candidates:
        found["protocol, candidates"] = "do not include the policy that is certified"
    if not found and stated.hash() != derived.hash():
        found["protocol"] = "is not written as this version writes it"
    return found


def _conclusion_changes(certificate: Certificate) -> Changes:
    evidence = {name: list(column) for name, column in certificate.evidence.items()}
    try:
        with np.errstate(all="ignore"):  # of numbers that no test gives
            found = conclude(certificate.protocol, evidence)
        if found != certificate.conclusion:
            return {"conclusion": "does not follow from the evidence in the certificate"}
    except (EvarlError, KeyError, ValueError, ArithmeticError, AssertionError) as error:
        return {"conclusion": f"cannot be drawn from the evidence in the certificate ({error!r:.200})"}
    return {}


def _page_changes(certificate: Certificate, path: Path) -> Changes:
    """The page is drawn again. Its figure is compared where the same code draws it, since libraries draw differently."""
    html = path.with_suffix(".html")
    if not os.path.lexists(html):  # sent on without its page, which is for people
        return {}
    try:
        kept = read_regular(html, hashes.LONGEST)
    except EvarlError as error:
        return {html.name: str(error).removeprefix(f"{html}: ")}
    again = page(certificate, path.name).encode()
    same_code = hashes.of_code() == certificate.code
    if hashes.of_bytes(kept) == certificate.page_sha256 and (
        kept == again if same_code else FIGURE.sub(b"", kept) == FIGURE.sub(b"", again)
    ):
        return {}
    return {html.name: f"{CHANGED}, or does not say what the certificate says"}


def _ledger_changes(certificate: Certificate, run: Path) -> Changes:
    """Registration before the rollouts, the certificate's own entry, and which earlier tests count."""
    name = ledger.LEDGER
    try:
        entries = ledger.read(run)
    except EvarlError as error:
        return {name: str(error)}
    own = ledger.find(entries, certificate.protocol)
    if own is None:
        return {name: "does not have the protocol, which must be registered before the first rollout"}
    if ledger.place(own) != certificate.ledger:
        return {name: "has the protocol in another place than the certificate says; entries were deleted or replaced"}
    if not any(entry.kind == "certificate" and entry.digest == certificate.digest() for entry in entries):
        return {name: "does not have this certificate"}
    if certificate.protocol.candidates and not ledger.compared(entries[: own.number], certificate.protocol):
        return {name: "does not have the comparison, which must be registered before the first rollout"}
    if ledger.earlier_tests(entries, certificate.protocol) != certificate.earlier:
        return {"earlier": "are not the earlier tests of this claim that the ledger has; the confidence is another"}
    return {}
