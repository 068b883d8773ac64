"""The certificate as a file: JSON with a checksum and, if wanted, a signature; written and read strictly, never executed."""

import dataclasses
import json
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

FORMAT = "evarl certificate 2"
BESIDE = ("sha256", "signature")
"""Fields of the file that the checksum does not cover."""


@dataclass(frozen=True)
class Attempt:
    """An earlier test, or comparison, that counts against the confidence of a later one."""

    digest: str
    """SHA-256 of its protocol, or of the comparison."""
    error: float
    """The probability that it concludes what is false."""


@dataclass(frozen=True)
class Place:
    """An entry of the ledger."""

    number: int
    sha256: str


@dataclass(frozen=True)
class Certificate:
    """A conclusion, and all that is needed to derive it again."""

    conclusion: Conclusion
    protocol: Protocol
    protocol_sha256: str
    evidence: dict[str, tuple[float, ...]]
    earlier: tuple[Attempt, ...]
    """Tests of this claim about this policy that were begun before; the errors of all of them add up."""
    ledger: Place
    """Where the protocol was registered before the first rollout."""
    issued: str
    """When, in UTC."""
    code: hashes.Code
    machine: dict[str, Any]
    platform: dict[str, str]
    """What decides the bits of results: on an equal platform the same rollouts are made again."""
    page_sha256: str
    """Of the page beside it."""
    format: str = FORMAT

    @property
    def confidence(self) -> float:
        """That this and all earlier tests of the claim are right, which is what matters to whoever chooses among them."""
        return joint_confidence([self.protocol.error, *(one.error for one in self.earlier)])

    def digest(self) -> str:
        """SHA-256 of all fields: what the file's checksum, the ledger and a signature refer to."""
        return hashes.of_data(_plain(self))


def joint_confidence(errors: list[float]) -> float:
    """The confidence that several tests are all right, by the union bound."""
    return max(0.0, 1 - sum(errors))


def save(path: Path, certificate: Certificate, signature: Signature | None = None) -> None:
    """Write it with its checksum, and its signature if there is one."""
    data = _plain(certificate) | {"sha256": certificate.digest()}
    if signature is not None:
        data["signature"] = dataclasses.asdict(signature)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def load(path: Path) -> tuple[Certificate, Signature | None]:
    """Read one; FileError says in one line what is wrong with it. Its checksum fits afterwards, and no more is known."""
    data = read_json(path)
    kind = data.get("format") if isinstance(data, dict) else None
    if kind != FORMAT:
        raise FileError(f"{path}: is not a certificate of this version: its format is {kind!r:.60}, want {FORMAT!r}")
    beside = {name: data.pop(name) for name in BESIDE if name in data}
    try:
        own = hashes.of_data(data)
    except ValueError as error:  # NaN and infinities, which Python reads and JSON does not know
        raise FileError(f"{path}: is not a certificate ({error})") from error
    if beside.get("sha256") != own:
        raise FileError(f"{path}: the certificate has been changed since it was issued (its checksum does not fit)")
    _check_texts(data | beside, path)
    found = as_declared(Certificate, data, str(path))
    if found.protocol.hash() != found.protocol_sha256:
        raise FileError(f"{path}: protocol has been changed since it was fixed (its checksum does not fit)")
    signature = as_declared(Signature, beside["signature"], f"{path}, signature") if "signature" in beside else None
    return found, signature


def _check_texts(data: Any, path: Path) -> None:
    """Refuse line breaks and escape sequences anywhere: parts of a certificate are shown in terminals and pages."""
    if isinstance(data, dict):
        for name, value in data.items():
            _check_texts(name, path)
            _check_texts(value, path)
    elif isinstance(data, list):
        for value in data:
            _check_texts(value, path)
    elif isinstance(data, str) and CONTROL.search(data):
        raise FileError(f"{path}: is not a certificate; {data!r:.60} has control characters")


def _plain(certificate: Certificate) -> dict[str, Any]:
    """As JSON will give it back."""
    return json.loads(json.dumps(dataclasses.asdict(certificate), allow_nan=False))
