"""Whole episodes: where they begin, their returns and lengths, and observations at truncations."""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.simulation.rollouts import Batch


class StartStates(struct.PyTreeNode):
    """Q states at which rollouts begin. What a state is, only the simulator that made it knows."""

    state: Any
    """Stacked states of a compiled world, or reset seeds [Q] of a host world."""
    observation: Array | np.ndarray
    """[Q, ...]"""
    elapsed: Int[Array | np.ndarray, " Q"]
    """Steps of the episode that were taken before."""
    identity: Any
    """Arrays with the leading axis Q; states are the same where all of these agree."""

    @property
    def drawn(self) -> int:
        """The number Q."""
        return int(self.observation.shape[0])

    @cached_property
    def distinct(self) -> int:
        """How many of the states are different."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.identity)]
        return len({b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(self.drawn)})

    @property
    def queries(self) -> Array | np.ndarray:
        """Observations at which values are predicted: the first if all states are equal, else all of them."""
        return self.observation[:1] if self.distinct == 1 else self.observation

    def __str__(self) -> str:
        return f"{self.distinct} distinct of {self.drawn} drawn from μ_D"


class Returns(NamedTuple):
    """Returns of whole episodes."""

    discounted: Float[np.ndarray, "..."]
    """Σ_t γ^t r_t."""
    undiscounted: Float[np.ndarray, "..."]
    """Σ_t r_t."""


NEVER = -(2**30)
"""A step before every beginning."""


class EpisodeClock(struct.PyTreeNode):
    """Running sums of the episodes under way in N environments."""

    total: Float[Array, " N"]
    discounted: Float[Array, " N"]
    length: Int[Array, " N"]
    finished: Int[Array, " N"] | None = None
    """Episodes that ended since contexts were drawn; None in a single world."""

    @classmethod
    def create(cls, environments: int, contexts: bool = False) -> "EpisodeClock":
        """All environments at the start of an episode."""
        zeros = jnp.zeros(environments, jnp.int32)
        return cls(jnp.zeros(environments), jnp.zeros(environments), zeros, zeros if contexts else None)

    def begun_anew(self) -> "EpisodeClock":
        """All environments at the start of an episode, which is not the first in its context: one was abandoned."""
        zeros = jax.tree.map(jnp.zeros_like, self.replace(finished=None))
        return zeros.replace(finished=None if self.finished is None else jnp.maximum(self.finished, 1))


def episode_statistics(
    clock: EpisodeClock,
    reward: Float[Array, "T N"],
    done: Bool[Array, "T N"],
    discount: float,
    latest: Int[Array, ""] | int = NEVER,
) -> tuple[EpisodeClock, dict[str, Array]]:
    """Mean return, discounted return and length of the episodes that finished in this batch; NaN when none did.

    In a family of worlds episodes are cut when contexts are drawn anew, and of those that may be cut the short ones finish.
    So only those count that began no later than the step `latest` of this batch (see `latest_beginning`), and the first after
    contexts were drawn.
    """
    before, clock = clock.finished, clock.replace(finished=None)

    def advance(clock: EpisodeClock, now: tuple[Array, Array]) -> tuple[EpisodeClock, EpisodeClock]:
        reward, done = now
        finished = EpisodeClock(
            clock.total + reward,
            clock.discounted + discount ** clock.length.astype(jnp.float32) * reward,
            clock.length + 1,
        )
        return jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), finished), finished

    clock, reached = jax.lax.scan(advance, clock, (reward, done))
    if before is not None:
        ended = done.astype(jnp.int32)
        clock = clock.replace(finished=before + ended.sum(axis=0))
        step = jnp.arange(len(done), dtype=jnp.int32)[:, None]
        first = before[None] + jnp.cumsum(ended, axis=0) == 1
        done &= first | (step - reached.length + 1 <= latest)
    episodes = jnp.sum(done)

    def mean(x: Array) -> Array:
        return jnp.sum(jnp.where(done, x.astype(jnp.float32), 0.0)) / episodes.astype(jnp.float32)

    return clock, {
        "episodes": episodes,
        "return": mean(reached.total),
        "discounted_return": mean(reached.discounted),
        "episode_length": mean(reached.length),
    }


def latest_beginning(batch: Batch, horizon: int, index: Int[Array, ""] | int) -> Int[Array, ""] | int:
    """The last step of the batch with this index at which an episode can begin that is certain to finish in its context.

    It may lie before the batch. Where contexts last for fewer steps than an episode may, there is none.
    """
    period = batch.context_updates * batch.steps
    return NEVER if horizon > period else period - horizon - (index % batch.context_updates) * batch.steps


def final_slots(steps: int, horizon: int) -> int:
    """Maximum number of truncated episodes of one environment in a batch: each lasts exactly `horizon` steps."""
    return 1 + (steps - 1) // horizon


def record_final(buffer: Array, count: Int[Array, " N"], truncated: Bool[Array, " N"], observation: Array) -> Array:
    """The buffer [K, N, ...] with the observations of environments that were truncated in their next free slots."""
    slots = jnp.arange(buffer.shape[0], dtype=count.dtype)
    write = (slots[:, None] == count[None]) & truncated[None]
    return jnp.where(write.reshape(*write.shape, *(1,) * (observation.ndim - 1)), observation[None], buffer)
