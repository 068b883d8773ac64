"""What every claim is asked first; every error is one line with the name, the value and what to do."""

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs

vector = inputs.vector
array = inputs.array


def check_level(name: str, value: float) -> None:
    """Refuse what is no probability of error.

    >>> check_level("alpha", 0.05)
    """
    if not 0 < value < 1:
        raise InputError(f"{name}: {value} is not allowed; want a number between 0 and 1, such as 0.05")


def check_cap(cap: float) -> None:
    """Refuse a bet that could lose everything.

    >>> check_cap(0.5)
    """
    if not 0 < cap < 1:
        raise InputError(f"cap: {cap} is not allowed; want a number between 0 and 1, such as 0.5 or 0.75")


def check_range(low: float, high: float) -> None:
    """Refuse what is no range.

    >>> check_range(0.0, 1.0)
    """
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"range: [{low:g}, {high:g}] is not allowed; want finite numbers, the lower one first")


def returns_in(name: str, values: ArrayLike, low: float, high: float) -> np.ndarray:
    """Numbers [n] that lie in a range that was fixed before they were seen.

    >>> returns_in("returns", [1, 2], 0.0, 2.0)
    array([1., 2.])
    """
    check_range(low, high)
    found = vector(name, values, of="rollouts")
    outside = (found < low) | (found > high)
    if outside.any():
        worst = found[np.argmax(outside)]
        raise InputError(
            f"{name}: {worst:g} is outside the range [{low:g}, {high:g}]; want a range that holds for every possible "
            "rollout, fixed before the first"
        )
    return found


def same_length(name: str, values: ArrayLike, wanted: int, of: str = "rollouts") -> np.ndarray:
    """Numbers [n], one for each of what was counted before.

    >>> same_length("predictions", [1, 2], 2)
    array([1., 2.])
    """
    found = vector(name, values, of=of)
    if len(found) != wanted:
        raise InputError(f"{name}: has length {len(found)}; want {wanted}, one for each of the {of}")
    return found


def value_range(low: float, high: float, value_low: float | None, value_high: float | None) -> tuple[float, float]:
    """Where predictions are clipped into: the range of returns, or a part of it.

    >>> value_range(0.0, 1.0, None, 0.8)
    (0.0, 0.8)
    """
    least, most = low if value_low is None else value_low, high if value_high is None else value_high
    if not low <= least <= most <= high:
        raise InputError(f"value range: [{least:g}, {most:g}] is not allowed; want a part of [{low:g}, {high:g}]")
    return least, most
