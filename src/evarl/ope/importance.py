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
kernel around s, give V(s). All functions are pure and can be mapped over policies, over shares [Q, N], or both. What depends
on the shares is kept for one step at a time, so that Q values need memory for Q × N numbers, not Q × N × T.

A policy that never takes a logged action has log-ratio −∞ and weight 0 there. Where all weights are 0, a self-normalised
estimate 0/0 is defined as 0, and the effective sample size is 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from evarl.worlds.world import Key

Scalar = Float[Array, ""] | float
Share = Float[Array, " N"]
"""The share of each trajectory."""
Shares = Float[Array, "B N"]
"""Many of them."""


class Steps(NamedTuple):
    """The logged steps as importance sampling uses them."""

    reward: Float[Array, "N T"]
    log_ratio: Float[Array, "N T"]
    """log π_e − log π_b of the logged actions; limited from above if the estimate is to be clipped."""
    mask: Bool[Array, "N T"]
    """Which steps exist; what it leaves out is padding and may hold anything."""
    discount: Scalar
    """γ."""


class WeightedEstimate(NamedTuple):
    """A value with its standard error and the concentration of its weights."""

    value: Float[Array, ""]
    """Σ_i p_i x_i."""
    contribution: Float[Array, " N"]
    """x_i. For self-normalised forms the linearisation: x_i − value is the influence of trajectory i; x_i of a trajectory
    without a share is 0."""
    standard_error: Float[Array, ""]
    """√(Σ_i p_i² (x_i − value)² · n/(n−1)), n = 1/Σ p_i²: the usual one when shares are equal. ∞ for one trajectory."""
    effective_sample_size: Float[Array, ""]
    """(Σ_i p_i w_i)² / Σ_i (p_i w_i)², of the weights of whole trajectories."""
    largest_weight_share: Float[Array, ""]
    """max_i p_i w_i / Σ_i p_i w_i."""


class StepSums(NamedTuple):
    """Sums over trajectories for each step, or with the trajectories as a second axis, their terms.

    Each step has its own unit of weight, which cancels in `step_values`.
    """

    weighted_reward: Float[Array, "T *N"]
    """p w_t r_t of the trajectories alive at t."""
    weight: Float[Array, "T *N"]
    """p w_t of the trajectories alive at t."""
    going_on: Float[Array, "T *N"]
    """p w_{t−1} of the trajectories alive at t, in the unit of step t − 1."""


class _LogWeight(NamedTuple):
    """A running sum of log-ratios and its rounding error: a thousand float32 terms would lose the fourth digit of w."""

    high: Float[Array, " N"]
    low: Float[Array, " N"]


class _Step(NamedTuple):
    """One step of all trajectories; padding is zero."""

    reward: Float[Array, " N"]
    log_ratio: Float[Array, " N"]
    alive: Bool[Array, " N"]


@partial(jax.jit, static_argnames="self_normalised")
def trajectory_wise(steps: Steps, share: Share | None = None, *, self_normalised: bool = False) -> WeightedEstimate:
    """Trajectory-wise importance sampling: TIS, or WIS if self-normalised. Shares are uniform by default.

    >>> steps = Steps(jnp.asarray([[1.0], [3.0]]), jnp.log(jnp.asarray([[0.5], [1.5]])), jnp.ones((2, 1), bool), 1.0)
    >>> round(float(trajectory_wise(steps).value), 5)
    2.5
    """
    share = uniform_share(steps) if share is None else share
    log_weight, returns = _whole(steps)
    if not self_normalised:
        return _summarise(_times_weight(log_weight, returns), share, log_weight)
    weight = _relative_weight(log_weight, jnp.log(share))
    value = _ratio(total(weight, returns), weight.sum())
    influence = _ratio(_ratio(weight, weight.sum()) * (returns - value), share)
    return _summarise(jnp.where(share > 0, value + influence, 0.0), share, log_weight)


