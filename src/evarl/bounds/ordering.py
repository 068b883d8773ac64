"""Several candidates, one α: test them in the order in which the evaluator recommends them, and stop at the first failure.

Each test is at the full α. A candidate is certified wrongly only if the first in the order that does not deserve it passes
its test, and that has probability at most α; those behind it cannot add to this. So no candidate is wrongly certified but for α.
The order may depend on anything but the rollouts of the tests: predictions come from assessments made before.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


def fixed_sequence(predictions: ArrayLike, test: Callable[[int], bool] | Sequence[bool] | np.ndarray) -> list[int]:
    """Candidates that are certified, the most promising first.

    `test(i)` says whether candidate i passes its own test at level α; it is called, and its rollouts are made, only when the
    turn comes to it. Equal predictions are taken in the order in which they stand.

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
