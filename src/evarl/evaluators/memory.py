"""The memory of policies: states they visited, returns from there, and the behaviour of each policy.

The paper's memory holds the most recent policies. A diverse one also has two reservoirs, uniform samples of the whole run: one of
its policies, one of perturbed versions of them. In a family of worlds a slot holds one policy in one context.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.assessment.behaviour import Behaviour
from evarl.keys import reservoir_slots, split, unrolled
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


HELD_OUT = 5
"""One slot of this many is held out."""


class Reservoir(struct.PyTreeNode):
    """A uniform sample of all records that were ever offered: n slots; the leaves of `slots` have a leading axis n.

    Reservoir sampling (`evarl.keys.reservoir_slots`): after i records each of them is in the sample with probability n/i.
    """

    slots: PolicyRecord
    holds_out: bool = struct.field(pytree_node=False, default=False)
    """Whether every HELD_OUT-th slot is never sampled, so that what it holds is new to the evaluator."""

    @property
    def size(self) -> int:
        """The number n of slots."""
        return self.slots.target.shape[0]

    def offer(
        self, offered: Int[Array, ""], records: PolicyRecord, key: Key, due: bool | Bool[Array, ""] = True
    ) -> "Reservoir":
        """The sample after C more records, when `offered` were offered before; the same sample if they are not `due`."""
        count = records.target.shape[0]
        place = offered + jnp.arange(1, count + 1, dtype=jnp.int32)  # the i of the i-th record
        slot = reservoir_slots(unrolled(key), place, jnp.broadcast_to(due, (count,)), self.size)
        write = lambda table, entries: table.at[slot].set(entries, mode="drop")  # noqa: E731
        return self.replace(slots=jax.tree.map(write, self.slots, records))

    def held_out(self) -> Bool[np.ndarray, " n"]:
        """Which slots are never sampled."""
        return np.arange(self.size) % HELD_OUT == HELD_OUT - 1 if self.holds_out else np.zeros(self.size, bool)

    def filled(self, offered: Int[Array, ""]) -> Bool[Array, " n"]:
        """Which slots have been filled after so many records."""
        return jnp.arange(self.size, dtype=jnp.int32) < offered

    def sample(self, key: Key, offered: Int[Array, ""], batch_size: int, rows: int) -> PolicyRecord:
        """About `batch_size` rows of slots that are filled and not held out, `rows` of each: [p, rows, ...] and [p, k, ...]."""
        own, rows_key = split(key)
        policies = max(1, batch_size // rows)
        filled = jnp.minimum(offered, self.size)
        skipped = HELD_OUT - 1 if self.holds_out else self.size
        allowed = jnp.maximum(1, filled - filled // (skipped + 1))
        chosen = jax.random.randint(unrolled(own), (policies,), 0, allowed)
        return _rows(self.slots, chosen + chosen // skipped, rows, rows_key)


class Memory(struct.PyTreeNode):
    """m slots, used in turn; the leaves of `slots` have a leading axis m."""

    slots: PolicyRecord
    earlier: Reservoir | None = None
    """Policies of the whole run; None in the paper's memory."""
    perturbed: Reservoir | None = None
    """Perturbed policies of the whole run, some of which are held out; None if there are none."""

    @classmethod
    def create(
        cls, policies: int, transitions: int, space: Box, behaviour: Any, told: bool = False, followed: bool = False
    ) -> "Memory":
        """Empty slots, with values of a critic if it is `told` the context; `behaviour` has the shapes of one policy's.

        `followed`: with what an evaluator needs to make targets of its own values.
        """
        slots = empty_slots(policies, transitions, space, behaviour, told)
        following = Following(slots.target, slots.target, slots.observation) if followed else None
        return cls(slots.replace(following=following))

    @property
    def policies(self) -> int:
        """The number m of slots."""
        return self.slots.target.shape[0]

    def store(self, index: Int[Array, ""], records: PolicyRecord) -> "Memory":
        """The memory with C records of the index-th policy, one for each context, in place of the oldest ones."""
        slot = index * records.target.shape[0] % self.policies
        write = lambda table, entries: jax.lax.dynamic_update_slice_in_dim(table, entries, slot, 0)  # noqa: E731
        return self.replace(slots=jax.tree.map(write, self.slots, records))

    def sample(self, key: Key, filled: Int[Array, ""], batch_size: int) -> PolicyRecord:
        """About `batch_size` rows, equally many from every policy: leaves [m, q, ...], [m, q] and [m, k, ...].

        Drawing them grouped by policy lets an evaluator read each behaviour once. While only some slots are filled, those are
        used more than once. If there are more slots than rows, some are drawn at random, with up to four rows of each.
        """
        policies = self.policies
        if policies <= batch_size:
            return _rows(self.slots, jnp.arange(policies) % filled, -(-batch_size // policies), key)
        return self.sample_few(key, filled, batch_size)

    def sample_few(self, key: Key, filled: Int[Array, ""], batch_size: int) -> PolicyRecord:
        """About `batch_size` rows, `rows_each` of every policy that is drawn; of all policies equally many, if they suffice."""
        count = max(1, batch_size // self.rows_each)
        if self.policies <= count:
            return _rows(self.slots, jnp.arange(count) % filled, self.rows_each, key)
        key, own = jax.random.split(key)
        slots = jax.random.randint(own, (count,), 0, filled)
        return _rows(self.slots, slots, -(-batch_size // count), key)

    @property
    def rows_each(self) -> int:
        """Rows of one policy in a batch that many policies share."""
        return min(4, *(x.slots.target.shape[1] for x in (self, self.earlier, self.perturbed) if x is not None))


def empty_slots(count: int, states: int, space: Box, behaviour: Any, told: bool = False) -> PolicyRecord:
    """Slots without a policy, with values of a critic if it is `told` the context; `behaviour` has the shapes of one policy's."""
    observation = jnp.zeros((count, states, *space.shape), space.dtype)
    behaviour = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), behaviour)
    target = jnp.zeros((count, states))
    return PolicyRecord(observation, target, behaviour, target if told else None)


def _rows(slots: PolicyRecord, chosen: Int[Array, " p"], count: int, key: Key) -> PolicyRecord:
    """`count` random rows of each of the chosen slots."""
    rows = jax.random.randint(unrolled(key), (chosen.shape[0], count), 0, slots.target.shape[1])
    observation, target, told, following = jax.tree.map(
        lambda table: table[chosen[:, None], rows], (slots.observation, slots.target, slots.told, slots.following)
    )
    behaviour = jax.tree.map(lambda table: table[chosen], slots.behaviour)
    return PolicyRecord(observation, target, behaviour, told, following)
