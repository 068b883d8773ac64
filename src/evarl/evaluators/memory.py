"""The memory of the m most recent policies: states they visited, returns from there, and the behaviour of each policy."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from evarl.assessment.behaviour import Behaviour
from evarl.worlds.spaces import Box
from evarl.worlds.world import Key


class PolicyRecord(struct.PyTreeNode):
    """What is remembered of one policy."""

    observation: Array
    """[S, ...]"""
    target: Float[Array, " S"]
    """Return-to-go from each state."""
    behaviour: Behaviour


class Memory(struct.PyTreeNode):
    """m slots, used in turn; the leaves of `slots` have a leading axis m."""

    slots: PolicyRecord

    @classmethod
    def create(cls, policies: int, transitions: int, space: Box, behaviour: Any) -> "Memory":
        """Empty slots; `behaviour` has the shapes of one policy's."""
        observation = jnp.zeros((policies, transitions, *space.shape), space.dtype)
        behaviour = jax.tree.map(lambda x: jnp.zeros((policies, *x.shape), x.dtype), behaviour)
        return cls(PolicyRecord(observation, jnp.zeros((policies, transitions)), behaviour))

    @property
    def policies(self) -> int:
        """The number m of slots."""
        return self.slots.target.shape[0]

    def store(self, index: Int[Array, ""], record: PolicyRecord) -> "Memory":
        """The memory with the index-th policy in place of the oldest one."""
        slot = index % self.policies
        write = lambda table, entry: jax.lax.dynamic_update_index_in_dim(table, entry, slot, 0)  # noqa: E731
        return Memory(jax.tree.map(write, self.slots, record))

    def sample(self, key: Key, filled: Int[Array, ""], batch_size: int) -> PolicyRecord:
        """About `batch_size` rows, equally many from every policy: leaves [m, q, ...], [m, q] and [m, k, ...].

        Drawing them grouped by policy lets an evaluator read each behaviour once. While only some slots are filled, those are
        used more than once.
        """
        policies, transitions = self.slots.target.shape
        slots = jnp.arange(policies) % filled
        rows = jax.random.randint(key, (policies, -(-batch_size // policies)), 0, transitions)
        observation, target = (table[slots[:, None], rows] for table in (self.slots.observation, self.slots.target))
        return PolicyRecord(observation, target, jax.tree.map(lambda table: table[slots], self.slots.behaviour))
