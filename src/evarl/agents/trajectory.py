"""Batches of experience, the same whether they come from a compiled world or from the host."""

from typing import Any

from flax import struct
from jaxtyping import Array, Bool, Float, Int


class Trajectory(struct.PyTreeNode):
    """T steps of N environments, time first. Episodes follow each other within an environment.

    Those of worlds on the host are NumPy arrays: compiled programs take them as they are.
    """

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
    reusable: Any = None
    """What the agent computed when it acted and can use again when it learns, such as the actor's first matrix product; on wide
    observations that product is a good part of an update."""
    context: Float[Array, "N P"] | None = None
    """Hidden context of each environment in a family of worlds; for the critic, never for the policy."""

    @property
    def done(self) -> Any:
        """Whether an episode ended with this step, for either reason: [T, N]."""
        return self.terminated | self.truncated
