"""Policies as arrays: what is needed to compute their distributions of actions again, at any observations."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array

from evarl.agents.agent import Agent
from evarl.agents.distributions import Distribution
from evarl.agents.perturbation import Perturbation, draw_perturbations, perturbed_distribution


class ActingPolicy(struct.PyTreeNode):
    """The distribution of a policy's actions as a function of observations; as a pytree, it can be stored and stacked."""

    agent: Agent = struct.field(pytree_node=False)
    parameters: Any
    """Those of the policy, without its critic."""
    how: Perturbation | None = None
    """None if the policy is not perturbed; with it, the parameters have their noise already."""

    @classmethod
    def create(cls, agent: Agent, policy: Any, how: Perturbation | None = None) -> "ActingPolicy":
        """The policy without what does not act."""
        return cls(agent, policy.replace(critic=None), how)

    def __call__(self, observation: Array) -> Distribution:
        """π(· | observation); of a perturbed policy, at the first step of an episode."""
        if self.how is None:
            return self.agent.distribution(self.parameters, observation)
        return perturbed_distribution(self.agent, self.parameters, self.how, observation)


def no_policies(agent: Agent, count: int, perturbed: bool = False) -> ActingPolicy:
    """Empty places for so many policies of an agent, stacked."""

    def one(key: Array) -> ActingPolicy:
        how = draw_perturbations(agent.action_space, key, 1) if perturbed else None
        return ActingPolicy.create(agent, agent.init(key, 1).policy, jax.tree.map(lambda x: x[0], how))

    shapes = jax.eval_shape(one, jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)
