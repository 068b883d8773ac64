"""What an evaluator that learns from its own values is given: rewards up to a later state, and the evaluator's value there.

    target_t = Σ_{i=t..k} γ^{i−t} r_i + γ^{k−t+1} V̂(s_{k+1} | Ξ),    0 instead of V̂ where the return ended

V̂ is that of the policy that collected the batch, since Ξ is its behaviour. It is computed anew in every gradient step, and held
fixed there as in fitted Q evaluation.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from evarl.agents.advantages import returns_to_cuts
from evarl.agents.trajectory import Trajectory
from evarl.evaluators.configuration import EvaluatorConfig
from evarl.evaluators.memory import Following
from evarl.worlds.world import Key

LEAST_PART = 1e-2
"""Least part of a return that lies before its cut, where the rest is estimated from it."""


def following(config: EvaluatorConfig, trajectory: Trajectory, discount: float, key: Key | None) -> Following:
    """For all steps [T, N] of a batch, the rewards up to a later state, and that state.

    It is where the batch cuts the episode, or earlier, where a cut is drawn with probability 1 − λ; λ below 1 needs a key.
    """
    cut = jnp.zeros_like(trajectory.terminated)
    if config.trace < 1.0:
        assert key is not None
        cut = jax.random.bernoulli(key, 1.0 - config.trace, cut.shape)
    return following_cuts(trajectory, cut, discount, config.truncation == "bootstrap")


def following_cuts(trajectory: Trajectory, cut: Bool[Array, "T N"], discount: float, beyond_limit: bool) -> Following:
    """Rewards up to the next cut, and the state there; a time limit is a cut too if values follow `beyond_limit`."""
    ended = trajectory.terminated
    if beyond_limit:
        cut = cut | trajectory.truncated
    else:
        ended = ended | trajectory.truncated
    reward, remaining, last = returns_to_cuts(trajectory.reward, ended, cut, discount)
    environments = jnp.arange(cut.shape[1], dtype=jnp.int32)[None]
    return Following(reward, remaining, next_observations(trajectory)[last, environments])


def next_observations(trajectory: Trajectory) -> Shaped[Array, "T N ..."]:
    """What every step led to, which at a time limit is not the start of the episode after it."""
    truncated, shape = trajectory.truncated, trajectory.last_observation.shape
    onward = jnp.concatenate([trajectory.observation[1:], trajectory.last_observation[None]])
    slot = jnp.maximum(jnp.cumsum(truncated, axis=0, dtype=jnp.int32) - 1, 0)
    final = trajectory.final_observation[slot, jnp.arange(shape[0], dtype=jnp.int32)[None]]
    return jnp.where(truncated.reshape(*truncated.shape, *(1 for _ in shape[1:])), final, onward)


def typical_returns(following: Following) -> Float[Array, "..."]:
    """Numbers with about the mean and the variance of the returns, before any value is known: for units of a target.

    If what follows were as what came before, its mean c would solve c = E[R + γⁿ c], and the variance of R + γⁿ c would be the
    part 1 − E[γⁿ]² of the variance of the return.
    """
    part = jnp.maximum(1.0 - following.discount.mean(), LEAST_PART)
    centre = following.reward.mean() / part
    beyond = following.reward + following.discount * centre - centre
    return centre + beyond / jnp.sqrt(part * (2.0 - part))
