"""The memory of the most recent policies: states they visited, returns from there, and the behaviour of each policy.

In a family of worlds a slot holds one policy in one context.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from evarl.assessment.behaviour import Behaviour
from evarl.worlds.spaces import Box
from evarl.worlds.world import Key


class Following(struct.PyTreeNode):
    """What an evaluator's own values are added to: rewards up to some later state of the same episode, and that state."""

    reward: Float[Array, " S"]
    """Discounted sum of the rewards up to there."""
    discount: Float[Array, " S"]
    """Discount γ^n of the value there; 0 where the return ended before."""
    observation: Array
    """[S, ...]"""


class PolicyRecord(struct.PyTreeNode):
    """What is remembered of one policy, in one context; stacked over C contexts when it is stored."""

    observation: Array
    """[S, ...]"""
    target: Float[Array, " S"]
    """Return-to-go from each state, as it was estimated when it was stored."""
    behaviour: Behaviour
    told: Float[Array, " S"] | None = None
    """Values of a critic that sees the context; None where no quantiles are fitted to them."""
    following: Following | None = None
    """Of what targets are made anew whenever they are used; None where they stay as they were stored."""


class Memory(struct.PyTreeNode):
    """m slots, used in turn; the leaves of `slots` have a leading axis m."""

    slots: PolicyRecord

    @classmethod
    def create(
        cls, policies: int, transitions: int, space: Box, behaviour: Any, told: bool = False, followed: bool = False
    ) -> "Memory":
        """Empty slots, with values of a critic if it is `told` the context; `behaviour` has the shapes of one policy's.

        `followed`: with what an evaluator needs to make targets of its own values.
        """
        observation = jnp.zeros((policies, transitions, *space.shape), space.dtype)
        behaviour = jax.tree.map(lambda x: jnp.zeros((policies, *x.shape), x.dtype), behaviour)
        target = jnp.zeros((policies, transitions))
        following = Following(target, target, observation) if followed else None
        return cls(PolicyRecord(observation, target, behaviour, target if told else None, following))

    @property
    def policies(self) -> int:
        """The number m of slots."""
        return self.slots.target.shape[0]

    def store(self, index: Int[Array, ""], records: PolicyRecord) -> "Memory":
        """The memory with C records of the index-th policy, one for each context, in place of the oldest ones."""
        slot = index * records.target.shape[0] % self.policies
        write = lambda table, entries: jax.lax.dynamic_update_slice_in_dim(table, entries, slot, 0)  # noqa: E731
        return Memory(jax.tree.map(write, self.slots, records))

    def sample(self, key: Key, filled: Int[Array, ""], batch_size: int) -> PolicyRecord:
        """About `batch_size` rows, equally many from every policy: leaves [m, q, ...], [m, q] and [m, k, ...].

        Drawing them grouped by policy lets an evaluator read each behaviour once. While only some slots are filled, those are
        used more than once. If there are more slots than rows, some are drawn at random, with up to four rows of each.
        """
        policies, transitions = self.slots.target.shape
        if policies <= batch_size:
            slots = jnp.arange(policies) % filled
        else:
            key, own = jax.random.split(key)
            policies = max(1, batch_size // min(4, transitions))
            slots = jax.random.randint(own, (policies,), 0, filled)
        rows = jax.random.randint(key, (policies, -(-batch_size // policies)), 0, transitions)
        stored = self.slots
        observation, target, told, following = jax.tree.map(
            lambda table: table[slots[:, None], rows],
            (stored.observation, stored.target, stored.told, stored.following),
        )
        behaviour = jax.tree.map(lambda table: table[slots], stored.behaviour)
        return PolicyRecord(observation, target, behaviour, told, following)
