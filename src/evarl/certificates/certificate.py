"""The certificate as a file: JSON with a checksum and an optional signature. No JAX."""

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evarl.certificates import hashes
from evarl.certificates.conclusions import Conclusion
from evarl.certificates.protocol import Protocol
from evarl.certificates.signing import Signature
from evarl.errors import FileError
from evarl.storage.files import CONTROL, write_bytes
from evarl.storage.plain import as_declared, read_json

FORMAT = 5
"""Number of the format of certificates and ledgers."""
BESIDE = ("sha256", "signature")
"""Fields of the file that are not part of the checksum."""


@dataclass(frozen=True)
class Attempt:
    """An earlier test or comparison, whose level is subtracted from the confidence of a later one."""

    digest: str
    """SHA-256 of its protocol, or of the comparison."""
    error: float
    """The probability that its conclusion is false."""


@dataclass(frozen=True)
class Place:
    """The place of an entry in the ledger."""

    number: int
    sha256: str


@dataclass(frozen=True)
class Certificate:
    """A conclusion, and everything that is needed to derive it again."""

    conclusion: Conclusion
    protocol: Protocol
    protocol_sha256: str
    evidence: dict[str, tuple[float, ...]]
    earlier: tuple[Attempt, ...]
    """Tests of this claim about this policy that were begun before; the levels of all of them add up."""
    ledger: Place
    """The entry that registered the protocol before the first rollout."""
    issued: str
    """Time in UTC."""
    code: hashes.Code
    machine: dict[str, Any]
    platform: dict[str, str]
    """What the bits of results depend on: on an equal platform the same rollouts can be repeated."""
    page_sha256: str
    """SHA-256 of the page beside it."""
    format: str = f"evarl certificate {FORMAT}"

    @property
    def confidence(self) -> float:
        """The confidence that this and all earlier tests of the claim are right."""
        return joint_confidence([self.protocol.error, *(one.error for one in self.earlier)])

    def digest(self) -> str:
        """SHA-256 of all fields, to which the file's checksum, the ledger and a signature refer."""
        return hashes.of_data(dataclasses.asdict(self))


def joint_confidence(errors: list[float]) -> float:
    """The confidence that several tests are all right, by the union bound."""
    return max(0.0, 1 - sum(errors))


def save(path: Path, certificate: Certificate, signature: Signature | None = None) -> None:
    """Write a certificate with its checksum and, if there is one, its signature."""
    data = dataclasses.asdict(certificate) | {"sha256": certificate.digest()}
    if signature is not None:
        data["signature"] = dataclasses.asdict(signature)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def load(path: Path) -> tuple[Certificate, Signature | None]:
    """Read a certificate and check its checksum, and nothing else; FileError says in one line what is wrong."""
    data = read_json(path)
    if path.name == "ledger.json":
        raise FileError(f"{path}: is the ledger of the certificates beside it; must be one of these")
    check_format(data, "certificate", path)
    beside = {name: data.pop(name) for name in BESIDE if name in data}
    try:
        own = hashes.of_data(data)
    except ValueError as error:  # NaN and infinities, which Python reads and which are not JSON
        raise FileError(f"{path}: is not a certificate ({error})") from error
    if beside.get("sha256") != own:
        raise FileError(f"{path}: the certificate has been changed since it was issued (its checksum does not fit)")
    _check_texts(data | beside, path)
    found = as_declared(Certificate, data, str(path))
    if found.protocol.hash() != found.protocol_sha256:
        raise FileError(f"{path}: protocol has been changed since it was fixed (its checksum does not fit)")
    signature = as_declared(Signature, beside["signature"], f"{path}, signature") if "signature" in beside else None
    return found, signature


def check_format(data: Any, kind: str, path: Path) -> None:
    """Refuse data that are not of this format, and say which version wrote them if they are of another one."""
    text = data.get("format") if isinstance(data, dict) else None
    found = re.fullmatch(rf"evarl {kind} (\d{{1,4}})", text) if isinstance(text, str) else None
    if found is None:
        raise FileError(f"{path}: is not a {kind}; must be of format 'evarl {kind} {FORMAT}'")
    if int(found[1]) != FORMAT:
        code = data.get("code")
        versions = code.get("versions") if isinstance(code, dict) else data
        version = versions.get("evarl") if isinstance(versions, dict) else None
        writer = f"evarl {version:.20}" if isinstance(version, str) and version.isprintable() else "an unknown version"
        raise FileError(
            f"{path}: is a {kind} of format {found[1]}, written by {writer}; this version reads format {FORMAT} only"
        )


def _check_texts(data: Any, path: Path) -> None:
    """Refuse line breaks and escape sequences anywhere: parts of a certificate are printed in terminals."""
    if isinstance(data, dict):
        for name, value in data.items():
            _check_texts(name, path)
            _check_texts(value, path)
    elif isinstance(data, list):
        for value in data:
            _check_texts(value, path)
    elif isinstance(data, str) and CONTROL.search(data):
        raise FileError(f"{path}: is not a certificate; {data!r:.60} has control characters")
