"""Actor and critic: separate multilayer perceptrons on flattened observations."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax.linen.initializers import constant, orthogonal, zeros
from jaxtyping import Array, Float

from evarl.agents.distributions import Categorical, DiagonalGaussian, Distribution, action_size
from evarl.worlds.spaces import Discrete, Space


class MLP(nn.Module):
    """Dense layers with orthogonal initial weights, gain √2 inside and `output_gain` at the end."""

    hidden_sizes: tuple[int, ...]
    outputs: int
    activation: str
    output_gain: float

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch outputs"]:
        """Apply the layers to one long batch: on a CPU, products with several batch axes cost about a sixth more."""
        batch, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
        for width in self.hidden_sizes:
            x = nn.Dense(width, kernel_init=orthogonal(float(np.sqrt(2))), bias_init=zeros)(x)
            x = nn.tanh(x) if self.activation == "tanh" else nn.relu(x)
        x = nn.Dense(self.outputs, kernel_init=orthogonal(self.output_gain), bias_init=zeros)(x)
        return x.reshape(*batch, self.outputs)


class Actor(nn.Module):
    """Maps features to a distribution over actions. The initial policy is close to uniform, or to N(0, 1)."""

    hidden_sizes: tuple[int, ...]
    activation: str
    space: Space

    @nn.compact
    def __call__(self, features: Float[Array, "*batch features"]) -> Distribution:
        """The policy's distribution."""
        outputs = MLP(self.hidden_sizes, action_size(self.space), self.activation, 0.01)(features)
        if isinstance(self.space, Discrete):
            return Categorical(outputs)
        log_deviation = self.param("log_deviation", constant(0.0), (action_size(self.space),))
        return DiagonalGaussian(outputs, jnp.broadcast_to(log_deviation, outputs.shape))


class Critic(nn.Module):
    """Maps features to a value."""

    hidden_sizes: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The predicted value."""
        return MLP(self.hidden_sizes, 1, self.activation, 1.0)(features)[..., 0]
