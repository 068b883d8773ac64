"""JSON files: limits on their size, checksums, and conversion to declared types."""

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from evarl.errors import FileError
from evarl.storage.files import read_regular, reason

T = TypeVar("T")
Real = Callable[[float], bool]

LONGEST = 64 * 2**20
"""Maximum accepted size of a file in bytes."""
MOST = 2**22
"""Maximum accepted number of values; small ones take up to fifty times as much space in memory as in a file."""
DEEPEST = 50
"""Maximum accepted depth of nesting."""
EXACT = 2**53
"""Whole numbers up to this one can be represented as floats."""


def read_json(path: Path) -> Any:
    """The contents of a JSON file."""
    try:
        text = read_regular(path, LONGEST)
        if sum(map(text.count, (b",", b"[", b"{"))) > MOST:
            raise FileError(f"{path}: holds more values than any file of this kind")
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # raises for unpaired surrogates in a text
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: cannot be read as JSON ({reason(error)})") from error
    level = [data]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
    if level:
        raise FileError(f"{path}: is nested deeper than any file of this kind")
    return data


def seal(data: dict[str, Any]) -> dict[str, Any]:
    """Data as they are after writing and reading JSON, with their checksum.

    >>> unseal(seal({"seconds": {1: 2.5}}), "a file")
    {'seconds': {'1': 2.5}}
    """
    plain = json.loads(json.dumps(data))
    return plain | {"sha256": _checksum(plain)}


def unseal(data: Any, where: str) -> dict[str, Any]:
    """Data without their checksum; FileError if it is missing or wrong."""
    rest = {name: value for name, value in data.items() if name != "sha256"} if isinstance(data, dict) else {}
    if not rest or data.get("sha256") != _checksum(rest):
        raise FileError(f"{where}: corrupt (its checksum does not fit its contents)")
    return rest


def as_declared(hint: type[T], data: Any, where: str, real: Real = math.isfinite) -> T:
    """Data from JSON as the dataclass or type `hint`, with lists as tuples where tuples are declared; FileError if they differ.

    `real` tells which floats are allowed.

    >>> as_declared(tuple[float, ...], [1, 2.5], "a file")
    (1, 2.5)
    """
    return _value(hint, data, where, real)


def _value(hint: Any, data: Any, where: str, real: Real) -> Any:
    """`data` as the type `hint`."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fields(hint, data, where, real)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        (hint,) = (one for one in inner if one is not type(None))
        return _value(hint, data, where, real)
    if origin is Literal and isinstance(data, str) and data in inner:
        return data
    if origin is dict and isinstance(data, dict):
        return {name: _value(inner[1], one, f"{where}, {name!r:.60}", real) for name, one in data.items()}
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], one, f"{where}, {number}", real) for number, one in enumerate(data))
    if hint is float and isinstance(data, float) and real(data):
        return data
    if hint is float and type(data) is int and abs(data) <= EXACT:
        return data  # not converted: it must be the same when it is written again
    if hint is Any or (isinstance(hint, type) and hint is not float and type(data) is hint):
        return data
    raise FileError(f"{where}: is {data!r:.60}; must be {getattr(hint, '__name__', hint) if origin is None else hint}")


def _fields(kind: type, data: Any, where: str, real: Real) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        odd = sorted(data.keys() ^ hints.keys()) if isinstance(data, dict) else sorted(hints)
        raise FileError(f"{where}: does not have the fields that this version writes; missing or unknown: {odd!r:.200}")
    return kind(**{name: _value(hint, data[name], f"{where}, {name}", real) for name, hint in hints.items()})


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _inside(data: Any) -> Any:
    """The values in an object or a list."""
    return data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
