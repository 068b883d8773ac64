"""The experience an agent learns from: the same type whether it came from a JAX world or from the host."""

from flax import struct
from jaxtyping import Array, Bool, Float, Int


class Trajectory(struct.PyTreeNode):
    """T steps of N environments, time first. Episodes follow each other within an environment."""

    observation: Array
    """[T, N, ...] what the policy saw before acting."""
    action: Array
    """[T, N, ...] what the policy did, in the policy's own units."""
    log_prob: Float[Array, "T N"]
    """log-probability of that action when it was taken."""
    reward: Float[Array, "T N"]
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    start_label: Int[Array, "T N"]
    """−1 unless an episode begins with this step. Within a group of environments that share their start states, equal
    labels mean the same start state."""
    final_observation: Array
    """[K, N, ...] what was seen when the j-th truncated episode of an environment ran out of time."""
    last_observation: Array
    """[N, ...] what was seen where the batch was cut."""
    first_product: Float[Array, "T N width"] | None = None
    """The features times the first kernel of the actor, where it was kept for learning: on wide observations that product
    is a good part of an update."""

    @property
    def done(self) -> Bool[Array, "T N"]:
        """Whether an episode ended with this step, for either reason."""
        return self.terminated | self.truncated
