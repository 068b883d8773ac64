"""Importance sampling: the value of a target policy from trajectories of other policies.

With ρ_t = π_e(a_t|s_t) / π_b(a_t|s_t) of the *logged* action, w_t = Π_{k≤t} ρ_k, G = Σ_t γ^t r_t, and shares p_i ≥ 0 of the
trajectories with Σ_i p_i = 1,

    trajectory-wise   Σ_i p_i w_i G_i                    (TIS)
      self-normalised Σ_i p_i w_i G_i / Σ_i p_i w_i      (WIS)
    per-decision      Σ_i p_i Σ_t γ^t w_it r_it          (PDIS)
      self-normalised Σ_t γ^t S_t R_t                    (WPDIS)

where w_i is the weight at the last step of the trajectory. In WPDIS, R_t = Σ_i p_i w_it r_it / Σ_i p_i w_it is over the
trajectories alive at t, and S_t is the probability that a trajectory of the target policy is alive at t. The logged
trajectories have another one, so S_t is estimated too, as a product of self-normalised survival probabilities. Whether a
trajectory reaches step t is known before its action at t, so the weights of these are those of t − 1:

    S_t = Π_{k≤t} [Σ_{i alive at k} p_i w_i,k−1 / Σ_{i alive at k−1} p_i w_i,k−1],   w_−1 = 1, all alive at −1.

With π_e = π_b the product telescopes to the share alive and the estimate is the Monte-Carlo mean; with equal lengths
S_t = 1; as N grows, R_t S_t → E_e[r_t; alive at t] whatever the lengths.

The shares define the value that is estimated: uniform ones give J; uniform over the trajectories that start at s, or a
kernel around s, give V(s). Everything is computed on the host in float64, weights in log space, and those that are
self-normalised in units of the largest one at each step.

A policy that never takes a logged action has log-ratio −∞ and weight 0 there. Where all weights are 0, a self-normalised
estimate 0/0 is defined as 0, and the effective sample size is 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from evarl.ope.resampling import Summed

Share = Float[np.ndarray, " N"]
"""The share of each trajectory."""
Shares = Float[np.ndarray, "B N"]
"""Many of them."""


class Steps(NamedTuple):
    """The logged steps as importance sampling uses them."""

    reward: Float[np.ndarray, "N T"]
    log_ratio: Float[np.ndarray, "N T"]
    """log π_e − log π_b of the logged actions; limited from above if the estimate is to be clipped."""
    mask: Bool[np.ndarray, "N T"]
    """Which steps exist; what it leaves out is padding and may hold anything."""
    discount: float
    """γ."""


class WeightedEstimate(NamedTuple):
    """A value with its standard error and the concentration of its weights."""

    value: float
    """Σ_i p_i x_i."""
    contribution: Float[np.ndarray, " N"]
    """x_i. For self-normalised forms the linearisation: x_i − value is the influence of trajectory i; x_i of a trajectory
    without a share is 0."""
    standard_error: float
    """√(Σ_i p_i² (x_i − value)² · n/(n−1)), n = 1/Σ p_i²: the usual one when shares are equal. ∞ for one trajectory."""
    effective_sample_size: float
    """(Σ_i p_i w_i)² / Σ_i (p_i w_i)², of the weights of whole trajectories."""
    largest_weight_share: float
    """max_i p_i w_i / Σ_i p_i w_i."""


class StepSums(NamedTuple):
    """Sums over trajectories for each step, or with the trajectories as the first axis, their terms.

    Each step has its own unit of weight, which cancels in `step_values`.
    """

    weighted_reward: Float[np.ndarray, "*N T"]
    """p w_t r_t of the trajectories alive at t."""
    weight: Float[np.ndarray, "*N T"]
    """p w_t of the trajectories alive at t."""
    going_on: Float[np.ndarray, "*N T"]
    """p w_{t−1} of the trajectories alive at t, in the unit of step t − 1."""


def trajectory_wise(steps: Steps, share: Share | None = None, *, self_normalised: bool = False) -> WeightedEstimate:
    """Trajectory-wise importance sampling: TIS, or WIS if self-normalised. Shares are uniform by default.

    >>> steps = Steps(np.array([[1.0], [3.0]]), np.log([[0.5], [1.5]]), np.ones((2, 1), bool), 1.0)
    >>> round(float(trajectory_wise(steps).value), 5)
    2.5
    """
    share = uniform_share(steps) if share is None else share
    weights, returns = log_weights(steps)[:, -1], discounted_returns(steps)
    if not self_normalised:
        return summarise(times_weight(weights, returns), share, weights)
    weight = _relative(weights[:, None], _log(share))[:, 0]
    value = ratio(weight @ returns, weight.sum())
    influence = ratio(ratio(weight, weight.sum()) * (returns - value), share)
    return summarise(np.where(share > 0, value + influence, 0.0), share, weights)


def per_decision(steps: Steps, share: Share | None = None, *, self_normalised: bool = False) -> WeightedEstimate:
    """Per-decision importance sampling: PDIS, or WPDIS if self-normalised. Shares are uniform by default.

    >>> steps = Steps(np.ones((2, 2)), np.log([[0.5, 1.0], [1.5, 2.0]]), np.ones((2, 2), bool), 1.0)
    >>> [round(float(per_decision(steps, self_normalised=x).value), 5) for x in (False, True)]
    [2.75, 2.0]
    """
    share = uniform_share(steps) if share is None else share
    weights = log_weights(steps)
    if not self_normalised:
        contribution = times_weight(weights, _rewards(steps)) @ discounts(steps)
    else:
        terms = step_terms(steps, _log(share))
        contribution = ratio(portions(terms, steps.discount, [steps.mask.shape[1]])[:, 0], share)
    return summarise(contribution, share, weights[:, -1])


def summed_trajectory_wise(steps: Steps, *, self_normalised: bool = False) -> Summed:
    """`trajectory_wise` as a function of sums over trajectories, denominators included."""
    weights, returns = log_weights(steps)[:, -1], discounted_returns(steps)
    if not self_normalised:
        return Summed.mean(times_weight(weights, returns))
    weight = _relative(weights[:, None], np.zeros(len(weights)))[:, 0]
    return Summed(np.stack([weight * returns, weight], axis=1), lambda sums: ratio(sums[:, 0], sums[:, 1]))


def summed_per_decision(steps: Steps, *, self_normalised: bool = False) -> Summed:
    """`per_decision` as a function of sums over trajectories, denominators included."""
    if not self_normalised:
        return Summed.mean(per_decision(steps).contribution)
    terms = step_terms(steps, np.zeros(len(steps.mask)))
    return Summed(np.concatenate(terms, axis=1), lambda sums: step_values(split(sums), steps.discount).sum(axis=1))


# --- Parts that other estimators are made of


def log_weights(steps: Steps) -> Float[np.ndarray, "N T"]:
    """Log-weights log w_t; a trajectory that has ended keeps its last weight."""
    return np.where(steps.mask, steps.log_ratio, 0.0).cumsum(axis=1, dtype=np.float64)


def discounts(steps: Steps) -> Float[np.ndarray, " T"]:
    """γ^t."""
    return np.float64(steps.discount) ** np.arange(steps.mask.shape[1])


def discounted_returns(steps: Steps) -> Float[np.ndarray, " N"]:
    """Σ_t γ^t r_t."""
    return _rewards(steps) @ discounts(steps)


@np.errstate(over="ignore", invalid="ignore")
def times_weight(log_weight: Float[np.ndarray, "N *T"], x: Float[np.ndarray, "N *T"]) -> Float[np.ndarray, "N *T"]:
    """w·x, and 0 for x = 0 even where w overflows."""
    return np.where(x == 0, 0.0, np.exp(log_weight) * x)


def step_terms(steps: Steps, log_share: Float[np.ndarray, " N"]) -> StepSums:
    """[N, T]: what each trajectory adds to the sums; per unit of share with log-shares 0."""
    weight = _relative(log_weights(steps), log_share, steps.mask)
    before = np.concatenate([np.exp(log_share)[:, None], weight[:, :-1]], axis=1)
    return StepSums(weight * _rewards(steps), weight, np.where(steps.mask, before, 0.0))


def split(sums: Float[np.ndarray, "B K"]) -> StepSums:
    """The three kinds of sums, side by side in `sums`."""
    return StepSums(*np.split(sums, 3, axis=1))


def step_values(sums: StepSums, discount: float) -> Float[np.ndarray, "*B T"]:
    """γ^t S_t R_t."""
    return _reached(sums, discount) * ratio(sums.weighted_reward, sums.weight)


def portions(terms: StepSums, discount: float, lengths: Sequence[int]) -> Float[np.ndarray, "N J"]:
    """What each trajectory adds to the sum of the first j step values, for each of the lengths j.

    The sum is homogeneous of degree 1 in the `StepSums`, so the derivatives with respect to these times the terms of a
    trajectory add up to its part: Σ_{t<j} [γ^t S_t m_it / W_t + (C_j − C_t)(g_it / g_t − w_it / W_t)], with C_t the sum of
    the first t step values, and W_t and g_t those of weight and going_on.
    """
    sums = StepSums(*(column.sum(axis=0) for column in terms))
    so_far = np.concatenate([[0.0], step_values(sums, discount).cumsum()])
    shift = ratio(terms.going_on, sums.going_on[None]) - ratio(terms.weight, sums.weight[None])
    own = ratio(_reached(sums, discount), sums.weight)[None] * terms.weighted_reward - so_far[None, :-1] * shift
    start = np.zeros((len(shift), 1))
    own, shift = (np.concatenate([start, x.cumsum(axis=1)], axis=1)[:, list(lengths)] for x in (own, shift))
    return own + so_far[list(lengths)][None] * shift


@np.errstate(over="ignore", invalid="ignore")
def summarise(
    contribution: Float[np.ndarray, " N"], share: Share, log_weight: Float[np.ndarray, " N"]
) -> WeightedEstimate:
    """Value, standard error and concentration of the weights of whole trajectories."""
    value = share @ contribution
    weight = _relative(log_weight[:, None], _log(share))[:, 0]  # relative to the largest, so no square underflows
    size, largest = ratio(weight.sum() ** 2, weight @ weight), ratio(weight.max(), weight.sum())
    return WeightedEstimate(
        float(value), contribution, standard_error(contribution, value, share), float(size), float(largest)
    )


def standard_error(contribution: Float[np.ndarray, " N"], value: float, share: Share) -> float:
    """√(Σ_i p_i² (x_i − value)² · n/(n−1)), n = 1/Σ p_i²."""
    count = 1.0 / (share @ share)
    spread = np.where(share > 0, share * (contribution - value), 0.0)
    return float(np.sqrt(spread @ spread * count / (count - 1.0))) if count > 1.0 + 1e-12 else np.inf


def uniform_share(steps: Steps) -> Float[np.ndarray, " N"]:
    """1/N for each trajectory."""
    return np.full(len(steps.mask), 1.0 / len(steps.mask))


def ratio(x: Float[np.ndarray, "..."] | float, y: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """Quotient x / y, and 0 where y is 0."""
    there = np.asarray(y) > 0
    return np.where(there, x / np.where(there, y, 1.0), 0.0)


def _reached(sums: StepSums, discount: float) -> Float[np.ndarray, "*B T"]:
    """γ^t S_t."""
    before = np.concatenate([np.ones_like(sums.weight[..., :1]), sums.weight[..., :-1]], axis=-1)
    powers = np.float64(discount) ** np.arange(before.shape[-1])
    return powers * ratio(sums.going_on, before).cumprod(axis=-1)


def _rewards(steps: Steps) -> Float[np.ndarray, "N T"]:
    return np.where(steps.mask, steps.reward, 0.0).astype(np.float64)


def _relative(
    log_weight: Float[np.ndarray, "N T"],
    log_share: Float[np.ndarray, " N"],
    mask: Bool[np.ndarray, "N T"] | None = None,
) -> Float[np.ndarray, "N T"]:
    """Weights p w in units of the largest one at each step; 0 where the mask is off."""
    exponent = log_weight + log_share[:, None]
    if mask is not None:
        exponent[~mask] = -np.inf
    top = exponent.max(axis=0)
    return np.exp(exponent - np.where(np.isfinite(top), top, 0.0)[None])


@np.errstate(divide="ignore")
def _log(share: Share) -> Float[np.ndarray, " N"]:
    return np.log(np.asarray(share, np.float64))
