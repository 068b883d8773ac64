"""Policies as arrays: what is needed to let them act, or to compute their distributions of actions, at any observations."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool

from evarl.agents.agent import Agent
from evarl.agents.distributions import Distribution
from evarl.agents.perturbation import (
    Acted,
    Perturbation,
    no_perturbation,
    perturbed_action,
    perturbed_distribution,
)
from evarl.worlds.world import Key


class ActingPolicy(struct.PyTreeNode):
    """A policy, perhaps a perturbed one, as a pytree: it can be stored and, with a leading axis in every leaf, stacked."""

    agent: Agent = struct.field(pytree_node=False)
    parameters: Any
    """Those of the policy, without its critic."""
    how: Perturbation
    """How it is perturbed; the parameters have their noise already."""

    @classmethod
    def create(cls, agent: Agent, policy: Any, how: Perturbation | None = None) -> "ActingPolicy":
        """The policy without what does not act."""
        how = no_perturbation(agent.action_space) if how is None else how
        return cls(agent, policy.replace(critic=None), how)

    def act(self, key: Key, observation: Array, last: Acted | None, first: Bool[Array, ""] | None) -> Acted:
        """Actions [N, ...], given those of the step before and whether this is the first step of an episode."""
        return perturbed_action(self.agent, self.parameters, self.how, key, observation, last, first)

    def __call__(self, observation: Array) -> Distribution:
        """π(· | observation); of a perturbed policy, at the first step of an episode."""
        return perturbed_distribution(self.agent, self.parameters, self.how, observation)


def no_policies(agent: Agent, count: int) -> ActingPolicy:
    """Empty places for so many policies of an agent, stacked."""
    shapes = jax.eval_shape(lambda key: ActingPolicy.create(agent, agent.init(key, 1).policy), jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
