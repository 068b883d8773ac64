"""Which tests were begun: a protocol is written into the run before its first rollout, and stays there.

Trying until a test passes is no test. A second test of the same claim about the same policy is refused, unless it is asked
for in so many words; then the certificate counts the levels of all of them.
"""

import json
from pathlib import Path

from evarl.certificates.certificate import Attempt, Certificate, load, load_protocol
from evarl.certificates.protocol import Protocol
from evarl.errors import FileError, InputError
from evarl.storage.files import write_bytes

FOLDER = "certificates"
PROTOCOL, CERTIFICATE = ".protocol.json", ".json"


def path_of(run: Path, protocol: Protocol) -> Path:
    """Where the certificate of a protocol goes."""
    return run / FOLDER / f"{protocol.claim}-seed-{protocol.seed}-{protocol.hash()[:12]}{CERTIFICATE}"


def protocol_path(run: Path, protocol: Protocol) -> Path:
    """Where the protocol itself is."""
    certificate = path_of(run, protocol)
    return certificate.with_name(certificate.name.removesuffix(CERTIFICATE) + PROTOCOL)


def others(run: Path, protocol: Protocol) -> list[tuple[Path, Protocol]]:
    """Other tests of the same claim about the same policy that were begun."""
    own = protocol_path(run, protocol)
    found = [(path, load_protocol(path)) for path in sorted((run / FOLDER).glob(f"*{PROTOCOL}")) if path != own]
    subject = protocol.claim, protocol.policy
    return [(path, other) for path, other in found if (other.claim, other.policy) == subject]


def register(run: Path, protocol: Protocol, again: bool) -> tuple[Attempt, ...]:
    """Write the protocol down before anything is rolled out; gives the tests that were begun before this one."""
    earlier, file = others(run, protocol), protocol_path(run, protocol)
    if earlier and not again:
        path, other = earlier[-1]
        raise InputError(
            f"{protocol.claim} has been tested for this policy before ({path}), at level {other.error:g}; its result stands. "
            "Rollouts for a claim are used once: with --again there are new ones, and the levels of all tests add up"
        )
    if not file.exists():
        write_bytes(file, (json.dumps(protocol.to_dict(), indent=1) + "\n").encode())
    return tuple(Attempt(other.hash(), other.error) for _, other in earlier)


def issued(run: Path, protocol: Protocol) -> Certificate | None:
    """The certificate that this very protocol has led to, if it has."""
    path = path_of(run, protocol)
    if not path.exists():
        return None
    found = load(path)
    if found.protocol != protocol:
        raise FileError(f"{path}: is for another protocol; move it away")
    return found