@partial(jax.jit, static_argnames="self_normalised")
def per_decision(steps: Steps, share: Share | None = None, *, self_normalised: bool = False) -> WeightedEstimate:
    """Per-decision importance sampling: PDIS, or WPDIS if self-normalised. Shares are uniform by default.

    >>> log_ratio = jnp.log(jnp.asarray([[0.5, 1.0], [1.5, 2.0]]))
    >>> steps = Steps(jnp.ones((2, 2)), log_ratio, jnp.ones((2, 2), bool), 1.0)
    >>> [round(float(per_decision(steps, self_normalised=x).value), 5) for x in (False, True)]
    [2.75, 2.0]
    """
    share = uniform_share(steps) if share is None else share
    by_step, discount = _time_first(steps), steps.discount
    if not self_normalised:

        def add(sum_so_far: Array, log_weight: _LogWeight, now: tuple[_Step, Array]) -> tuple[Array, None]:
            step, power = now
            return sum_so_far + power * _times_weight(log_weight, step.reward), None

        powers = _powers(discount, by_step.reward)
        log_weight, (contribution, _) = _walk(add, jnp.zeros_like(share), by_step, powers)
        return _summarise(contribution, share, log_weight)

    log_share = jnp.log(share)

    def add_terms(before: Array, log_weight: _LogWeight, now: tuple[_Step, None]) -> tuple[Array, StepSums]:
        terms = _terms(before, log_weight, log_share, now[0])
        return terms.weight, jax.tree.map(jnp.sum, terms)

    log_weight, (_, sums) = _walk(add_terms, share, by_step)
    gradient = jax.grad(lambda sums: step_values(sums, discount).sum())(sums)

    def spread(state: tuple[Array, Array], log_weight: _LogWeight, now: tuple[_Step, StepSums]) -> tuple[Any, None]:
        before, so_far = state
        terms = _terms(before, log_weight, log_share, now[0])
        parts = jax.tree.map(jnp.multiply, now[1], terms)
        return (terms.weight, so_far + parts.weighted_reward + parts.weight + parts.going_on), None

    # The value is homogeneous of degree 1 in the sums, so their derivatives times the terms of a trajectory add up to its
    # part of the value. A second pass through time takes less memory than derivatives through the first.
    _, ((_, portion), _) = _walk(spread, (share, jnp.zeros_like(share)), by_step, gradient)
    return _summarise(_ratio(portion, share), share, log_weight)


@partial(jax.jit, static_argnames="self_normalised")
def resampled_trajectory_wise(steps: Steps, shares: Shares, *, self_normalised: bool = False) -> Float[Array, " B"]:
    """The values of `trajectory_wise` for many shares of the same trajectories, denominators included."""
    log_weight, returns = _whole(steps)
    if not self_normalised:
        return total(shares, _times_weight(log_weight, returns))
    weight = _relative_weight(log_weight, _support(shares))
    return _ratio(total(shares, weight * returns), total(shares, weight))


@partial(jax.jit, static_argnames="self_normalised")
def resampled_per_decision(steps: Steps, shares: Shares, *, self_normalised: bool = False) -> Float[Array, " B"]:
    """The values of `per_decision` for many shares of the same trajectories, denominators included.

    The sums of a step are products of matrices [T, N] and [N, B]: B × N × T numbers are multiplied but never stored.
    """
    if not self_normalised:
        return total(shares, per_decision(steps).contribution)
    sums = sums_for(step_terms(steps, shares), shares)
    return jax.vmap(lambda sums: step_values(sums, steps.discount).sum(), in_axes=1)(sums)


@partial(jax.jit, static_argnames="resamples")
def resampled_shares(key: Key, share: Share, resamples: int) -> Float[Array, "B N"]:
    """Shares of bootstrap samples: as many trajectories as have a share, drawn from those with replacement.

    A trajectory drawn c times gets the share c·p_i; each row is normalised to sum to 1.
    """
    (size,) = share.shape
    count = (share > 0).sum()
    with_share_first = jnp.argsort(share <= 0, stable=True)

    def one(key: Key) -> Float[Array, " N"]:
        drawn = with_share_first[jax.random.randint(key, (size,), 0, count)]
        times = jnp.zeros_like(share).at[drawn].add((jnp.arange(size) < count).astype(share.dtype))
        return times * share / total(times, share)

    return jax.lax.map(one, jax.random.split(key, resamples))


# --- Parts that other estimators are made of


def step_values(sums: StepSums, discount: Scalar) -> Float[Array, " T"]:
    """γ^t S_t R_t."""
    before = jnp.concatenate([jnp.ones_like(sums.weight[:1]), sums.weight[:-1]])
    chance = _ratio(sums.going_on, before)
    # a loop is compiled in half the time of jnp.cumprod with its derivative
    _, alive = jax.lax.scan(lambda alive, chance: (alive * chance,) * 2, jnp.ones_like(chance[0]), chance)
    return _powers(discount, sums.weight) * alive * _ratio(sums.weighted_reward, sums.weight)


def step_terms(steps: Steps, shares: Shares) -> StepSums:
    """[T, N]: what each trajectory adds to the sums per unit of share, for any of these shares."""
    log_share = _support(shares)

    def visit(before: Array, log_weight: _LogWeight, now: tuple[_Step, None]) -> tuple[Array, StepSums]:
        terms = _terms(before, log_weight, log_share, now[0])
        return terms.weight, terms

    return _walk(visit, jnp.exp(log_share), _time_first(steps))[1][1]


def sums_for(terms: StepSums, shares: Shares) -> StepSums:
    """[T, B]: the sums for each row of shares."""
    return jax.tree.map(lambda column: total(column, shares.T), terms)


def standard_error(contribution: Float[Array, " N"], value: Float[Array, ""], share: Share) -> Float[Array, ""]:
    """√(Σ_i p_i² (x_i − value)² · n/(n−1)), n = 1/Σ p_i²."""
    count = 1.0 / total(share, share)
    spread = jnp.where(share > 0, share * (contribution - value), 0.0)
    return jnp.where(count > 1.0, jnp.sqrt(total(spread, spread) * _ratio(count, count - 1.0)), jnp.inf)


