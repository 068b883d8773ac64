"""Doubly robust estimators: the values of a model, corrected by importance sampling of its residuals.

With q_t = Q̂(s_t, a_t) of the logged action, v_t = Σ_a π_e(a|s_t) Q̂(s_t, a) and the residual δ_t = r_t + γ v_{t+1} − q_t,

    g^(j) = v_0 + Σ_{t<j} γ^t w_t δ_t

is the value after j steps of correction: g^(0) is that of the model alone, and g^(T) = DR is the model plus per-decision
importance sampling of δ. Both forms and all weights are those of `importance`; with self-normalised weights g^(T) is WDR, and
MAGIC is a mixture of all g^(j). The forward sum equals the backward recursion DR_t = v_t + ρ_t (r_t + γ DR_{t+1} − q_t).

How a trajectory ends. The value after its last step is `ModelValues.last`: 0 where the value ends with the log, at a
terminated step, and at a time limit if a finite-horizon value is meant. For the value of a process that continued after the
log was cut, it is the model's V̂ of the final observation. A trajectory that was cut counts as ended in either case: its
later value is `last`, not the rewards of trajectories that are longer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from evarl.errors import InputError
from evarl.ope import importance
from evarl.ope.importance import Share, Steps, WeightedEstimate, uniform_share
from evarl.ope.resampling import Summed, bootstrap

MOST_LENGTHS = 25
"""Default number of mixed estimates, at most: their covariance is estimated as well."""


class NoMixtureError(InputError):
    """MAGIC has no covariance to mix by: one trajectory has all of the share, or numbers overflow."""


class ModelValues(NamedTuple):
    """Q and V of a model at every logged step."""

    q: Float[np.ndarray, "N T"]
    """Of the logged action."""
    v: Float[np.ndarray, "N T"]
    last: Float[np.ndarray, " N"] | None = None
    """V after the last step where the value goes on, and 0 where it ends; 0 everywhere when not given."""


class Mixture(NamedTuple):
    """The MAGIC estimate and how it was mixed."""

    estimate: WeightedEstimate
    """With contributions for fixed weights."""
    lengths: tuple[int, ...]
    """j: the number of corrected steps of each g^(j)."""
    weights: Float[np.ndarray, " J"]
    candidates: Float[np.ndarray, " J"]
    """g^(j)."""
    bias: Float[np.ndarray, " J"]
    """Signed distance of g^(j) from the interval of g^(T)."""
    covariance: Float[np.ndarray, "J J"]
    """Of the g^(j)."""


def residuals(steps: Steps, model: ModelValues) -> Float[np.ndarray, "N T"]:
    """δ_t = r_t + γ v_{t+1} − q_t, where v after the last step is `model.last`; 0 in the padding."""
    q, v, last = model
    end = np.zeros((len(v), 1)) if last is None else last[:, None]
    going_on = np.concatenate([steps.mask[:, 1:], np.zeros_like(steps.mask[:, :1])], axis=1)
    following = np.where(going_on, np.concatenate([v[:, 1:], end], axis=1), end)
    return np.where(steps.mask, steps.reward + steps.discount * following - q, 0.0).astype(np.float64)


def doubly_robust(
    steps: Steps, model: ModelValues, share: Share | None = None, *, self_normalised: bool = False
) -> WeightedEstimate:
    """The doubly robust estimate: DR, or WDR if self-normalised. Shares are uniform by default.

    >>> reward, log_ratio = np.array([[1.0], [3.0]]), np.log([[0.5], [1.5]])
    >>> exact = ModelValues(q=reward, v=np.full((2, 1), 2.5))
    >>> found = doubly_robust(Steps(reward, log_ratio, np.ones((2, 1), bool), 1.0), exact)
    >>> round(float(found.value), 5), round(float(found.standard_error), 5)
    (2.5, 0.0)
    """
    share = uniform_share(steps) if share is None else share
    correction = importance.per_decision(_corrected(steps, model), share, self_normalised=self_normalised)
    return _with_contribution(correction, _first(steps, model) + correction.contribution, share)


def summed_doubly_robust(steps: Steps, model: ModelValues, *, self_normalised: bool = False) -> Summed:
    """`doubly_robust` as a function of sums over trajectories, denominators included; the model stays the same."""
    correction = importance.summed_per_decision(_corrected(steps, model), self_normalised=self_normalised)
    terms = np.concatenate([_first(steps, model)[:, None], correction.terms], axis=1)
    return Summed(terms, lambda sums: sums[:, 0] + correction.value(sums[:, 1:]))


def magic(
    rng: np.random.Generator,
    steps: Steps,
    model: ModelValues,
    share: Share | None = None,
    *,
    lengths: Sequence[int] | None = None,
    resamples: int = 200,
    confidence: float = 0.9,
) -> Mixture:
    """The mixture Σ_j x_j g^(j) with the least estimated mean squared error (MAGIC, Thomas & Brunskill, 2016):

        x = argmin xᵀ(Ω + b bᵀ)x  over  x ≥ 0, Σ_j x_j = 1.

    Ω is the covariance of the g^(j), from the linearised contributions of trajectories (the authors' weights have the same
    denominators, but are taken as constants). b_j is the distance from g^(j) to a percentile-bootstrap interval of WDR,
    widened to contain WDR itself, so that only a significant bias counts. Runs on the host, for one share at a time.
    `lengths` are the j to mix; 0 (the model) and T (WDR) are always included. By default all j, or if there are too many,
    some that are evenly spaced on a logarithmic scale.
    """
    share = uniform_share(steps) if share is None else share
    if not 1.0 / (share @ share) > 1.0 + 1e-12:
        raise NoMixtureError("share: all of it belongs to one trajectory; a covariance requires at least 2")
    chosen = _lengths(steps.mask.shape[1], lengths)
    changed = _corrected(steps, model)
    with np.errstate(divide="ignore"):
        terms = importance.step_terms(changed, np.log(share))
    parts = importance.ratio(importance.portions(terms, steps.discount, chosen), share[:, None])
    parts = np.where(share[:, None] > 0, _first(steps, model)[:, None] + parts, 0.0)
    if not np.isfinite(parts).all():
        raise NoMixtureError("share: is too small at some steps; a covariance requires larger shares")
    candidates = share @ parts
    deviation = share[:, None] * (parts - candidates[None])
    count = 1.0 / (share @ share)
    covariance = deviation.T @ deviation * count / (count - 1.0)
    again = bootstrap(summed_doubly_robust(steps, model, self_normalised=True), resamples, rng, share)
    low, high = np.quantile(again, [(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = min(low, candidates[-1]), max(high, candidates[-1])
    bias = np.where(candidates > high, candidates - high, np.where(candidates < low, candidates - low, 0.0))
    weights = least_quadratic(covariance + np.outer(bias, bias))
    mixed = importance.summarise(parts @ weights, share, importance.log_weights(steps)[:, -1])
    return Mixture(mixed, chosen, weights, candidates, bias, covariance)


def least_quadratic(matrix: Float[np.ndarray, "J J"]) -> Float[np.ndarray, " J"]:
    """The x ≥ 0 with Σ x = 1 that minimises xᵀMx, for positive semi-definite M; exact, by non-negative least squares.

    With M = AᵀA, the minimum of |Ax|² + (Σx − 1)² over x ≥ 0 is a multiple of it: at any sum s > 0 the first term is
    s² times its value at x/s, so the direction that is best for one sum is best for all. M = 0 gives the last entry.

    >>> least_quadratic(np.diag([1.0, 3.0]))
    array([0.75, 0.25])
    """
    scale = np.trace(matrix)
    if scale <= 0:
        return np.eye(len(matrix))[-1]
    value, vector = np.linalg.eigh((matrix + matrix.T) / (2.0 * scale))
    root = np.sqrt(np.maximum(value, 0.0))[:, None] * vector.T
    weights, _ = nnls(np.vstack([root, np.ones(len(matrix))]), np.append(np.zeros(len(matrix)), 1.0))
    return weights / weights.sum()


def _corrected(steps: Steps, model: ModelValues) -> Steps:
    """The steps with residuals in place of rewards."""
    return steps._replace(reward=residuals(steps, model))


def _first(steps: Steps, model: ModelValues) -> Float[np.ndarray, " N"]:
    return np.where(steps.mask[:, 0], model.v[:, 0], 0.0).astype(np.float64)


def _with_contribution(like: WeightedEstimate, contribution: Float[np.ndarray, " N"], share: Share) -> WeightedEstimate:
    value = float(share @ contribution)
    error = importance.standard_error(contribution, value, share)
    return like._replace(value=value, contribution=contribution, standard_error=error)


def _lengths(steps: int, chosen: Sequence[int] | None) -> tuple[int, ...]:
    if chosen is None:
        few = np.geomspace(1, max(steps, 1), MOST_LENGTHS - 1)
        return (0, *sorted({int(j) for j in np.round(few)})) if steps >= MOST_LENGTHS else tuple(range(steps + 1))
    for j in chosen:
        if not 0 <= j <= steps:
            raise InputError(f"lengths: {j} is not allowed; must be 0 to {steps}, the number of corrected steps")
    return tuple(sorted({0, *chosen, steps}))
