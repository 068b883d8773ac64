"""Split conformal prediction: what holds for a new score that is exchangeable with n scores, whatever their distribution."""

from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from evarl.stats import inputs


def conformal_quantile(scores: ArrayLike, confidence: float = 0.9) -> float | None:
    """The k-th smallest of n scores, k = ⌈(n + 1) · confidence⌉: a new score exceeds it with probability at most 1 − confidence.

    None if k > n: so few scores say nothing at this confidence.

    >>> conformal_quantile([4.0, 1.0, 3.0, 2.0], confidence=0.5)
    3.0
    >>> conformal_quantile(range(8), confidence=0.9) is None
    True
    """
    inputs.check_confidence(confidence)
    found = np.sort(np.asarray(scores, np.float64))
    index = ceil((len(found) + 1) * confidence - 1e-9)  # 10 · 0.9 is a little more than 9 in floating point
    return float(found[index - 1]) if index <= len(found) else None


def conformal_p_value(scores: ArrayLike, score: float) -> float:
    """(1 + number of scores that are at least `score`) / (n + 1): at most a with probability at most a.

    >>> conformal_p_value([1.0, 2.0, 3.0], 2.5)
    0.5
    """
    found = np.asarray(scores, np.float64)
    return float((1 + (found >= score).sum()) / (len(found) + 1))
