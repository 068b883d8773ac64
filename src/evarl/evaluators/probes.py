"""Learnt probes: the observations at which an evaluator asks policies how they would act, as parameters of the evaluator.

They begin at the start states of the assessment, and follow the gradient of the evaluator's own loss (Faccio et al., General
Policy Evaluation and Improvement by Learning to Identify Few But Crucial States). The memory keeps the policies, so that what
these show at the present probes can be computed at any time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Shaped

from evarl.agents.distributions import Policy
from evarl.evaluators.memory import PolicyRecord

FOLLOWING = 0.05
"""Weight of each batch in the scales of what policies show at the probes, while these move."""
LEAST_DEVIATION = 0.05
"""Least unit of what policies show at learnt probes: where all of them act alike, the loss must still have a slope."""

Probe = Callable[[Any, Array, Policy], Any]
"""(pathwise part of a behaviour, probes [k, ...], policy) → that part at these probes: all that evaluators know of it."""


class Probes(struct.PyTreeNode):
    """The probes as they are fitted."""

    observation: Float[Array, "k ..."]
    optimizer: optax.OptState

    @classmethod
    def create(cls, start: Shaped[Array, "k ..."], optimizer: optax.GradientTransformation) -> "Probes":
        """Probes at the start states; flags and whole numbers become real ones, which can move."""
        observation = start if jnp.issubdtype(start.dtype, jnp.floating) else start.astype(jnp.float32)
        return cls(observation, optimizer.init(observation))


def shown_at(probe: Probe, probes: Float[Array, "k ..."], records: PolicyRecord) -> PolicyRecord:
    """Records [p, ...] with the behaviours that their policies have at some probes."""
    each = jax.vmap(lambda pathwise, policy: probe(pathwise, probes, policy))
    pathwise = each(records.behaviour.pathwise, records.policy)
    return records.replace(behaviour=records.behaviour.replace(pathwise=pathwise))
