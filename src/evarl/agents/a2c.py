"""Advantage actor-critic: one gradient step of each network per batch."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from evarl.agents.advantages import normalise, spread
from evarl.agents.agent import Agent, AgentState, Parameters
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.losses import descend, explained_variance, policy_gradient_loss, value_loss
from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import Key


def improve(
    agent: Agent,
    state: AgentState,
    key: Key,
    trajectory: Trajectory,
    reward: Float[Array, "T N"],
    guidance: GradientWeights | None,
) -> tuple[AgentState, dict[str, Array]]:
    """The critic is evaluated once: the values it is trained on are also those behind the advantages."""
    policy = state.policy
    features = agent.features(policy, trajectory.observation)

    def critic_loss(critic: Parameters) -> tuple[Array, tuple[Array, Array]]:
        value, advantage = agent.advantages(policy, trajectory, features, critic, reward)
        return value_loss(value, value + advantage), (value, advantage)

    (loss_of_critic, (value, advantage)), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(policy.critic)
    unit = policy.value_scale * (spread(advantage) if agent.config.normalise_advantages else 1.0)
    weighted = normalise(advantage) if agent.config.normalise_advantages else advantage
    if guidance is not None:
        weighted = guidance.weight * weighted + guidance.bonus / unit

    def actor_loss(actor: Parameters) -> tuple[Array, tuple[Array, Array]]:
        distribution = agent.apply_actor(actor, features, trajectory.first_product)
        loss = policy_gradient_loss(distribution.log_prob(trajectory.action), weighted)
        if guidance is not None:
            shown = agent.apply_actor(actor, agent.features(policy, guidance.observation))
            loss -= jnp.sum(shown.log_prob(guidance.action) * guidance.advantage / unit)
        entropy = distribution.entropy().mean()
        return loss - agent.config.entropy_coefficient * entropy, (loss, entropy)

    (_, (loss_of_actor, entropy)), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(policy.actor)
    metrics = {
        "policy_loss": loss_of_actor,
        "value_loss": loss_of_critic,
        "entropy": entropy,
        "explained_variance": explained_variance(value, value + advantage),
        "actor_gradient_norm": optax.tree.norm(actor_gradient),
        "critic_gradient_norm": optax.tree.norm(critic_gradient),
    }
    return descend(agent, state, actor_gradient, critic_gradient), metrics
