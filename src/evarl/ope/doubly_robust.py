"""Doubly robust estimators: importance sampling of what a model of the values gets wrong.

With q_t = Q̂(s_t, a_t) of the logged action, v_t = Σ_a π_e(a|s_t) Q̂(s_t, a) and the residual δ_t = r_t + γ v_{t+1} − q_t,

    g^(j) = v_0 + Σ_{t<j} γ^t w_t δ_t

is the model's value after j steps of correction: g^(0) is the model's, and g^(T) = DR is per-decision importance sampling of
δ on top of it. Both forms and all weights are those of `importance`; with self-normalised weights g^(T) is WDR, and MAGIC
blends all j. The forward sum equals the backward recursion DR_t = v_t + ρ_t (r_t + γ DR_{t+1} − q_t).

How a trajectory ends. After its last step comes `last_value`, by default 0: the value ends with the log, as it does at a
true end, and at a time limit if a finite-horizon value is meant. For the value of a process that went on unseen, give the
model's V̂ of the final observation for trajectories that were cut, and 0 for those that terminated. A trajectory that was
cut counts as ended in either case: what came after it is `last_value`, not what others earned later.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.optimize import nnls

from evarl.errors import InputError
from evarl.ope.importance import (
    Estimate,
    Scalar,
    StepSums,
    per_decision,
    resampled_per_decision,
    resampled_shares,
    standard_error,
    step_columns,
    step_values,
    sums_for,
    total,
    uniform_share,
)
from evarl.worlds.world import Key

MOST_LENGTHS = 25
"""Of blended estimates, unless told: their covariance has to be estimated as well."""


class Blend(NamedTuple):
    """MAGIC's answer and how it was mixed."""

    estimate: Estimate
    """With contributions for fixed weights."""
    lengths: tuple[int, ...]
    """j: how many steps of each g^(j) are corrected."""
    weights: Float[np.ndarray, " J"]
    candidates: Float[np.ndarray, " J"]
    """g^(j)."""
    bias: Float[np.ndarray, " J"]
    """By how much g^(j) is outside the interval of g^(T), with sign."""
    covariance: Float[np.ndarray, "J J"]
    """Of the g^(j)."""


def residuals(
    reward: Float[Array, "N T"],
    q: Float[Array, "N T"],
    v: Float[Array, "N T"],
    mask: Bool[Array, "N T"],
    discount: Scalar,
    last_value: Float[Array, " N"] | None = None,
) -> Float[Array, "N T"]:
    """δ_t = r_t + γ v_{t+1} − q_t, where v after the last step is `last_value`; 0 in the padding."""
    end = jnp.zeros_like(v[:, 0]) if last_value is None else last_value
    going_on = jnp.concatenate([mask[:, 1:], jnp.zeros_like(mask[:, :1])], axis=1)
    following = jnp.concatenate([v[:, 1:], end[:, None]], axis=1)
    following = jnp.where(going_on, following, end[:, None])
    return jnp.where(mask, reward + jnp.asarray(discount, v.dtype) * following - q, 0.0)


@partial(jax.jit, static_argnames="self_normalised")
def doubly_robust(
    reward: Float[Array, "N T"],
    log_ratio: Float[Array, "N T"],
    mask: Bool[Array, "N T"],
    q: Float[Array, "N T"],
    v: Float[Array, "N T"],
    discount: Scalar,
    share: Float[Array, " N"] | None = None,
    *,
    self_normalised: bool = False,
    clip: Scalar | None = None,
    last_value: Float[Array, " N"] | None = None,
) -> Estimate:
    """DR, or WDR if self-normalised.

    >>> one, mask = jnp.ones((2, 1)), jnp.ones((2, 1), bool)
    >>> reward, log_ratio = jnp.asarray([[1.0], [3.0]]), jnp.log(jnp.asarray([[0.5], [1.5]]))
    >>> exact = doubly_robust(reward, log_ratio, mask, q=reward, v=2.5 * one, discount=1.0)
    >>> round(float(exact.value), 5), round(float(exact.standard_error), 5)
    (2.5, 0.0)
    """
    share = uniform_share(v) if share is None else share
    residual = residuals(reward, q, v, mask, discount, last_value)
    correction = per_decision(residual, log_ratio, mask, discount, share, self_normalised=self_normalised, clip=clip)
    return _with_contribution(correction, _first(v, mask) + correction.contribution, share)


