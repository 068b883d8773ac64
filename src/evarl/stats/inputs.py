"""Numbers as they are given, checked once; every error is one line with the name, the value and what to do."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.ranges import whole
from evarl.sizes import check_memory

Scores = ArrayLike | Mapping[Any, ArrayLike]
"""[runs] of one task, [runs, tasks], or task → [runs], where tasks may differ in their number of runs."""


def vector(name: str, values: ArrayLike, at_least: int = 1, of: str = "runs") -> np.ndarray:
    """Finite numbers [N] with N of at least so many.

    >>> vector("scores", [1, 2, 3])
    array([1., 2., 3.])
    """
    found = array(name, values)
    if found.ndim != 1:
        raise InputError(f"{name}: has shape {found.shape}; want [{of}], one number for each of them")
    if len(found) < at_least:
        raise InputError(f"{name}: has length {len(found)}; want at least {at_least} {of}")
    return found


def pair(
    names: tuple[str, str], a: ArrayLike, b: ArrayLike, at_least: int = 1, of: str = "runs"
) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors of the same length, whose entries belong together.

    >>> pair(("x", "y"), [1, 2], [3, 4])
    (array([1., 2.]), array([3., 4.]))
    """
    first, second = vector(names[0], a, at_least, of), vector(names[1], b, at_least, of)
    if len(first) != len(second):
        raise InputError(f"{names[1]}: has length {len(second)}; want {len(first)}, the same {of} as {names[0]}")
    return first, second


def tasks(name: str, scores: Scores) -> dict[Hashable, np.ndarray]:
    """Scores [runs] of each task, at least 2 of each; the columns of an array are named 0, 1, …

    >>> tasks("scores", [[1, 2], [3, 4]])
    {0: array([1., 3.]), 1: array([2., 4.])}
    """
    if isinstance(scores, Mapping):
        if not scores:
            raise InputError(f"{name}: has no tasks; want at least 1")
        return {task: vector(f"{name}[{task!r}]", runs, 2) for task, runs in scores.items()}
    table = array(name, scores)
    if table.ndim not in (1, 2):
        raise InputError(
            f"{name}: has shape {table.shape}; want [runs], [runs, tasks] or a mapping from task to [runs]"
        )
    table = table.reshape(len(table), -1) if table.size else table
    if not table.size or len(table) < 2:
        raise InputError(f"{name}: has shape {table.shape}; want at least 2 runs of at least 1 task")
    return dict(enumerate(table.T))


def array(name: str, values: ArrayLike) -> np.ndarray:
    """Finite numbers of any shape, in float64.

    >>> array("scores", [[1], [2]]).shape
    (2, 1)
    """
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: is not an array of numbers; want numbers, and rows of one length") from None
    wrong = np.argwhere(~np.isfinite(found))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        raise InputError(f"{name}: is {found[place]} at {list(place)}; want finite numbers only")
    return found


def check_confidence(confidence: float) -> None:
    """Refuse what is no probability that an interval can have.

    >>> check_confidence(0.95)
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; want a number between 0 and 1, such as 0.95")


def check_sampling(resamples: int, seed: int) -> None:
    """Refuse what cannot be drawn.

    >>> check_sampling(1000, 0)
    """
    whole("resamples", resamples)
    check_memory("resamples", resamples, 8.0 * resamples, "what is drawn")
    if seed < 0:
        raise InputError(f"seed: {seed} is not allowed; want at least 0")
