"""Stratified bootstrap: the runs of each task are resampled with replacement, independently of other tasks.

`scipy.stats.bootstrap` has no strata, and does not bound the memory that resamples take.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.stats import inputs
from evarl.stats.inputs import Scores
from evarl.stats.intervals import Interval, percentile_interval

Statistic = Callable[..., Any]
"""A function `statistic(scores, axis=axis)` that reduces those axes and keeps the first, over resamples [B].

If all tasks have the same number of runs, scores is [B, runs, tasks] and axis (-2, -1), so that a statistic can treat tasks
separately: `lambda scores, axis: scores.mean(-2).min(-1)` is the mean of the worst task. Otherwise scores is [B, runs of all
tasks] and axis (-1,): each run then has the same weight. `iqm`, `np.mean`, `np.median` and other reductions can be passed."""

BLOCK = 2**22
"""Number of scores that are held in memory at a time."""


def bootstrap_distribution(
    scores: Scores, statistic: Statistic, resamples: int = 10_000, seed: int = 0
) -> Float[np.ndarray, " resamples"]:
    """The bootstrap distribution of a statistic: its value for each resample.

    >>> bootstrap_distribution([0.0, 1.0], np.mean, resamples=1000).mean().round(1)
    np.float64(0.5)
    """
    inputs.check_sampling(resamples, seed)
    strata = list(inputs.tasks("scores", scores).values())
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK // sum(map(len, strata)))
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return np.concatenate([_apply(statistic, [_drawn(rng, runs, size) for runs in strata]) for size in sizes])


def bootstrap_interval(
    scores: Scores, statistic: Statistic, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """The percentile bootstrap interval of a statistic.

    The interval contains only values that the statistic can take and is equivariant under monotone transformations. It is too
    narrow for few runs: for a mean of n normal scores it is about x̄ ± z · s √(n − 1) / n, and a nominal coverage of 95 % is in
    fact some 83 % for 5 runs, 90 % for 10 and 94 % for 30. `t_interval` is not too narrow.

    >>> bootstrap_interval({"easy": [1.0, 1.0, 1.0], "hard": [0.0, 0.0]}, np.mean)
    Interval(estimate=0.6, low=0.6, high=0.6, confidence=0.95, method='bootstrap')
    """
    inputs.check_confidence(confidence)
    inputs.check_sampling(resamples, seed)
    strata = [runs[None] for runs in inputs.tasks("scores", scores).values()]
    estimate = float(_apply(statistic, strata)[0])
    return percentile_interval(estimate, bootstrap_distribution(scores, statistic, resamples, seed), confidence)


def _drawn(rng: np.random.Generator, runs: Float[np.ndarray, " runs"], size: int) -> Float[np.ndarray, "{size} runs"]:
    """Resamples [size, runs] of one task."""
    return runs[rng.integers(len(runs), size=(size, len(runs)))]


def _apply(statistic: Statistic, strata: Sequence[Float[np.ndarray, "B _"]]) -> Float[np.ndarray, " B"]:
    """The statistic of resamples [B, runs] of each task."""
    if len({runs.shape for runs in strata}) == 1:
        found = statistic(np.stack(strata, axis=-1), axis=(-2, -1))
    else:
        found = statistic(np.concatenate(strata, axis=-1), axis=(-1,))
    found, expected = np.asarray(found, np.float64), (len(strata[0]),)
    if found.shape != expected:
        raise InputError(
            f"statistic: returned shape {found.shape}; must be {expected}, with the axes reduced that are given"
        )
    if not np.isfinite(found).all():
        raise InputError(
            f"statistic: returned {found[~np.isfinite(found)][0]}; must be a finite number for each resample"
        )
    return found
