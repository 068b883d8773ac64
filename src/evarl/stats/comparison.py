"""Stratified bootstrap, and comparison of two training methods from independent runs or runs that share random seeds.

The runs of each task are resampled with replacement, independently of other tasks. `scipy.stats.bootstrap` has no strata, and
does not bound the memory that resamples take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs
from evarl.stats.inputs import Scores
from evarl.stats.intervals import Interval, percentile_interval, standard_error, t_interval

Statistic = Callable[..., Any]
"""A function `statistic(scores, axis=axis)` that reduces those axes and keeps the first, over resamples [B].

If all tasks have the same number of runs, scores is [B, runs, tasks] and axis (-2, -1), so that a statistic can treat tasks
separately: `lambda scores, axis: scores.mean(-2).min(-1)` is the mean of the worst task. Otherwise scores is [B, runs of all
tasks] and axis (-1,): each run then has the same weight. `iqm`, `np.mean`, `np.median` and other reductions can be passed."""

BLOCK = 2**22
"""Number of scores that are held in memory at a time."""
EXACT_RUNS = 16
"""Up to this number of runs, all sign flips are enumerated."""


@dataclass(frozen=True)
class PairedDifference:
    """The difference x − y over runs that share their random seeds."""

    runs: int
    mean: float
    standard_error: float
    t: Interval
    """Student's t interval for the mean difference."""
    bootstrap: Interval
    """Percentile interval for the mean difference; too narrow for few runs."""
    p_value: float
    """Two-sided, of the sign-flip test."""
    exact: bool
    """Whether all sign flips were enumerated."""


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


def probability_of_improvement(
    x: Scores, y: Scores, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Probability of improvement with a bootstrap interval: the mean over tasks of P(X > Y) + ½ P(X = Y).

    Within a task it is Mann and Whitney's U / (m n). The runs of x and of y are resampled independently within each task; their
    numbers may differ. If every run of x is above every run of y, the interval is the point 1 for any number of runs.

    >>> probability_of_improvement([1.0, 2.0, 3.0], [0.0, 2.0]).estimate
    0.75
    """
    inputs.check_confidence(confidence)
    inputs.check_sampling(resamples, seed)
    ours, theirs = inputs.tasks("x", x), inputs.tasks("y", y)
    if ours.keys() != theirs.keys():
        raise InputError(f"y: has tasks {list(theirs)}; must be {list(ours)}, the tasks of x")
    rng = np.random.default_rng(seed)
    estimate, distribution = 0.0, np.zeros(resamples)
    for task, mine in ours.items():
        other = theirs[task]
        wins = (mine[:, None] > other) + 0.5 * (mine[:, None] == other)
        estimate += float(wins.mean())
        # A resample is given by the number of times each run was drawn, so that wins are counted once.
        first, second = _counts(rng, len(mine), resamples), _counts(rng, len(other), resamples)
        distribution += np.sum((first @ wins) * second, axis=1) / wins.size
    return percentile_interval(estimate / len(ours), distribution / len(ours), confidence)


def paired_difference(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> PairedDifference:
    """Paired comparison of scores [runs] of x and y, where run i of both has the same random seed.

    >>> found = paired_difference([3.0, 4.0, 8.0], [2.0, 2.0, 5.0])
    >>> found.mean, round(found.standard_error, 3), found.p_value, found.exact
    (2.0, 0.577, 0.25, True)
    """
    mine, other = inputs.pair(("x", "y"), x, y, at_least=2)
    differences = mine - other
    return PairedDifference(
        runs=len(differences),
        mean=float(differences.mean()),
        standard_error=standard_error(differences),
        t=t_interval(differences, confidence),
        bootstrap=bootstrap_interval(differences, np.mean, confidence, resamples, seed),
        p_value=sign_flip_p_value(differences, resamples, seed),
        exact=len(differences) <= EXACT_RUNS,
    )


def sign_flip_p_value(differences: ArrayLike, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of the hypothesis that differences dᵢ are symmetric around 0: P(|Σ sᵢ dᵢ| ≥ |Σ dᵢ|), sᵢ = ±1.

    For up to 16 runs all 2ⁿ signs are enumerated; the p-value is then at least 2 / 2ⁿ, which is 0.0625 for 5 runs. For more
    runs it is (1 + random signs that are as extreme) / (1 + resamples), which keeps the level of the test.

    >>> sign_flip_p_value([1.0, 2.0, 3.0, -0.5])
    0.25
    """
    inputs.check_sampling(resamples, seed)
    d = inputs.vector("differences", differences, at_least=2)
    # Sums in another order differ in their last digits, and equally extreme ones must count.
    least = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    if len(d) <= EXACT_RUNS:
        # The last sign is fixed: flipping all signs gives the same |Σ|.
        flipped = np.arange(2 ** (len(d) - 1))[:, None] >> np.arange(len(d)) & 1
        return float(np.mean(np.abs((1 - 2 * flipped) @ d) >= least))
    flipped = np.random.default_rng([seed, 1]).integers(2, size=(resamples, len(d)), dtype=np.int8)
    return float((1 + np.sum(np.abs((1 - 2 * flipped) @ d) >= least)) / (1 + resamples))


def _counts(rng: np.random.Generator, runs: int, resamples: int) -> Float[np.ndarray, "{resamples} {runs}"]:
    """Number of times each run was drawn, in each resample."""
    drawn = rng.integers(runs, size=(resamples, runs)) + runs * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * runs).reshape(resamples, runs).astype(np.float64)


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
