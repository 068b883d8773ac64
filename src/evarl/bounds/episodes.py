"""Selection of episodes of a vectorised world without bias: the first that were started, not the first that ended."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


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
