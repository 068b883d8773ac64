"""Selection without bias: of the episodes of a vectorised world, and of candidates that are certified.

Fixed-sequence testing: candidates are tested in the order of their predictions until the first fails. Each test is at the full
α. A candidate is certified wrongly only if the first in the order whose hypothesis is true passes its test, which has
probability at most α; later ones cannot add to this. So the family-wise error is at most α. The order may depend on anything
but the rollouts of the tests: predictions come from earlier assessments.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


def fixed_sequence(predictions: ArrayLike, test: Callable[[int], bool] | Sequence[bool] | np.ndarray) -> list[int]:
    """Indices of the certified candidates, in the order of their predictions.

    `test(i)` says whether candidate i passes its own test at level α; it is called, and its rollouts are made, only if all before
    it passed. Equal predictions keep their order.

    >>> fixed_sequence([1.0, 3.0, 2.0, 0.0], [True, True, False, True])
    [1]
    """
    order = np.argsort(-inputs.vector("predictions", predictions, of="candidates"), kind="stable")
    if not callable(test):
        if len(test) != len(order):
            raise InputError(f"test: has length {len(test)}; must be {len(order)}, one for each of the candidates")
        test = list(test).__getitem__
    certified: list[int] = []
    for candidate in order.tolist():
        if not test(candidate):
            break
        certified.append(candidate)
    return certified


def first_begun(returns: ArrayLike, ended: ArrayLike, count: int) -> Float[np.ndarray, " {count}"]:
    """Returns of the first `count` of N episodes, which are in the order in which they were started.

    `ended` [N] says which have ended; returns of others are not used. All of the first `count` must have ended: to replace one
    that has not by a later one would prefer short episodes to long ones.

    >>> first_begun([1.0, 2.0, 0.0], [True, True, False], 2)
    array([1., 2.])
    """
    over = np.asarray(ended)
    if over.dtype != bool or over.ndim != 1:
        raise InputError(f"ended: is {over.dtype}{list(over.shape)}; must be True or False for each of the episodes")
    if not 1 <= count <= len(over):
        raise InputError(
            f"count: {count} is not allowed; must be from 1 to {len(over)}, the episodes that were started"
        )
    found = np.asarray(returns, np.float64)
    if found.shape != over.shape:
        raise InputError(f"returns: has shape {found.shape}; must be {over.shape}, one for each of the episodes")
    if not over[:count].all():
        waiting = int(np.argmin(over[:count])) + 1
        raise InputError(
            f"ended: episode {waiting} of the first {count} has not ended; the episodes that end first are the short ones, "
            "so continue until all of these have ended"
        )
    return inputs.vector("returns", found[:count], of="rollouts")
