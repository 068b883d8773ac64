"""What names a file, a piece of plain data, and the code that runs. No JAX."""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import evarl
from evarl.runs.provenance import commit, versions
from evarl.storage.files import hash_regular

LONGEST = 2**30
"""Bytes; maximum accepted size of a file that a certificate binds, or of its page."""


def of_file(path: Path) -> str:
    """SHA-256 of its bytes."""
    return hash_regular(path, LONGEST)


def of_bytes(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()


def of_data(data: Any) -> str:
    """SHA-256 of plain data, whatever the order of its fields.

    >>> of_data({"a": 1, "b": [2.5]}) == of_data({"b": [2.5], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()


def random_key(digest: str) -> np.ndarray:
    """A key of all that is random, as JAX's old-style keys are: the first two words of a SHA-256.

    >>> random_key("0000000100000002" + 48 * "0")
    array([1, 2], dtype=uint32)
    """
    return np.frombuffer(bytes.fromhex(digest)[:8], ">u4").astype(np.uint32)


@dataclass(frozen=True)
class Code:
    """What a certificate was made with."""

    source: str
    """SHA-256 of this package's source."""
    commit: str | None
    versions: dict[str, str | None]
    """Of Python and of the packages that numbers depend on."""


@functools.cache
def of_code() -> Code:
    """The source of this package, and what it stands on; read once, as it was when this process began to bounds."""
    package = Path(evarl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return Code(digest.hexdigest(), commit(), versions())