def total(x: Array, y: Array) -> Array:
    """Matrix product in full precision, which is not the default on accelerators."""
    return jnp.matmul(x, y, precision="highest")


def uniform_share(steps: Steps) -> Float[Array, " N"]:
    """1/N for each trajectory, in the type of the rewards."""
    count = steps.reward.shape[0]
    return jnp.full(count, 1.0 / count, steps.reward.dtype)


def _summarise(contribution: Float[Array, " N"], share: Share, log_weight: _LogWeight) -> WeightedEstimate:
    """Value, standard error and concentration of the weights."""
    value = total(share, contribution)
    weight = _relative_weight(log_weight, jnp.log(share))  # relative to the largest, so no square underflows
    size, largest = _ratio(weight.sum() ** 2, total(weight, weight)), _ratio(weight.max(), weight.sum())
    return WeightedEstimate(value, contribution, standard_error(contribution, value, share), size, largest)


def _whole(steps: Steps) -> tuple[_LogWeight, Float[Array, " N"]]:
    """Log-weights and discounted returns of whole trajectories."""
    by_step = _time_first(steps)
    log_weight, _ = _walk(lambda state, log_weight, step: (state, None), None, by_step)
    return log_weight, total(by_step.reward.T, _powers(steps.discount, by_step.reward))


def _support(shares: Shares) -> Float[Array, " N"]:
    """Log-share 0 of trajectories with any share and −∞ of others, so that these do not set the unit of weight."""
    return jnp.where(shares.max(axis=0) > 0, 0.0, -jnp.inf).astype(shares.dtype)


def _powers(discount: Scalar, by_step: Float[Array, "T ..."]) -> Float[Array, " T"]:
    return jnp.asarray(discount, by_step.dtype) ** jnp.arange(by_step.shape[0], dtype=by_step.dtype)


def _time_first(steps: Steps) -> _Step:
    """The steps as [T, N], with zeros in the padding."""
    reward, log_ratio, mask, _ = steps
    return _Step(jnp.where(mask, reward, 0.0).T, jnp.where(mask, log_ratio, 0.0).T, mask.T)


def _walk(visit: Callable, state: Any, steps: _Step, along: Any = None) -> tuple[_LogWeight, tuple[Any, Any]]:
    """Scan over time with log w_t; a trajectory that has ended keeps its last weight."""

    def forwards(carry: tuple[_LogWeight, Any], now: tuple[_Step, Any]) -> tuple[tuple[_LogWeight, Any], Any]:
        log_weight, state = carry
        log_weight = _plus(log_weight, now[0].log_ratio)
        state, out = visit(state, log_weight, now)
        return (log_weight, state), out

    zeros = jnp.zeros_like(steps.log_ratio[0])
    (log_weight, state), out = jax.lax.scan(forwards, (_LogWeight(zeros, zeros), state), (steps, along))
    return log_weight, (state, out)


def _plus(log: _LogWeight, term: Float[Array, " N"]) -> _LogWeight:
    """Knuth's exact sum of two numbers, its error added to the one carried along; the error of −∞ is none."""
    high = log.high + term
    shown = high - log.high
    low = log.low + ((log.high - (high - shown)) + (term - shown))
    both = high + low  # so that what remains is less than the last digit, and exp(low) = 1 + low
    return _LogWeight(
        jnp.where(jnp.isfinite(high), both, high), jnp.where(jnp.isfinite(high), low - (both - high), 0.0)
    )


def _times_weight(log_weight: _LogWeight, x: Float[Array, " N"]) -> Float[Array, " N"]:
    """w·x, and 0 for x = 0 even where w overflows."""
    return jnp.where(x == 0, 0.0, jnp.exp(log_weight.high) * (1.0 + log_weight.low) * x)


def _relative_weight(log_weight: _LogWeight, log_share: Float[Array, " N"]) -> Float[Array, " N"]:
    """Weights p w in units of the largest one."""
    top = jnp.max(log_weight.high + log_share)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    # in this order: w and its maximum can be a thousand apart from 1, but not from one another where it matters
    exponent = jnp.where(log_share > -jnp.inf, (log_weight.high - top) + log_share, -jnp.inf)
    return jnp.exp(exponent) * (1.0 + log_weight.low)


def _terms(before: Array, log_weight: _LogWeight, log_share: Array, step: _Step) -> StepSums:
    """What each trajectory adds to the sums of a step; `before` is its weight at the step before."""
    weight = _relative_weight(log_weight, jnp.where(step.alive, log_share, -jnp.inf))
    return StepSums(weight * step.reward, weight, jnp.where(step.alive, before, 0.0))


def _ratio(x: Array, y: Array) -> Array:
    """Quotient x / y, and 0 where y is 0, also for derivatives."""
    there = y > 0
    return jnp.where(there, x / jnp.where(there, y, 1.0), 0.0)
