"""The network of fitted Q evaluation: inputs, weights and values, all standardised."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evarl.worlds.world import Key

Layers = tuple[tuple[Float[Array, "_ _"], Float[Array, " _"]], ...]
"""Weights and biases."""


class Coded(NamedTuple):
    """Features of which the first ones are all 0 but one: the product with a weight matrix is one of its rows."""

    place: Int[Array, " *B"]
    """Index of the one that is not 0."""
    scale: Float[Array, " *B"]
    """Its value."""
    rest: Float[Array, "*B F"]
    """The other features."""


Inputs = Float[Array, "B F"] | Coded


def action_value(parameters: Layers, inputs: Inputs, action: Array) -> Float[Array, " B"]:
    """Standardised Q of one action for each row of features."""
    if action.ndim == 2:
        if isinstance(inputs, Coded):
            both: Inputs = inputs._replace(rest=jnp.concatenate([inputs.rest, action], axis=1))
        else:
            both = jnp.concatenate([inputs, action], axis=1)
        return forward(parameters, both)[:, 0]
    return taken(forward(parameters, inputs), action)


def taken(values: Float[Array, "B A"], action: Int[Array, " B"]) -> Float[Array, " B"]:
    """Values of the actions taken."""
    return (values * jax.nn.one_hot(action, values.shape[1], dtype=values.dtype)).sum(axis=1)


def expected(parameters: Layers, inputs: Inputs, actions: Array) -> Float[Array, " B"]:
    """Standardised V from probabilities [B, A] or draws [B, S, D]."""
    if actions.ndim == 2:
        return (forward(parameters, inputs) * actions).sum(axis=1)
    count, samples = actions.shape[:2]
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, samples, axis=0), inputs)
    found = action_value(parameters, repeated, actions.reshape(count * samples, -1))
    return found.reshape(count, samples).mean(axis=1)


def forward(parameters: Layers, inputs: Inputs) -> Float[Array, "B out"]:
    """Outputs of the network."""
    (first, offset), *others = parameters
    if isinstance(inputs, Coded):
        width = first.shape[0] - inputs.rest.shape[1]
        x = inputs.scale[:, None] * first[inputs.place] + inputs.rest @ first[width:]
    else:
        x = inputs @ first
    x = x + offset[None]
    for weight, bias in others:
        x = jax.nn.relu(x) @ weight + bias[None]
    return x


@partial(jax.jit, static_argnames="sizes")
def initial(key: Key, sizes: tuple[int, ...]) -> tuple[Layers, Key]:
    """He-normal weights, and a key for what follows; zeros in the last layer, so that every value starts at the centre.

    Not orthogonal: a QR decomposition inside a mapped program can deadlock on a CPU. All layers are drawn by one kernel,
    which takes a third of the time to compile, with the numbers that separate ones would draw.
    """
    key, other = jax.random.split(key)
    pairs = list(pairwise(sizes))
    keys = jax.random.split(key, len(pairs))
    most = max(above * below for above, below in pairs)
    drawn = jax.vmap(lambda one: jax.random.normal(one, (most,)))(keys)
    layers = []
    for (above, below), numbers in zip(pairs[:-1], drawn[:-1], strict=True):
        weights = numbers[: above * below].reshape(above, below) * (2 / above) ** 0.5
        layers.append((weights, jnp.zeros(below)))
    return (*layers, (jnp.zeros(sizes[-2:]), jnp.zeros(sizes[-1]))), other
