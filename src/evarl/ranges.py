"""Checks of numbers in settings and arguments. No JAX, so that `--help` stays quick."""

import numbers
from collections.abc import Iterable
from typing import Any

from evarl.errors import InputError

MOST = 2**31 - 1
"""Greatest whole number: compiled programs count in 32 bits."""
LARGEST = 3.4e38
"""Greatest float: compiled programs compute in 32 bits."""


def whole(name: str, value: Any, least: int = 1, most: int = MOST) -> None:
    """Raise InputError unless `value` is a whole number from `least` to `most`.

    >>> whole("steps", 0)
    Traceback (most recent call last):
    evarl.errors.InputError: steps: 0 is not allowed; must be at least 1
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise InputError(f"{name}: {value!r:.60} is not allowed; must be a whole number")
    if int(value) < least:
        raise InputError(f"{name}: {value} is not allowed; must be at least {least}")
    if int(value) > most:
        raise InputError(f"{name}: {value} is not allowed; must be a whole number from {least} to {most}")


def real(
    name: str, value: Any, *, least: float | None = None, above: float | None = None, most: float | None = None
) -> None:
    """Raise InputError unless `value` is a finite number from `least` (or above `above`) to `most`.

    >>> real("beta", float("inf"), least=0)
    Traceback (most recent call last):
    evarl.errors.InputError: beta: inf is not allowed; must be a finite number of at least 0
    """
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else float("nan")
    inside = (
        (least is None or number >= least) and (above is None or number > above) and (most is None or number <= most)
    )
    if abs(number) <= LARGEST and inside:
        return
    allowed = " finite number" if abs(number) > LARGEST else " number"
    if above is not None:
        allowed += f" above {above:g}"
    elif least is not None:
        allowed += f" of at least {least:g}" if most is None else f" from {least:g}"
    allowed += "" if most is None else f" to {most:g}"
    raise InputError(f"{name}: {value!r:.60} is not allowed; must be a{allowed}")


def sizes(name: str, values: Iterable[Any]) -> None:
    """Raise InputError unless there is at least one width, and each is at least 1."""
    values = tuple(values)
    if not values:
        raise InputError(f"{name}: {values} is not allowed; must be widths of at least 1")
    for value in values:
        whole(name, value)


def flag(prefix: str, field: str) -> str:
    """A field's name as on the command line.

    >>> flag("agent.ppo", "clip_range")
    'agent.ppo.clip-range'
    """
    return f"{prefix}.{field}".lstrip(".").replace("_", "-")
