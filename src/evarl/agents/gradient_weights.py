"""What evaluation-aware learning adds to an ordinary policy gradient."""

from collections.abc import Callable
from typing import Any

from flax import struct
from jaxtyping import Array, Float

from evarl.agents.distributions import Policy


class PathwiseTerm(struct.PyTreeNode):
    """A part of the behaviour Ξ that is a differentiable function of the policy, and its cotangent."""

    cotangent: Any
    behaviour: Callable[[Policy], Any] = struct.field(pytree_node=False)
    """The function; its result has the structure of the cotangent."""


class GradientWeights(struct.PyTreeNode):
    """Weights on the advantages of the deployment batch, and a second batch: the steps of the assessment.

    Everything here is held fixed when the policy is differentiated, and is in units of reward.
    """

    weight: Float[Array, "T N"]
    """w: multiplies the normalised advantages of the deployment batch."""
    bonus: Float[Array, "T N"]
    """Added to the advantages of the deployment batch."""
    observation: Array
    """[M, ...] states of the assessment rollouts."""
    action: Array
    """[M, ...]"""
    log_prob: Float[Array, " M"]
    advantage: Float[Array, " M"]
    """u times the advantage of the step, on the scale of a mean over the deployment batch; steps are summed."""
    entropy: Float[Array, " M"] | None = None
    """Weight of the policy's entropy at each step of the assessment; None if there is no bonus."""
    pathwise: PathwiseTerm | None = None
    """None unless the behaviour has a part that is differentiated directly."""
