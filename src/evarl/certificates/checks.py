"""Checks of a certificate without rollouts: everything that can be derived is derived again and compared."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate
from evarl.certificates.certified_policy import CertifiedPolicy, file_names
from evarl.certificates.claims import conclude
from evarl.certificates.evidence import PolicyTest
from evarl.certificates.page import page
from evarl.certificates.planning import make_protocol
from evarl.certificates.protocol import Protocol, terms_of
from evarl.errors import EvarlError, FileError
from evarl.storage.files import read_regular

Changes = dict[str, str]
"""What is not as it must be: what, and how it differs."""

CHANGED = "has been changed since the certificate was issued"
FIGURE = re.compile(rb'src="data:image/[a-z+]+;base64,[A-Za-z0-9+/=]*"')


def file_changes(protocol: Protocol, run: Path) -> Changes:
    """Files of the run that differ from those of the protocol; their names are derived from the seed, not the certificate."""
    found, known = {}, file_names(protocol.seed)
    for name, digest in protocol.files.items():
        if name not in known:
            found[f"protocol, files, {name}"] = "is not a file that a certificate refers to"
            continue
        try:
            if hashes.of_file(run / name) != digest:
                found[name] = CHANGED
        except FileError as error:
            found[name] = str(error).removeprefix(f"{run / name}: ")
    return found


def check(
    certificate: Certificate, path: Path, policy: CertifiedPolicy, calibration: Sequence[CertifiedPolicy]
) -> tuple[PolicyTest | None, Changes]:
    """The test that the terms of a certificate lead to in this run, and what in the certificate does not follow from it.

    The test is made by the function that makes it for the issuer, so that nothing that the run determines is taken from the
    certificate. Then conclusion, ledger and page are compared with what follows from protocol and evidence.
    """
    protocol, run = certificate.protocol, policy.run.path
    try:
        derived = make_protocol(policy, terms_of(protocol), calibration, protocol.candidates)
    except EvarlError as error:
        return None, {"protocol": f"cannot be that of this run ({error})"}
    found = _protocol_changes(protocol, derived)
    found = found or _conclusion_changes(certificate) | _ledger_changes(certificate, run)
    found = found or _page_changes(certificate, path)  # which can be drawn only if the rest is valid
    return PolicyTest(derived, policy, derived.key(), calibration), found


def _protocol_changes(stated: Protocol, derived: Protocol) -> Changes:
    then, now = stated.to_dict(), derived.to_dict()
    found = {
        name: CHANGED if name in stated.files else "is not part of the certificate"
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
        with np.errstate(all="ignore"):  # invented numbers may overflow
            found = conclude(certificate.protocol, evidence)
        if found != certificate.conclusion:
            return {"conclusion": "does not follow from the evidence in the certificate"}
    except (EvarlError, KeyError, ValueError, ArithmeticError, AssertionError) as error:
        return {"conclusion": f"cannot be drawn from the evidence in the certificate ({error!r:.200})"}
    return {}


def _page_changes(certificate: Certificate, path: Path) -> Changes:
    """The page is made again; its figure is compared only if the same code drew it, since libraries draw differently."""
    html = path.with_suffix(".html")
    if not os.path.lexists(html):  # the certificate was sent without its page
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
    return {html.name: f"{CHANGED}, or does not agree with the certificate"}


def _ledger_changes(certificate: Certificate, run: Path) -> Changes:
    """Differences in the registration, the certificate's own entry and the earlier tests that count."""
    name = ledger.LEDGER
    try:
        entries = ledger.read(run)
    except EvarlError as error:
        return {name: str(error)}
    own = ledger.find(entries, certificate.protocol)
    if own is None:
        return {name: "does not contain the protocol, which must be registered before the first rollout"}
    if ledger.place(own) != certificate.ledger:
        return {
            name: "contains the protocol in another place than the certificate states; entries were deleted or replaced"
        }
    if not any(entry.kind == "certificate" and entry.digest == certificate.digest() for entry in entries):
        return {name: "does not contain this certificate"}
    if certificate.protocol.candidates and not ledger.compared(entries[: own.number], certificate.protocol):
        return {name: "does not contain the comparison, which must be registered before the first rollout"}
    if ledger.earlier_tests(entries, certificate.protocol) != certificate.earlier:
        return {"earlier": "are not the earlier tests of this claim in the ledger; the confidence is another"}
    return {}