@partial(jax.jit, static_argnames="self_normalised")
def resampled_doubly_robust(
    reward: Float[Array, "N T"],
    log_ratio: Float[Array, "N T"],
    mask: Bool[Array, "N T"],
    q: Float[Array, "N T"],
    v: Float[Array, "N T"],
    discount: Scalar,
    shares: Float[Array, "B N"],
    *,
    self_normalised: bool = False,
    clip: Scalar | None = None,
    last_value: Float[Array, " N"] | None = None,
) -> Float[Array, " B"]:
    """The values of `doubly_robust` for many shares of the same trajectories, with the same model."""
    residual = residuals(reward, q, v, mask, discount, last_value)
    correction = resampled_per_decision(
        residual, log_ratio, mask, discount, shares, self_normalised=self_normalised, clip=clip
    )
    return total(shares, _first(v, mask)) + correction


def magic(
    key: Key,
    reward: Float[Array, "N T"],
    log_ratio: Float[Array, "N T"],
    mask: Bool[Array, "N T"],
    q: Float[Array, "N T"],
    v: Float[Array, "N T"],
    discount: Scalar,
    share: Float[Array, " N"] | None = None,
    *,
    clip: Scalar | None = None,
    last_value: Float[Array, " N"] | None = None,
    lengths: Sequence[int] | None = None,
    resamples: int = 200,
    confidence: float = 0.9,
) -> Blend:
    """Thomas & Brunskill (2016): the mixture Σ_j x_j g^(j) that is estimated to have the least mean squared error,

        x = argmin xᵀ(Ω + b bᵀ)x  over  x ≥ 0, Σ_j x_j = 1.

    Ω is the covariance of the g^(j), from the linearised contributions of trajectories (the authors' weights have the same
    denominators, but are taken as constants). b_j is the distance from g^(j) to a percentile-bootstrap interval of WDR,
    widened to contain WDR itself: a bias is believed only where it cannot be chance. Runs on the host, for one share at a
    time. `lengths` are the j to blend; 0 (the model) and T (WDR) always are. If there are too many, some, evenly spaced in
    their logarithms.
    """
    reward, log_ratio, mask, q, v = (jnp.asarray(x) for x in (reward, log_ratio, mask, q, v))
    share = uniform_share(v) if share is None else jnp.asarray(share)
    if not float(1.0 / total(share, share)) > 1.0:
        raise InputError("share: all of it belongs to one trajectory; a covariance wants at least 2")
    chosen = _lengths(v.shape[1], lengths)
    wdr = doubly_robust(
        reward, log_ratio, mask, q, v, discount, share, self_normalised=True, clip=clip, last_value=last_value
    )
    shares = resampled_shares(key, share, resamples)
    columns = _columns(reward, log_ratio, mask, q, v, discount, shares=share[None], clip=clip, last_value=last_value)
    contribution, again = _blended(columns, _first(v, mask), share, shares, discount, chosen)
    parts, spread = np.asarray(contribution, np.float64), np.asarray(share, np.float64)
    candidates = spread @ parts
    deviation = spread[:, None] * (parts - candidates)
    count = 1.0 / np.sum(spread**2)
    covariance = deviation.T @ deviation * count / (count - 1.0)
    low, high = np.quantile(np.asarray(again[:, -1], np.float64), [(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = min(low, candidates[-1]), max(high, candidates[-1])
    bias = np.where(candidates > high, candidates - high, np.where(candidates < low, candidates - low, 0.0))
    weights = least_quadratic(covariance + np.outer(bias, bias))
    mixed = total(contribution, jnp.asarray(weights, v.dtype))
    return Blend(_with_contribution(wdr, mixed, share), chosen, weights, candidates, bias, covariance)


def resampled_magic(
    blend: Blend,
    reward: Float[Array, "N T"],
    log_ratio: Float[Array, "N T"],
    mask: Bool[Array, "N T"],
    q: Float[Array, "N T"],
    v: Float[Array, "N T"],
    discount: Scalar,
    shares: Float[Array, "B N"],
    *,
    clip: Scalar | None = None,
    last_value: Float[Array, " N"] | None = None,
) -> Float[Array, " B"]:
    """The values of this mixture for many shares: denominators are computed anew, the mixture is not."""
    columns = _columns(reward, log_ratio, mask, q, v, discount, shares=shares, clip=clip, last_value=last_value)
    values = _candidates(columns, _first(jnp.asarray(v), jnp.asarray(mask)), shares, discount, blend.lengths)
    return total(values, jnp.asarray(blend.weights, values.dtype))


def least_quadratic(matrix: Float[np.ndarray, "J J"]) -> Float[np.ndarray, " J"]:
    """The x ≥ 0 with Σ x = 1 for which xᵀMx is least, for positive semi-definite M; exact, by non-negative least squares.

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


def _first(v: Float[Array, "N T"], mask: Bool[Array, "N T"]) -> Float[Array, " N"]:
    return jnp.where(mask[:, 0], v[:, 0], 0.0)


def _with_contribution(like: Estimate, contribution: Float[Array, " N"], share: Float[Array, " N"]) -> Estimate:
    value = total(share, contribution)
    return like._replace(
        value=value, contribution=contribution, standard_error=standard_error(contribution, value, share)
    )


def _lengths(steps: int, wanted: Sequence[int] | None) -> tuple[int, ...]:
    if wanted is None:
        few = np.geomspace(1, max(steps, 1), MOST_LENGTHS - 1)
        return (0, *sorted({int(j) for j in np.round(few)})) if steps >= MOST_LENGTHS else tuple(range(steps + 1))
    for j in wanted:
        if not 0 <= j <= steps:
            raise InputError(f"lengths: {j} is not allowed; want 0 … {steps}, steps that are corrected")
    return tuple(sorted({0, *wanted, steps}))


@jax.jit
def _columns(
    reward: Array,
    log_ratio: Array,
    mask: Array,
    q: Array,
    v: Array,
    discount: Scalar,
    shares: Array,
    clip: Scalar | None,
    last_value: Array | None,
) -> StepSums:
    return step_columns(residuals(reward, q, v, mask, discount, last_value), log_ratio, mask, shares, clip)


def _corrections(sums: StepSums, discount: Scalar, lengths: tuple[int, ...]) -> Float[Array, " J"]:
    """Σ_{t<j} γ^t S_t R_t for each j."""
    so_far = jnp.cumsum(step_values(sums, discount))
    return jnp.concatenate([jnp.zeros_like(so_far[:1]), so_far])[np.asarray(lengths)]


@partial(jax.jit, static_argnames="lengths")
def _candidates(
    columns: StepSums, first: Array, shares: Array, discount: Scalar, lengths: tuple[int, ...]
) -> Float[Array, "B J"]:
    """g^(j) for each share."""
    corrections = jax.vmap(lambda sums: _corrections(sums, discount, lengths), in_axes=1)(sums_for(columns, shares))
    return total(shares, first)[:, None] + corrections


@partial(jax.jit, static_argnames="lengths")
def _blended(
    columns: StepSums, first: Array, share: Array, shares: Array, discount: Scalar, lengths: tuple[int, ...]
) -> tuple[Float[Array, "N J"], Float[Array, "B J"]]:
    """Contributions of trajectories to each g^(j), and the g^(j) of bootstrap samples."""
    sums = jax.tree.map(lambda column: total(column, share), columns)
    slopes = jax.jacrev(lambda sums: _corrections(sums, discount, lengths))(sums)  # [J, T]
    parts = jax.tree.map(lambda slope, column: total(slope, column), slopes, columns)
    contribution = first[:, None] + (parts.weighted_reward + parts.weight + parts.going_on).T
    return contribution, _candidates(columns, first, shares, discount, lengths)
