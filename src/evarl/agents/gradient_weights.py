"""What evaluation-aware learning asks of an ordinary policy gradient: weights on its advantages, and a second batch."""

from flax import struct
from jaxtyping import Array, Float


class GradientWeights(struct.PyTreeNode):
    """Everything here is held fixed when the policy is differentiated, and is in units of reward."""

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
