"""Errors of predictions against the truth, for one seed and averaged over seeds. Plain NumPy; what is undefined is None.

Errors are averaged over seeds before a root or a ratio is taken of them; for the reason see `evarl.stats.ratio`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from evarl.stats import spearman
from evarl.truth.monte_carlo import Truth, mean_squared_error


@dataclass(frozen=True)
class MeanAndError:
    """A mean and its standard error; None where they are undefined."""

    mean: float | None
    standard_error: float | None = None


UNKNOWN = MeanAndError(None)


@dataclass(frozen=True)
class Score:
    """Errors of one predictor at the states of one seed."""

    mae: float
    """Mean |V̂ − V̄|, the noise of the true values V̄ included."""
    mse: float
    """Mean (V̂ − V̄)² − se², unbiased for the mean of (V̂ − V)² and therefore sometimes negative."""
    bias: float
    """Mean V̂ − V̄."""
    rank: float | None
    """Spearman's rank correlation over the states."""
    noise: float
    """Standard deviation of `mse` for a perfect predictor: √(2 Σ se⁴) / Q."""


def score(truth: Truth, predictions: Float[np.ndarray, "J Q"]) -> Score:
    """Errors of a predictor with J predictions for each of Q states, averaged over both.

    >>> truth = Truth(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5]), np.array([1.0, 2.0, 3.0]), rollouts=4)
    >>> found = score(truth, np.array([[2.0, 3.0, 4.0]]))
    >>> found.mae, found.mse, found.bias, found.rank
    (1.0, 0.75, 1.0, 1.0)
    """
    error = np.asarray(predictions, np.float64) - truth.value
    return Score(
        mae=float(np.abs(error).mean()),
        mse=float(np.mean([mean_squared_error(truth, row) for row in predictions])),
        bias=float(error.mean()),
        rank=average([spearman(row, truth.value) for row in predictions]).mean,
        noise=float(np.sqrt(2 * np.sum(truth.standard_error**4)) / error.shape[1]),
    )


def average(values: Sequence[float | None] | np.ndarray, error: float | None = None) -> MeanAndError:
    """Mean of the known values and its standard error; that of a single value is `error`.

    >>> average([1.0, None, 3.0])
    MeanAndError(mean=2.0, standard_error=1.0)
    """
    known = np.array([value for value in values if value is not None])
    if len(known) == 0:
        return UNKNOWN
    return MeanAndError(float(known.mean()), float(known.std(ddof=1) / len(known) ** 0.5) if len(known) > 1 else error)


def over_seeds(values: Sequence[MeanAndError], same: bool) -> MeanAndError:
    """The average over seeds, with the standard error over them or of a single one; if all are the same value, that value."""
    return values[0] if same else average([one.mean for one in values], values[0].standard_error)


def root(squared: MeanAndError) -> MeanAndError:
    """√max(0, x); the standard error is propagated by the derivative.

    >>> root(MeanAndError(4.0, 1.0))
    MeanAndError(mean=2.0, standard_error=0.25)
    """
    if squared.mean is None or squared.mean <= 0:
        return MeanAndError(None if squared.mean is None else 0.0)
    mean = squared.mean**0.5
    return MeanAndError(mean, None if squared.standard_error is None else squared.standard_error / (2 * mean))


def relative_improvement(errors: Float[np.ndarray, " S"], reference: Float[np.ndarray, " S"]) -> MeanAndError:
    """1 − mean(errors) / mean(reference) over S seeds, with the jackknife's standard error.

    >>> relative_improvement(np.array([1.0, 3.0]), np.array([5.0, 3.0]))
    MeanAndError(mean=0.5, standard_error=0.4)
    """
    if reference.mean() <= 0:
        return UNKNOWN
    mean = 1 - float(errors.mean() / reference.mean())
    seeds, rest = len(errors), reference.sum() - reference
    if seeds < 2 or rest.min() <= 0:
        return MeanAndError(mean)
    left_out = 1 - (errors.sum() - errors) / rest
    return MeanAndError(mean, float(np.sqrt((seeds - 1) * left_out.var())))


class Skill(NamedTuple):
    """1 − MSE(evaluator) / MSE(best predictor without Ξ): 1 is perfect, 0 as good, negative worse."""

    estimate: MeanAndError
    best_without: str | None
    """The predictor it is compared with."""


def skill(evaluator: Sequence[Score], without: Mapping[str, Sequence[Score]]) -> Skill:
    """Skill over seeds, from the scores of the evaluator and of predictors without Ξ.

    The best predictor is chosen once, by its average over seeds. The skill is unknown where its average error is within
    twice the Monte Carlo noise of it, and so cannot be told from 0.

    >>> scores = {mse: Score(mae=0.0, mse=mse, bias=0.0, rank=None, noise=0.0) for mse in (1.0, 3.0, 5.0, 9.0)}
    >>> skill([scores[1], scores[3]], {"critic": [scores[9], scores[1]], "mean": [scores[5], scores[3]]}).best_without
    'mean'
    """
    if not without:
        return Skill(UNKNOWN, None)
    squared = {name: np.array([one.mse for one in column]) for name, column in without.items()}
    best = min(squared, key=lambda name: np.mean(squared[name]))
    noise = np.array([one.noise for one in without[best]])
    known = squared[best].mean() > 2 * float(np.sqrt(np.sum(noise**2))) / len(noise)
    errors = np.array([one.mse for one in evaluator])
    return Skill(relative_improvement(errors, squared[best]) if known else UNKNOWN, best)
