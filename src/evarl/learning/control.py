"""When β begins to act and how large it is, decided from what is measured in training: each a pure recursion of one seed."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

WORST = -1.0
"""Least skill that counts in the running mean, and the mean before the first update: one bad batch must not outweigh all else."""
SLOWEST = 0.05
"""Weight of a new measurement in running means, once there have been 1/SLOWEST; before that, all count alike."""


def running_rate(index: Int[Array, ""]) -> Float[Array, ""]:
    """Weight of the index-th measurement in running means."""
    return jnp.maximum(SLOWEST, 1.0 / (index.astype(jnp.float32) + 1.0))


class Warmup(struct.PyTreeNode):
    """A warm-up that ends by itself."""

    skill: Float[Array, ""]
    """Running mean of the skill on fresh batches."""
    ended: Int[Array, ""]
    """The first update in which β acts; −1 while the warm-up goes on."""

    @classmethod
    def create(cls) -> "Warmup":
        """Before the first update."""
        return cls(jnp.full((), WORST), jnp.full((), -1, jnp.int32))


def watch_skill(warmup: Warmup, skill: Float[Array, ""], index: Int[Array, ""], earliest: int, window: int) -> Warmup:
    """The warm-up after another measurement of the evaluator's skill. Once it has ended, that stays.

    The running mean is m ← m + (max(skill, −1) − m) / window, from m = −1. The warm-up ends in the first update from `earliest`
    on in which m > 0. A constant skill s > 0 takes about window · log(1 + 1/s) updates.
    """
    mean = warmup.skill + (jnp.maximum(skill, WORST) - warmup.skill) / window
    ends = (warmup.ended < 0) & (index >= earliest) & (mean > 0)
    return Warmup(mean, jnp.where(ends, index, warmup.ended).astype(jnp.int32))


class Dual(struct.PyTreeNode):
    """β as the multiplier of the constraint that the evaluation error is at most its target."""

    beta: Float[Array, ""]
    """β of the next update."""
    error: Float[Array, ""]
    """Running mean of the measurements: squared errors, or absolute ones."""
    measured: Int[Array, ""]
    """How many measurements there have been."""

    @classmethod
    def create(cls) -> "Dual":
        """Before the first update: β = 0."""
        return cls(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))


def record_error(dual: Dual, error: Float[Array, ""], acts: Bool[Array, ""]) -> Dual:
    """The controller after another measurement, which may be NaN; it does not count before β acts."""
    counts = acts & jnp.isfinite(error)
    mean = dual.error + running_rate(dual.measured) * (error - dual.error)
    measured = dual.measured + counts.astype(jnp.int32)
    return dual.replace(error=jnp.where(counts, mean, dual.error), measured=measured)


def raise_beta(
    beta: Float[Array, ""], error: Float[Array, ""], target: float, rate: float, limit: Float[Array, ""]
) -> Float[Array, ""]:
    """β_{t+1} = clip(β_t + rate (error − E) / E, 0, limit): β rises while the error is above its target E, and falls below it.

    This is the step of dual ascent on J − β (error − E).
    """
    return jnp.clip(beta + rate * (error - target) / target, 0.0, limit)
