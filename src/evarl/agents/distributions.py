"""Distributions over actions: categorical and diagonal Gaussian, batched over any leading axes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from evarl.keys import unrolled
from evarl.worlds.spaces import Box, Discrete, Space
from evarl.worlds.world import Key

LOG_2PI = float(np.log(2 * np.pi))


class _Drawing:
    """What both kinds of distribution share; `noise(key, shape)` draws what `perturbed` takes."""

    def sample(self: Any, key: Key) -> Array:
        """Draw one action for each row."""
        return self.perturbed(self.noise(key, jax.tree.leaves(self)[0].shape))

    def draw(self: Any, noise: Float[Array, "*batch actions"]) -> tuple[Array, Float[Array, "*batch"]]:
        """The action that noise makes of the distribution, and its log-probability."""
        action = self.perturbed(noise)
        return action, self.log_prob(action)


class Categorical(_Drawing, struct.PyTreeNode):
    """p(a) ∝ exp(logits_a)."""

    logits: Float[Array, "*batch actions"]
    noise = staticmethod(lambda key, shape: jax.random.gumbel(unrolled(key), shape))

    def perturbed(self, noise: Float[Array, "*batch actions"]) -> Int[Array, "*batch"]:
        """The action that Gumbel noise makes of the logits: a draw."""
        return jnp.argmax(self.logits + noise, axis=-1)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log p(a)."""
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)  # a gather's gradient would be a scatter
        return jnp.where(chosen, jax.nn.log_softmax(self.logits), 0.0).sum(axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """− Σ_a p(a) log p(a)."""
        log_probabilities = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)

    def mode(self) -> Int[Array, "*batch"]:
        """The likeliest action."""
        return jnp.argmax(self.logits, axis=-1)


class DiagonalGaussian(_Drawing, struct.PyTreeNode):
    """Independent normal distributions, one for each coordinate of the action."""

    mean: Float[Array, "*batch actions"]
    log_deviation: Float[Array, "*batch actions"]
    noise = staticmethod(lambda key, shape: jax.random.normal(unrolled(key), shape))

    def perturbed(self, noise: Float[Array, "*batch actions"]) -> Float[Array, "*batch actions"]:
        """The action that standard normal noise makes of mean and deviation: a draw."""
        return self.mean + jnp.exp(self.log_deviation) * noise

    def log_prob(self, action: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
        """Log density."""
        standardised = (action - self.mean) * jnp.exp(-self.log_deviation)
        return jnp.sum(-0.5 * standardised**2 - self.log_deviation - 0.5 * LOG_2PI, axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """½ Σ log(2πe σ²)."""
        return jnp.sum(self.log_deviation + 0.5 * (1.0 + LOG_2PI), axis=-1)

    def mode(self) -> Float[Array, "*batch actions"]:
        """The mean."""
        return self.mean


Distribution = Categorical | DiagonalGaussian

Policy = Callable[[Array], Distribution]
"""π(· | observations [..., *observation]), such as `Partial(agent.distribution, policy)`."""


def world_action(space: Space, action: Array) -> Array:
    """What the world is given for an action of the policy.

    A policy with continuous actions works in units in which the bounds are −1 and 1 (unbounded coordinates keep their
    own units). Its action is clipped there and then scaled; likelihoods are always those of the unclipped action.
    """
    if isinstance(space, Discrete):
        return action
    low, high = space.bounds()
    bounded = np.isfinite(low) & np.isfinite(high)
    centre = np.where(bounded, (np.where(bounded, high, 0) + np.where(bounded, low, 0)) / 2, 0).astype(np.float32)
    reach = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, -1)) / 2, 1).astype(np.float32)
    limit = np.where(bounded, 1.0, np.inf).astype(np.float32)
    lead = (1,) * (action.ndim - 1)
    clip, shift, scale = (jnp.asarray(x.reshape(*lead, -1)) for x in (limit, centre, reach))
    return (shift + scale * jnp.clip(action, -clip, clip)).reshape(*action.shape[:-1], *space.shape)


def noise_for(space: Space, key: Key, batch: tuple[int, ...]) -> Float[Array, "*batch actions"]:
    """Noise from which `draw` makes actions in this space; it can be sampled before the distribution is known."""
    kind = Categorical if isinstance(space, Discrete) else DiagonalGaussian
    return kind.noise(key, (*batch, action_size(space)))


def action_size(space: Space) -> int:
    """Number of outputs an actor needs: one for each action, or one for each coordinate."""
    return space.size if isinstance(space, Box) else space.n
