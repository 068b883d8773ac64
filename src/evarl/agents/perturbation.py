"""Perturbed policies: odd relatives of a policy, from which an evaluator learns what values other behaviour has.

A perturbed policy has noise in its parameters, and acts in five steps: the noisy policy draws an action; with some probability a
uniformly random action takes its place; with some probability its favourite action does; with some probability the action that
was decided on one step before is taken instead (a delay); and with some probability the last action is repeated.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from evarl.agents.agent import Agent
from evarl.agents.distributions import Categorical, DiagonalGaussian, Distribution
from evarl.keys import split, unrolled
from evarl.worlds.spaces import Box, Discrete, Space
from evarl.worlds.world import Key

LEAST_NOISE, MOST_NOISE = 0.03, 3.0
"""Sizes of the noise in parameters, relative to the root mean square of each array of them; drawn log-uniformly in between."""
WHOLE = 0.2
"""Probability that a share of random or repeated actions is 1, so that the extremes are among the policies that are met."""
LEAST_DEVIATION = 1e-2
"""Least deviation of a perturbed policy's continuous actions, if its own is not less: an action that is always the same has 0."""


class Perturbation(struct.PyTreeNode):
    """How far a policy is from the one that it is made of; 0 is not at all."""

    noise: Float[Array, "*count"]
    """Size of the noise in the parameters, relative to theirs."""
    random: Float[Array, "*count"]
    """Probability of a uniformly random action in place of the policy's."""
    favoured: Float[Array, "*count"]
    """Probability of one action that is always the same, as if an actuator were stuck."""
    delayed: Float[Array, "*count"]
    """Probability that the action decided on one step before is taken."""
    sticky: Float[Array, "*count"]
    """Probability that the last action is repeated."""
    favourite: Float[Array, "*count d"]
    """That action as numbers from 0 to 1: one for discrete actions, one for each coordinate of continuous ones."""


class Acted(NamedTuple):
    """The actions of one step, [N, ...]."""

    taken: Array
    decided: Array
    """The actions before delay and repetition."""


def draw_perturbations(space: Space, key: Key, count: int) -> Perturbation:
    """Perturbations [count]. Each of the five parts is 0 with probability ⅔, so that one policy in eight is left as it is."""
    on_key, noise_key, share_key, whole_key, favourite_key = split(key, 5)
    on = jax.random.bernoulli(on_key, 1 / 3, (5, count))
    exponent = jax.random.uniform(noise_key, (count,))
    noise = LEAST_NOISE * (MOST_NOISE / LEAST_NOISE) ** exponent
    shares = jax.random.uniform(share_key, (4, count))
    shares = jnp.where(jax.random.bernoulli(whole_key, WHOLE, (4, count)), 1.0, shares)
    favourite = jax.random.uniform(favourite_key, (count, space.size if isinstance(space, Box) else 1))
    sizes = jnp.where(on, jnp.concatenate([noise[None], shares]), 0.0)
    return Perturbation(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], favourite)


def no_perturbation(space: Space) -> Perturbation:
    """That of a policy which is left as it is."""
    zero = jnp.zeros(())
    return Perturbation(zero, zero, zero, zero, zero, jnp.zeros(space.size if isinstance(space, Box) else 1))


def with_noise(policy: Any, size: Float[Array, ""], key: Key) -> Any:
    """The policy with its actor's parameters θ + size · rms(θ) · ε, ε standard normal, array by array."""
    leaves, structure = jax.tree.flatten(policy.actor)
    rows = zip(leaves, split(key, len(leaves)), strict=True)
    noisy = [x + size * jnp.sqrt(jnp.mean(x**2)) * jax.random.normal(own, x.shape) for x, own in rows]
    return policy.replace(actor=jax.tree.unflatten(structure, noisy))


def perturbed_action(
    agent: Agent,
    policy: Any,
    how: Perturbation,
    key: Key,
    observation: Array,
    last: Acted | None,
    first: Bool[Array, ""] | None,
) -> Acted:
    """Actions [N, ...] of a perturbed policy whose parameters have their noise already.

    Without `last` actions, or where it is the `first` step of an episode, nothing is late or repeated.
    """
    own_key, random_key, chance_key = split(key, 3)
    action, _ = agent.act(policy, own_key, observation)
    count, rest = action.shape[0], (1,) * (action.ndim - 1)
    chance = jax.random.uniform(unrolled(chance_key), (4, count, *rest))
    action = jnp.where(chance[0] < how.random, random_actions(agent.action_space, random_key, action), action)
    action = jnp.where(chance[1] < how.favoured, _favourite(agent.action_space, how.favourite, action), action)
    if last is None or first is None:
        return Acted(action, action)
    taken = jnp.where((chance[2] < how.delayed) & ~first, last.decided, action)
    return Acted(jnp.where((chance[3] < how.sticky) & ~first, last.taken, taken), action)


def perturbed_distribution(agent: Agent, policy: Any, how: Perturbation, observation: Array) -> Distribution:
    """The distribution of a perturbed policy's actions at the first step of an episode, where nothing is late or repeated.

    It is the mixture (1 − f) [(1 − r) π + r uniform] + f δ(favourite) of the policy π, which has its noise already, with the
    shares r of random actions and f of the favourite one. For discrete actions its probabilities are exact. For continuous ones
    it is the normal distribution with the mean and the deviation of the mixture; uniform numbers from −1 to 1 have variance ⅓.
    """
    own, r, f = agent.distribution(policy, observation), how.random, how.favoured
    if isinstance(own, Categorical):
        actions = own.logits.shape[-1]
        favourite = _favourite(agent.action_space, how.favourite, jnp.zeros((), jnp.int32))
        chosen = jnp.broadcast_to(jax.nn.one_hot(favourite, actions), own.logits.shape)
        mixed = (1.0 - f) * ((1.0 - r) * jax.nn.softmax(own.logits) + r / actions) + f * chosen
        return Categorical(jnp.log(jnp.maximum(mixed, jnp.finfo(mixed.dtype).tiny)))
    variance, favourite = jnp.exp(2.0 * own.log_deviation), _favourite(agent.action_space, how.favourite, own.mean)
    parts = ((1.0 - f) * (1.0 - r), own.mean, variance), ((1.0 - f) * r, 0.0, 1.0 / 3.0), (f, favourite, 0.0)
    mean = sum((share * centre for share, centre, _ in parts), start=jnp.zeros_like(own.mean))
    spread = [share * (within + (centre - mean) ** 2) for share, centre, within in parts]
    least = jnp.minimum(variance, LEAST_DEVIATION**2)
    return DiagonalGaussian(mean, 0.5 * jnp.log(jnp.maximum(spread[0] + spread[1] + spread[2], least)))


def random_actions(space: Space, key: Key, like: Array) -> Array:
    """Uniformly random actions of the shape and type of `like`, in the policy's units: continuous ones from −1 to 1."""
    if isinstance(space, Discrete):
        return jax.random.randint(unrolled(key), like.shape, 0, space.n, like.dtype)
    return jax.random.uniform(unrolled(key), like.shape, like.dtype, -1.0, 1.0)


def _favourite(space: Space, numbers: Float[Array, " d"], like: Array) -> Array:
    """The action that numbers from 0 to 1 stand for, as often as in `like`."""
    if isinstance(space, Discrete):
        return jnp.broadcast_to(jnp.floor(numbers[0] * space.n).astype(like.dtype), like.shape)
    return jnp.broadcast_to(2.0 * numbers[None] - 1.0, like.shape)
