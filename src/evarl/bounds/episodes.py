"""Which episodes of a vectorised world may stand for all: the first that were begun, not the first that ended."""

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


def first_begun(returns: ArrayLike, ended: ArrayLike, count: int) -> np.ndarray:
    """Returns [count] of the first `count` of N episodes, which stand in the order in which they were begun.

    `ended` [N] says which have come to their ends; returns of others are not looked at. Of those that are under way, all among
    the first `count` must be awaited: to take others in their place would prefer short episodes to long ones.

    >>> first_begun([1.0, 2.0, 0.0], [True, True, False], 2)
    array([1., 2.])
    """
    over = np.asarray(ended)
    if over.dtype != bool or over.ndim != 1:
        raise InputError(f"ended: is {over.dtype}{list(over.shape)}; must be True or False for each of the episodes")
    if not 1 <= count <= len(over):
        raise InputError(f"count: {count} is not allowed; must be from 1 to {len(over)}, the episodes that were begun")
    found = np.asarray(returns, np.float64)
    if found.shape != over.shape:
        raise InputError(f"returns: has shape {found.shape}; must be {over.shape}, one for each of the episodes")
    if not over[:count].all():
        waiting = int(np.argmin(over[:count])) + 1
        raise InputError(
            f"ended: episode {waiting} of the first {count} has not ended; the episodes that end first are the short ones "
            "and do not stand for all, so go on until these have ended"
        )
    return inputs.vector("returns", found[:count], of="rollouts")
