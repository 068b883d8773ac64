"""Running means and deviations that live in the learner's state and are saved with the policy."""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

CLIP = 10.0
"""Standardised observations are clipped to ± this."""


class RunningStatistics(struct.PyTreeNode):
    """Count, mean and mean squared deviation of everything seen so far, by Chan's parallel formula."""

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> "RunningStatistics":
        """Nothing seen yet: mean 0, variance 1."""
        return cls(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))

    def update(self, batch: Float[Array, "*batch_and_shape"]) -> "RunningStatistics":
        """Take in a batch; every axis before those of the statistics is a batch axis."""
        batch = batch.reshape(-1, *self.mean.shape)
        added = jnp.float32(batch.shape[0])
        total = self.count + added
        batch_mean = batch.mean(axis=0)
        shift = batch_mean - self.mean
        scatter = self.variance * self.count + batch.var(axis=0) * added + shift**2 * (self.count * added / total)
        return RunningStatistics(total, self.mean + shift * (added / total), scatter / total)

    def standardise(self, x: Float[Array, "*batch_and_shape"]) -> Float[Array, "*batch_and_shape"]:
        """(x − mean) / deviation, clipped."""
        lead = (1,) * (x.ndim - self.mean.ndim)
        mean, deviation = self.mean, jnp.sqrt(self.variance + 1e-8)
        return jnp.clip((x - mean.reshape(*lead, *mean.shape)) / deviation.reshape(*lead, *mean.shape), -CLIP, CLIP)


class RewardScale(struct.PyTreeNode):
    """The running deviation of the discounted sum of rewards; rewards are divided by it inside the losses."""

    statistics: RunningStatistics
    discounted_sum: Float[Array, " N"]

    @classmethod
    def create(cls, environments: int) -> "RewardScale":
        """Nothing seen yet."""
        return cls(RunningStatistics.create(()), jnp.zeros(environments))

    def update(self, reward: Float[Array, "T N"], done: Bool[Array, "T N"], discount: float) -> "RewardScale":
        """Take in the rewards of one batch."""

        def accumulate(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, done = now
            total = discount * total + reward
            return jnp.where(done, 0.0, total), total

        last, totals = jax.lax.scan(accumulate, self.discounted_sum, (reward, done))
        return RewardScale(self.statistics.update(totals), last)

    def begun_anew(self) -> "RewardScale":
        """The same deviation, with all environments at the start of an episode."""
        return self.replace(discounted_sum=jnp.zeros_like(self.discounted_sum))

    def deviation(self) -> Float[Array, ""]:
        """What rewards are divided by, and what values in units of the critic are multiplied by."""
        return jnp.sqrt(self.statistics.variance + 1e-8)
