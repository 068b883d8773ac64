"""Numbers that a setting may have. Plain Python, no JAX, so that `--help` stays quick."""

import numbers
from collections.abc import Iterable
from typing import Any

from evarl.errors import InputError

MOST = 2**31 - 1
"""Compiled programs count in 32 bits."""
LARGEST = 3.4e38
"""And compute in 32 bits: a float beyond this is infinite there."""


def whole(name: str, value: Any, least: int = 1, most: int = MOST) -> None:
    """Refuse what is not a whole number from `least` to `most`.

    >>> whole("steps", 0)
    Traceback (most recent call last):
    evarl.errors.InputError: steps: 0 is not allowed; want at least 1
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise InputError(f"{name}: {value!r:.60} is not allowed; want a whole number")
    number = int(value)
    if number < least:
        raise InputError(f"{name}: {value} is not allowed; want at least {least}")
    if number > most:
        raise InputError(f"{name}: {value} is not allowed; want a whole number from {least} to {most}")


def real(
    name: str, value: Any, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> None:
    """Refuse what is not a finite number from `least` (or above `above`) to `most`.

    >>> real("beta", float("inf"), least=0)
    Traceback (most recent call last):
    evarl.errors.InputError: beta: inf is not allowed; want a finite number from 0 on
    """
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else float("nan")
    finite = abs(number) <= LARGEST
    if finite and _inside(number, least, above, most):
        return
    want = f"above {above:g}" if above is not None else "" if least is None else f"from {least:g}"
    want += f" to {most:g}" if most is not None else " on" if least is not None else ""
    kind = "finite number" if abs(number) > LARGEST else "number"
    raise InputError(f"{name}: {value!r:.60} is not allowed; want a {kind} {want}".rstrip())


def _inside(value: float, least: float | None, above: float | None, most: float | None) -> bool:
    low = (least is None or value >= least) and (above is None or value > above)
    return low and (most is None or value <= most)


def sizes(name: str, values: Iterable[Any]) -> None:
    """Refuse what is not one width or more, each at least 1."""
    values = tuple(values)
    if not values:
        raise InputError(f"{name}: {values} is not allowed; want widths of at least 1")
    for value in values:
        whole(name, value)


def flag(prefix: str, field: str) -> str:
    """A field's name as on the command line.

    >>> flag("agent.ppo", "clip_range")
    'agent.ppo.clip-range'
    """
    return f"{prefix}.{field}".lstrip(".").replace("_", "-")
