"""SHA-256 of files, plain data and the source of this package. No JAX."""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt32

from evarl.runs.provenance import commit, source, versions
from evarl.storage.files import hash_regular

LONGEST = 2**30
"""Bytes; maximum accepted size of a file that a certificate refers to, or of its page."""


def of_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hash_regular(path, LONGEST)


def of_bytes(data: bytes) -> str:
    """SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def of_data(data: Any) -> str:
    """SHA-256 of plain data; the order of fields does not matter.

    >>> of_data({"a": 1, "b": [2.5]}) == of_data({"b": [2.5], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()


def random_key(digest: str) -> UInt32[np.ndarray, "2"]:
    """An old-style JAX key: the first two words of a SHA-256.

    >>> random_key("0000000100000002" + 48 * "0")
    array([1, 2], dtype=uint32)
    """
    return np.frombuffer(bytes.fromhex(digest)[:8], ">u4").astype(np.uint32)


@dataclass(frozen=True)
class Code:
    """The code that issued a certificate."""

    source: str
    """SHA-256 of this package's modules and templates."""
    commit: str | None
    versions: dict[str, str | None]
    """Versions of Python and of the packages that numbers depend on."""


@functools.cache
def of_code() -> Code:
    """The code of this process; the source is read once."""
    return Code(source(), commit(), versions())
