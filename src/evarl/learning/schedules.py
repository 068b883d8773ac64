"""What depends on the number of an update: when the evaluator is fitted, and how large β is."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evarl.learning.configuration import TrainConfig

SLOWEST = 0.05
"""Weight of a new policy in running means, once there have been 1/SLOWEST; before that, all count alike."""


def running_rate(index: Int[Array, ""]) -> Float[Array, ""]:
    """Weight of the index-th policy in running means."""
    return jnp.maximum(SLOWEST, 1.0 / (index.astype(jnp.float32) + 1.0))


def fit_steps(config: TrainConfig, index: Int[Array, ""]) -> Int[Array, ""]:
    """Gradient steps of the evaluator: none during the warm-up, many at its end, a few in every n-th update after it."""
    settings = config.evaluator
    due = (index > settings.warmup) & ((index - settings.warmup) % settings.every == 0)
    return jnp.where(index == settings.warmup, settings.initial_steps, jnp.where(due, settings.steps, 0))


def ramp(config: TrainConfig, index: Int[Array, ""]) -> Float[Array, ""]:
    """The factor of β: 0 during the warm-up, which a frozen evaluator does not need, then up to 1 over `ramp` updates."""
    warmup = 0 if config.evaluator_mode == "frozen" else config.evaluator.warmup
    since = (index - warmup + 1).astype(jnp.float32)
    return jnp.clip(since / max(1, config.ramp), 0.0, 1.0)
