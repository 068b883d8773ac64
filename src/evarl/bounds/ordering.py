"""Fixed-sequence testing: candidates are tested in the order of their predictions until the first fails.

Each test is at the full α. A candidate is certified wrongly only if the first in the order whose hypothesis is true passes its
test, which has probability at most α; later ones cannot add to this. So the family-wise error is at most α. The order may
depend on anything but the rollouts of the tests: predictions come from earlier assessments.
"""

from collections.abc import Callable, Sequence

import numpy as np
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
