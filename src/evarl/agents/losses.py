"""Losses of actor and critic; the only place where the weights of evaluation-aware learning enter a loss."""

from collections.abc import Callable
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evarl.agents.actor_critic import ActorCritic, PolicyState
from evarl.agents.advantages import normalise, spread
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.networks import Parameters
from evarl.agents.trajectory import Trajectory

Surrogate = Callable[[Array, Array, Array, Array | float], Array]
"""Maps log-probabilities, those when the actions were taken, advantages and their unit to terms to be maximised.

Advantages are to be divided by the unit."""


class ActorBatch(NamedTuple):
    """What the actor learns from: a batch, or a minibatch, of deployment steps."""

    features: Float[Array, "*batch features"]
    action: Array
    """[*batch, ...]"""
    log_prob: Float[Array, "*batch"]
    """When the action was taken."""
    advantage: Float[Array, "*batch"]
    """In the critic's units, not normalised."""
    weight: Float[Array, "*batch"] | None
    """`GradientWeights.weight` and `bonus` of these steps."""
    bonus: Float[Array, "*batch"] | None
    product: Float[Array, "*batch width"] | None = None
    """`networks.first_product`, where it is known already."""

    @classmethod
    def create(cls, features: Array, trajectory: Trajectory, advantage: Array, weights: GradientWeights | None) -> Self:
        """The steps of a trajectory, with their gradient weights where there are any."""
        added = (None, None) if weights is None else (weights.weight, weights.bonus)
        return cls(features, trajectory.action, trajectory.log_prob, advantage, *added)


def actor_loss(
    agent: ActorCritic, policy: PolicyState, batch: ActorBatch, weights: GradientWeights | None, surrogate: Surrogate
) -> Callable[[Parameters], tuple[Array, tuple[Array, Array, Array]]]:
    """The actor's loss as a function of its parameters; also its part without entropy, the entropy and log-probabilities.

    Advantages are weighted after they were normalised (normalising afterwards would undo the weights), and the steps of the
    assessment enter the policy gradient as a second batch.
    """
    normalised = agent.config.normalise_advantages
    unit = policy.value_scale * (spread(batch.advantage) if normalised else 1.0)
    advantage = normalise(batch.advantage) if normalised else batch.advantage
    if batch.weight is not None and batch.bonus is not None:
        advantage = batch.weight * advantage + batch.bonus / unit

    def loss(actor: Parameters) -> tuple[Array, tuple[Array, Array, Array]]:
        distribution = agent.apply_actor(actor, batch.features, batch.product)
        log_prob = distribution.log_prob(batch.action)
        gain = -surrogate(log_prob, batch.log_prob, advantage, 1.0).mean()
        if weights is not None:
            gain -= assessment_terms(agent, policy, actor, weights, surrogate, unit)
        entropy = distribution.entropy().mean()
        return gain - agent.config.entropy_coefficient * entropy, (gain, entropy, log_prob)

    return loss


def assessment_terms(
    agent: ActorCritic,
    policy: PolicyState,
    actor: Parameters,
    weights: GradientWeights,
    surrogate: Surrogate,
    unit: Float[Array, ""],
) -> Float[Array, ""]:
    """What the assessment adds to the actor's objective: its steps by the score function, the rest of Ξ pathwise."""
    act = lambda observation: agent.apply_actor(actor, agent.features(policy, observation))  # noqa: E731
    distribution = act(weights.observation)
    log_prob = distribution.log_prob(weights.action)
    total = jnp.sum(surrogate(log_prob, weights.log_prob, weights.advantage, unit))
    if weights.entropy is not None:
        total += jnp.sum(weights.entropy * distribution.entropy())
    if weights.pathwise is not None:
        behaviour = weights.pathwise.behaviour(act)
        products = jax.tree.map(lambda slope, x: jnp.sum(slope * x), weights.pathwise.cotangent, behaviour)
        total += jax.tree.reduce(jnp.add, products) / unit
    return total


def clipped_terms(
    log_prob: Float[Array, "*batch"],
    old_log_prob: Float[Array, "*batch"],
    advantage: Float[Array, "*batch"],
    clip_range: float,
) -> Float[Array, "*batch"]:
    """min(ρA, clip(ρ, 1 ± ε) A) with ρ = π(a|s) / π_old(a|s), to be maximised."""
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return jnp.minimum(ratio * advantage, clipped * advantage)


def value_loss(value: Float[Array, "*batch"], target: Float[Array, "*batch"]) -> Float[Array, ""]:
    """½ E[(V − target)²]."""
    return 0.5 * jnp.mean((value - jax.lax.stop_gradient(target)) ** 2)


def explained_variance(value: Float[Array, "*batch"], target: Float[Array, "*batch"]) -> Float[Array, ""]:
    """1 − Var(target − V) / Var(target): 1 for a perfect critic, 0 for one that predicts only the mean."""
    return 1.0 - jnp.var(target - value) / (jnp.var(target) + 1e-8)
