"""Policies as arrays: what is needed to compute their distributions of actions again, at any observations."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array

from evarl.agents.agent import Agent
from evarl.agents.distributions import Distribution
from evarl.agents.perturbation import Perturbation, no_perturbation, perturbed_distribution


class ActingPolicy(struct.PyTreeNode):
    """The distribution of a policy's actions as a function of observations; as a pytree, it can be stored and stacked."""

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

    def __call__(self, observation: Array) -> Distribution:
        """π(· | observation); of a perturbed policy, at the first step of an episode."""
        return perturbed_distribution(self.agent, self.parameters, self.how, observation)


def no_policies(agent: Agent, count: int) -> ActingPolicy:
    """Empty places for so many policies of an agent, stacked."""
    shapes = jax.eval_shape(lambda key: ActingPolicy.create(agent, agent.init(key, 1).policy), jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
