"""Actor and critic, separate multilayer perceptrons on flattened observations or on what a torso makes of them, and steps of
their optimisers.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen.initializers import constant, orthogonal, zeros
from jaxtyping import Array, Float, Shaped

from evarl.agents.distributions import Categorical, DiagonalGaussian, Distribution, action_size
from evarl.agents.torsos import embed
from evarl.worlds.spaces import Discrete, Space

Parameters = Any


class MLP(nn.Module):
    """Dense layers with orthogonal initial weights, gain √2 inside and `output_gain` at the end."""

    hidden_sizes: tuple[int, ...]
    outputs: int
    activation: str
    output_gain: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "*batch features"], product: Float[Array, "*batch width"] | None = None
    ) -> Float[Array, "*batch outputs"]:
        """Apply the layers to one long batch: on a CPU, products with several batch axes cost about a sixth more.

        `product` is `first_product`, where it is known already.
        """
        batch, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
        known = None if product is None else product.reshape(-1, product.shape[-1])
        for width in self.hidden_sizes:
            multiply = None if known is None else functools.partial(_recall, known)
            x = nn.Dense(width, kernel_init=orthogonal(float(np.sqrt(2))), bias_init=zeros, dot_general=multiply)(x)
            known = None
            x = nn.tanh(x) if self.activation == "tanh" else nn.relu(x)
        x = nn.Dense(self.outputs, kernel_init=orthogonal(self.output_gain), bias_init=zeros)(x)
        return x.reshape(*batch, self.outputs)


class Actor(nn.Module):
    """Maps features to a distribution over actions. The initial policy is close to uniform, or to N(0, 1)."""

    hidden_sizes: tuple[int, ...]
    activation: str
    space: Space
    torso: nn.Module | None = None
    """What comes before the dense layers; see `evarl.agents.torsos`."""
    shape: tuple[int, ...] = ()
    """Shape of an observation, for the torso."""

    @nn.compact
    def __call__(
        self, features: Float[Array, "*batch features"], product: Float[Array, "*batch width"] | None = None
    ) -> Distribution:
        """The policy's distribution; `product` is `first_product`, where it is known already."""
        features = embed(self.torso, self.shape, features)
        outputs = MLP(self.hidden_sizes, action_size(self.space), self.activation, 0.01)(features, product)
        if isinstance(self.space, Discrete):
            return Categorical(outputs)
        log_deviation = self.param("log_deviation", constant(0.0), (action_size(self.space),))
        return DiagonalGaussian(outputs, jnp.broadcast_to(log_deviation, outputs.shape))


class Critic(nn.Module):
    """Maps features to a value."""

    hidden_sizes: tuple[int, ...]
    activation: str
    torso: nn.Module | None = None
    shape: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The predicted value."""
        features = embed(self.torso, self.shape, features)
        return MLP(self.hidden_sizes, 1, self.activation, 1.0)(features)[..., 0]


def flat_features(observation: Array, axes: int) -> Float[Array, "*batch features"]:
    """Observations of so many axes as rows of float32. Small dtypes are widened only here.

    Flags are selected and not converted: on a CPU a conversion of reshaped flags compiles to a loop that is not
    vectorised, and took up to 15 times as long.
    """
    flat = observation.reshape(*observation.shape[: observation.ndim - axes], -1)
    return jnp.where(flat, 1.0, 0.0) if flat.dtype == bool else flat.astype(jnp.float32)


def first_product(network: Parameters, features: Float[Array, "*batch features"]) -> Float[Array, "*batch width"]:
    """The features times the kernel of an actor's or a critic's first layer."""
    return features @ network["params"]["MLP_0"]["Dense_0"]["kernel"]


def clipped_adam(learning_rate: optax.ScalarOrSchedule, most: float) -> optax.GradientTransformation:
    """Adam on gradients whose global norm is at most `most`.

    All parameters are one vector to it: with networks as small as these, an operation on each matrix and each bias takes longer
    than all of their numbers.
    """
    return optax.flatten(optax.chain(optax.clip_by_global_norm(most), optax.adam(learning_rate, eps=1e-5)))


def as_vector(tree: Any) -> Shaped[Array, " P"]:
    """All numbers of a tree in a row, in the order of `optax.flatten`, so that the compiler makes the vector once."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def descend(
    optimizer: optax.GradientTransformation, gradient: optax.Updates, state: optax.OptState, parameters: Any
) -> tuple[Any, optax.OptState]:
    """The parameters and the optimiser's state after one gradient step."""
    # Optax mixes dtypes, which is an error under the strict rules that evarl is tested with
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        step, state = optimizer.update(gradient, state, parameters)
    return optax.apply_updates(parameters, step), state


def _recall(product: Array, x: Array, kernel: Array, *_: Any, **__: Any) -> Array:
    """Stands in for a layer's product that is known: the number costs nothing, the gradient is as usual."""
    return _recalled(kernel, product, x)


@jax.custom_vjp
def _recalled(
    kernel: Float[Array, "features width"], product: Float[Array, "batch width"], x: Float[Array, "batch features"]
) -> Float[Array, "batch width"]:
    return product


def _forward(kernel: Array, product: Array, x: Array) -> tuple[Array, Array]:
    return product, x


def _backward(x: Array, slope: Array) -> tuple[Array, None, None]:
    """With respect to the kernel alone: observations are not differentiated."""
    return x.T @ slope, None, None


_recalled.defvjp(_forward, _backward)
