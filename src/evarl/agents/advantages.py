"""Returns and advantages of one batch, time first.

A return has three different ends that are never confused. *Terminated*: the task ended, nothing follows. *Truncated*: the
time limit was reached, and the critic says what would have followed. *Cut*: the batch ended in mid-episode, and again the
critic says what would have followed.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def next_values(
    value: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    final_value: Float[Array, "K N"],
    truncated: Bool[Array, "T N"],
) -> Float[Array, "T N"]:
    """V(s_{t+1}) for every step, where s_{t+1} is where the step led and not the start of the episode after it.

    `last_value` belongs to the states at which the batch was cut, and `final_value[j, n]` to the state at which the j-th
    truncated episode of environment n ran out of time. Steps that terminated get a value that must not be used.
    """
    following = jnp.concatenate([value[1:], last_value[None]])
    slot = jnp.maximum(jnp.cumsum(truncated, axis=0) - 1, 0)
    return jnp.where(truncated, jnp.take_along_axis(final_value, slot, axis=0), following)


def generalised_advantages(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    discount: float,
    gae_lambda: float,
) -> Float[Array, "T N"]:
    """A_t = δ_t + γλ A_{t+1} within an episode, with δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t)."""
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(terminated | truncated, 0.0, discount * gae_lambda)

    def backwards(advantage: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = now
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)[1]


def returns_to_go(
    reward: Float[Array, "T N"],
    last_value: Float[Array, " N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    discount: float,
) -> Float[Array, "T N"]:
    """G_t = r_t + γ G_{t+1} within an episode.

    The return of a finite-horizon task ends at the time limit by definition; only an episode cut by the end of the batch
    is continued, with `last_value`.
    """

    def backwards(following: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, done = now
        total = reward + discount * jnp.where(done, 0.0, following)
        return total, total

    return jax.lax.scan(backwards, last_value, (reward, terminated | truncated), reverse=True)[1]


def returns_to_cuts(
    reward: Float[Array, "T N"], ended: Bool[Array, "T N"], cut: Bool[Array, "T N"], discount: float
) -> tuple[Float[Array, "T N"], Float[Array, "T N"], Int[Array, "T N"]]:
    """Σ_{i=t..k} γ^{i−t} r_i, the discount γ^{k−t+1} of what follows, and k: the first step from t on that is cut or ended.

    `ended`: the return ends with this step, and the discount is 0. `cut`: the value of the state that this step led to follows.
    The end of the batch is a cut.

    With V the value that follows, and cuts drawn independently with probability 1 − λ at every step, the expected sum of both
    is the λ-return G_t = r_t + γ ((1 − λ) V(s_{t+1}) + λ G_{t+1}): each row's number of steps is geometric.
    """

    def backwards(later: tuple[Array, Array, Array], now: tuple[Array, ...]) -> tuple[Any, Any]:
        total, remaining, last = later
        reward, ended, cut, step = now
        total = reward + discount * jnp.where(ended | cut, 0.0, total)
        remaining = discount * jnp.where(ended, 0.0, jnp.where(cut, 1.0, remaining))
        last = jnp.where(ended | cut, step, last)
        return (total, remaining, last), (total, remaining, last)

    steps = jnp.arange(reward.shape[0], dtype=jnp.int32)
    begin = jnp.zeros_like(reward[0]), jnp.ones_like(reward[0]), jnp.full(reward.shape[1:], steps[-1])
    return jax.lax.scan(backwards, begin, (reward, ended, cut, steps), reverse=True)[1]


def normalise(advantages: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Mean 0 and deviation 1 over the whole batch."""
    return (advantages - advantages.mean()) / spread(advantages)


def spread(advantages: Float[Array, "*shape"]) -> Float[Array, ""]:
    """What normalising divides by."""
    return advantages.std() + 1e-8
