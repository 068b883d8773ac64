"""What an evaluator knows: the behaviours it was fitted to, and how wrong it was about policies that it was not fitted to."""

from flax import struct
from jaxtyping import Array, Float

from evarl.assessment.behaviour import Behaviour


class Known(struct.PyTreeNode):
    """n policies with what they showed and returned, and what the evaluator predicts of them."""

    behaviour: Behaviour
    """[n, k, ...]"""
    returned: Float[Array, " n"]
    """Mean return from the start states of deployment that each of them was given."""
    predicted: Float[Array, " n"]
    """Mean prediction at these states."""


class Knowledge(struct.PyTreeNode):
    """Perturbed policies, of a diverse memory or tried after training, and policies of the run itself."""

    others: Known
    """Those that tell how wrong the evaluator is about which behaviour; of a diverse memory, those that it was fitted to."""
    held_out: Known
    """Those that it was not fitted to and that are used for nothing else: they calibrate intervals."""
    earlier: Behaviour
    """[n, k, ...] behaviours of policies of the run itself, which were all fitted to."""
