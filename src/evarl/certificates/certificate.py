"""The certificate as a file: JSON with a checksum, written and read strictly. Nothing in it is executed."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from evarl.certificates import hashes
from evarl.certificates.conclusions import Conclusion
from evarl.certificates.protocol import Protocol
from evarl.errors import FileError
from evarl.storage.files import CONTROL, write_bytes
from evarl.storage.plain import as_declared, read_json

FORMAT = "evarl certificate 1"


@dataclass(frozen=True)
class Attempt:
    """A test of the same claim about the same policy."""

    protocol: str
    """SHA-256."""
    error: float
    """The probability that it concludes what is false."""


@dataclass(frozen=True)
class Certificate:
    """What is promised, and all that is needed to test it again."""

    conclusion: Conclusion
    protocol: Protocol
    protocol_sha256: str
    evidence: dict[str, tuple[float, ...]]
    earlier: tuple[Attempt, ...]
    """Tests of this claim about this policy that were begun before; the errors of all of them add up."""
    issued: str
    """When, in UTC."""
    code: hashes.Code
    machine: dict[str, Any]
    page_sha256: str
    """Of the page beside it."""
    format: str = FORMAT

    @property
    def confidence(self) -> float:
        """That this and all earlier tests of the claim are right; it is what is left for whoever chooses among them."""
        return left_of([self.protocol.error, *(one.error for one in self.earlier)])


def left_of(errors: list[float]) -> float:
    """The confidence that several tests are all right."""
    return max(0.0, 1 - sum(errors))


def save(path: Path, certificate: Certificate) -> None:
    """Write it with its checksum."""
    data = json.loads(json.dumps(dataclasses.asdict(certificate)))
    text = json.dumps(data | {"sha256": hashes.of_data(data)}, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def load(path: Path) -> Certificate:
    """Read one; FileError says in one line what is wrong with it."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FileError(f"{path}: is not a certificate of this version ({FORMAT})")
    stated = data.pop("sha256", None)
    try:
        own = hashes.of_data(data)
    except ValueError as error:  # NaN and infinities, which Python reads and JSON does not know
        raise FileError(f"{path}: is not a certificate ({error})") from error
    if stated != own:
        raise FileError(f"{path}: the certificate has been changed since it was issued (its checksum does not fit)")
    found = as_declared(Certificate, data, str(path))
    if found.protocol.hash() != found.protocol_sha256:
        raise FileError(f"{path}: protocol has been changed since it was fixed (its checksum does not fit)")
    bound = [found.protocol.files, *(one.files for one in found.protocol.calibration)]
    for name in (name for files in bound for name in files):
        if not _within_a_run(name):
            raise FileError(f"{path}: binds {name!r:.60}, which is no file of a run")
    return found


def load_protocol(path: Path) -> Protocol:
    """Read one from the ledger, where files are named after what they hold."""
    found = as_declared(Protocol, read_json(path), str(path))
    if found.hash()[:12] not in path.name:
        raise FileError(f"{path}: protocol has been changed since it was fixed (its name does not fit)")
    return found


def _within_a_run(name: str) -> bool:
    """Whether it can be a file of a run that is worth reading: whoever verifies a certificate reads what it names."""
    file = PurePosixPath(name)
    plain = not (file.is_absolute() or ".." in file.parts or CONTROL.search(name))
    return plain and file.suffix in (".json", ".safetensors")
