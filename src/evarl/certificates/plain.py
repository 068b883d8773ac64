"""Plain data from a file as a dataclass, field by field as declared: whatever does not fit is named, and nothing is guessed."""

import dataclasses
import math
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from evarl.errors import FileError

T = TypeVar("T")


def as_dataclass(kind: type[T], data: Any, where: str) -> T:
    """Build `kind` from what JSON gave; lists become tuples where tuples are declared."""
    return _value(kind, data, where)


def _value(hint: Any, data: Any, where: str) -> Any:
    """`data`, if it is what `hint` says. Numbers must be finite."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fields(hint, data, where)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        (hint,) = (one for one in inner if one is not type(None))
        return _value(hint, data, where)
    if origin is Literal and isinstance(data, str) and data in inner:
        return data
    if origin is dict and isinstance(data, dict):
        return {name: _value(inner[1], one, f"{where}, {name}") for name, one in data.items()}
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], one, f"{where}, {number}") for number, one in enumerate(data))
    if hint is float and isinstance(data, int | float) and not isinstance(data, bool) and _finite(data):
        return float(data)
    if hint is Any or (isinstance(hint, type) and hint is not float and type(data) is hint):
        return data
    raise FileError(f"{where}: is {data!r:.60}; want {getattr(hint, '__name__', hint) if origin is None else hint}")


def _fields(kind: type, data: Any, where: str) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        odd = sorted(map(str, data.keys() ^ hints.keys())) if isinstance(data, dict) else [f"{data!r:.60}"]
        raise FileError(f"{where}: is not what this version writes; missing or unknown: {', '.join(odd)}")
    return kind(**{name: _value(hint, data[name], f"{where}, {name}") for name, hint in hints.items()})


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number too large for a float
        return False
