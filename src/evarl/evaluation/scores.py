"""How far predictions are from the truth, for one seed and over seeds. Plain NumPy; what is undefined is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from evarl.truth.monte_carlo import Truth, mean_squared_error


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error."""

    mean: float | None
    standard_error: float | None = None


@dataclass(frozen=True)
class Score:
    """One predictor against the truth at the states of one seed."""

    mae: float
    """Mean |V̂ − V̄|, in which the noise of V̄ is contained."""
    mse: float
    """Mean (V̂ − V̄)² − se², unbiased for the mean of (V̂ − V)² and therefore sometimes negative."""
    bias: float
    """Mean V̂ − V̄."""
    rank: float | None
    """Spearman's rank correlation over the states."""
    noise: float
    """Standard deviation that `mse` would have if the predictor were perfect: √(2 Σ se⁴) / Q."""


def score(truth: Truth, predictions: Float[np.ndarray, "J Q"]) -> Score:
    """Score a predictor that says J things about each of Q states; its errors are averaged over them.

    >>> truth = Truth(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5]), np.array([1.0, 2.0, 3.0]), rollouts=4)
    >>> found = score(truth, np.array([[2.0, 3.0, 4.0]]))
    >>> found.mae, found.mse, found.bias, found.rank
    (1.0, 0.75, 1.0, 1.0)
    """
    error = np.asarray(predictions, np.float64) - truth.value
    ranks = [rank_correlation(row, truth.value) for row in predictions]
    known = [rank for rank in ranks if rank is not None]
    return Score(
        mae=float(np.abs(error).mean()),
        mse=float(np.mean([mean_squared_error(truth, row) for row in predictions])),
        bias=float(error.mean()),
        rank=float(np.mean(known)) if known else None,
        noise=float(np.sqrt(2 * np.sum(truth.standard_error**4)) / error.shape[1]),
    )


def rank_correlation(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float | None:
    """Spearman's rank correlation; None for fewer than 3 pairs and where one side is constant.

    >>> rank_correlation([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 8.0])
    0.8
    """
    if len(a) < 3 or _constant(a) or _constant(b):
        return None
    return round(float(np.corrcoef(_ranks(a), _ranks(b))[0, 1]), 12)


def average(values: Sequence[float | None]) -> Estimate:
    """Mean of those that are known, and its standard error where there are at least 2.

    >>> average([1.0, None, 3.0])
    Estimate(mean=2.0, standard_error=1.0)
    """
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return Estimate(None)
    return Estimate(float(known.mean()), float(known.std(ddof=1) / len(known) ** 0.5) if len(known) > 1 else None)


def root(squared: Estimate) -> Estimate:
    """√max(0, x); the standard error is carried over by the derivative. Roots are taken after averaging over seeds.

    >>> root(Estimate(4.0, 1.0))
    Estimate(mean=2.0, standard_error=0.25)
    """
    if squared.mean is None or squared.mean <= 0:
        return Estimate(None if squared.mean is None else 0.0)
    mean = squared.mean**0.5
    return Estimate(mean, None if squared.standard_error is None else squared.standard_error / (2 * mean))


@dataclass(frozen=True)
class Skill:
    """1 − MSE(evaluator) / MSE(best predictor without Ξ): 1 is perfect, 0 as good, negative worse."""

    estimate: Estimate
    best_without: str | None
    """The predictor it is compared with."""


def skill(evaluator: Sequence[Score], without: Mapping[str, Sequence[Score]]) -> Skill:
    """Skill over seeds, from mean squared errors that are averaged before they are divided.

    The ratio for a single seed would have no finite variance where there is one start state. The best predictor is
    chosen once, by its average; the standard error is the jackknife's over seeds. Where the best predictor's error
    cannot be told from 0 (it is within twice its Monte-Carlo noise) there is no skill to speak of.
    """
    if not without:
        return Skill(Estimate(None), None)
    best = min(without, key=lambda name: np.mean([s.mse for s in without[name]]))
    above = np.array([s.mse for s in evaluator])
    below = np.array([s.mse for s in without[best]])
    noise = float(np.sqrt(np.sum([s.noise**2 for s in without[best]]))) / len(below)
    if below.mean() <= 2 * noise or below.mean() <= 0:
        return Skill(Estimate(None), best)
    mean = 1 - float(above.mean() / below.mean())
    n, rest = len(above), below.sum() - below
    if n < 2 or rest.min() <= 0:
        return Skill(Estimate(mean), best)
    left_out = 1 - (above.sum() - above) / rest
    return Skill(Estimate(mean, float(np.sqrt((n - 1) * left_out.var()))), best)


def _ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Equal values share the mean of their ranks."""
    _, which, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[which]


def _constant(values: Sequence[float] | np.ndarray) -> bool:
    """Up to what float32 leaves of a constant."""
    return bool(np.ptp(values) <= 1e-6 * max(1.0, float(np.abs(values).max())))
