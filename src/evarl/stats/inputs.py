"""Checks of arrays, probabilities and ranges; an error is one line with the name, the value and what it must be."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.ranges import whole
from evarl.sizes import check_memory

Scores = ArrayLike | Mapping[Any, ArrayLike]
"""[runs] of one task, [runs, tasks], or task → [runs], where tasks may differ in their number of runs."""


def numbers(name: str, values: ArrayLike) -> Float[np.ndarray, "..."]:
    """An array in float64, of any shape."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: is not an array of numbers; must be numbers in rows of equal length") from None


def array(name: str, values: ArrayLike) -> Float[np.ndarray, "..."]:
    """An array of finite numbers in float64, of any shape."""
    found = numbers(name, values)
    wrong = np.argwhere(~np.isfinite(found))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        raise InputError(f"{name}: is {found[place]} at {list(place)}; must be finite")
    return found


def vector(name: str, values: ArrayLike, at_least: int = 1, of: str = "runs") -> Float[np.ndarray, " n"]:
    """A vector of at least `at_least` finite numbers.

    >>> vector("scores", [1, 2, 3])
    array([1., 2., 3.])
    """
    found = array(name, values)
    if found.ndim != 1:
        raise InputError(f"{name}: has shape {found.shape}; must be [{of}], one number for each")
    if len(found) < at_least:
        raise InputError(f"{name}: has length {len(found)}; must be at least {at_least} {of}")
    return found


def same_length(name: str, values: ArrayLike, expected: int, of: str = "rollouts") -> Float[np.ndarray, " n"]:
    """A vector of finite numbers whose length is known.

    >>> same_length("predictions", [1, 2], 2)
    array([1., 2.])
    """
    found = vector(name, values, of=of)
    if len(found) != expected:
        raise InputError(f"{name}: has length {len(found)}; must be {expected}, one for each of the {of}")
    return found


def pair(
    names: tuple[str, str], a: ArrayLike, b: ArrayLike, at_least: int = 1, of: str = "runs"
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Two vectors of equal length, whose entries belong together.

    >>> pair(("x", "y"), [1, 2], [3, 4])
    (array([1., 2.]), array([3., 4.]))
    """
    first, second = vector(names[0], a, at_least, of), vector(names[1], b, at_least, of)
    if len(first) != len(second):
        raise InputError(f"{names[1]}: has length {len(second)}; must be {len(first)}, the same {of} as {names[0]}")
    return first, second


def tasks(name: str, scores: Scores) -> dict[Hashable, Float[np.ndarray, " runs"]]:
    """Scores [runs] of each task, at least 2 of each; the columns of an array are named 0, 1, …

    >>> tasks("scores", [[1, 2], [3, 4]])
    {0: array([1., 3.]), 1: array([2., 4.])}
    """
    if isinstance(scores, Mapping):
        if not scores:
            raise InputError(f"{name}: has no tasks; must have at least 1")
        return {task: vector(f"{name}[{task!r}]", runs, 2) for task, runs in scores.items()}
    table = array(name, scores)
    if table.ndim not in (1, 2):
        raise InputError(
            f"{name}: has shape {table.shape}; must be [runs], [runs, tasks] or a mapping from task to [runs]"
        )
    table = table.reshape(len(table), -1) if table.size else table
    if not table.size or len(table) < 2:
        raise InputError(f"{name}: has shape {table.shape}; must have at least 2 runs of at least 1 task")
    return dict(enumerate(table.T))


def within(name: str, values: ArrayLike, low: float, high: float) -> Float[np.ndarray, " n"]:
    """A vector of numbers in a range that was fixed before they were observed.

    >>> within("returns", [1, 2], 0.0, 2.0)
    array([1., 2.])
    """
    check_range(low, high)
    found = vector(name, values, of="rollouts")
    outside = (found < low) | (found > high)
    if outside.any():
        raise InputError(
            f"{name}: {found[np.argmax(outside)]:g} is outside the range [{low:g}, {high:g}]; the range must contain every "
            "possible rollout and be fixed before the first"
        )
    return found


def check_range(low: float, high: float) -> None:
    """Refuse what is not a finite range."""
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"range: [{low:g}, {high:g}] is not allowed; must be two finite numbers, the lower one first")


def check_level(name: str, value: float, most: float = 1.0, example: float = 0.05) -> None:
    """Refuse what is not a probability, such as that of an error, below `most`."""
    if not 0 < value < most:
        raise InputError(f"{name}: {value} is not allowed; must be a number between 0 and {most:g}, such as {example}")


def check_confidence(confidence: float) -> None:
    """Refuse what is not the confidence of an interval."""
    check_level("confidence", confidence, example=0.95)


def check_sampling(resamples: int, seed: int) -> None:
    """Refuse numbers of resamples and random seeds that cannot be used."""
    whole("resamples", resamples)
    check_memory("resamples", resamples, 8.0 * resamples, "what is drawn")
    if seed < 0:
        raise InputError(f"seed: {seed} is not allowed; must be at least 0")
