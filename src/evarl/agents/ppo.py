"""Proximal policy optimisation: several passes over each batch with a clipped surrogate."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from evarl.agents.advantages import normalise, spread
from evarl.agents.agent import Agent, AgentState, Parameters
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.losses import clipped_terms, descend, explained_variance, value_loss
from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import Key

Minibatch = dict[str, Array]


def improve(
    agent: Agent,
    state: AgentState,
    key: Key,
    trajectory: Trajectory,
    reward: Float[Array, "T N"],
    guidance: GradientWeights | None,
) -> tuple[AgentState, dict[str, Array]]:
    """`epochs` passes of `minibatches` gradient steps; advantages are computed once, with the critic as it was."""
    features = agent.features(state.policy, trajectory.observation)
    value, advantage = agent.advantages(state.policy, trajectory, features, state.policy.critic, reward)
    size, minibatches = advantage.size, agent.config.ppo.minibatches
    batch = {
        "features": features,
        "action": trajectory.action,
        "log_prob": trajectory.log_prob,
        "advantage": advantage,
        "target": value + advantage,
    }
    if guidance is not None:
        batch |= {"weight": guidance.weight, "bonus": guidance.bonus}
    batch = {name: x.reshape(size, *x.shape[2:]) for name, x in batch.items()}

    def one_pass(state: AgentState, key: Key) -> tuple[AgentState, dict[str, Array]]:
        order = jax.random.permutation(key, size).reshape(minibatches, -1)
        return jax.lax.scan(
            lambda s, rows: _gradient_step(agent, s, {k: x[rows] for k, x in batch.items()}, guidance), state, order
        )

    state, metrics = jax.lax.scan(one_pass, state, jax.random.split(key, agent.config.ppo.epochs))
    metrics = {name: x.mean() for name, x in metrics.items()}
    return state, metrics | {"explained_variance": explained_variance(value, value + advantage)}


def _gradient_step(
    agent: Agent, state: AgentState, batch: Minibatch, guidance: GradientWeights | None
) -> tuple[AgentState, dict[str, Array]]:
    config = agent.config
    unit = state.policy.value_scale * (spread(batch["advantage"]) if config.normalise_advantages else 1.0)
    advantage = normalise(batch["advantage"]) if config.normalise_advantages else batch["advantage"]
    if guidance is not None:
        advantage = batch["weight"] * advantage + batch["bonus"] / unit

    def actor_loss(actor: Parameters) -> tuple[Array, tuple[Array, Array, Array]]:
        distribution = agent.apply_actor(actor, batch["features"])
        log_prob = distribution.log_prob(batch["action"])
        loss = -clipped_terms(log_prob, batch["log_prob"], advantage, config.ppo.clip_range).mean()
        if guidance is not None:
            shown = agent.apply_actor(actor, agent.features(state.policy, guidance.observation))
            terms = clipped_terms(
                shown.log_prob(guidance.action), guidance.log_prob, guidance.advantage / unit, config.ppo.clip_range
            )
            loss -= terms.sum()
        entropy = distribution.entropy().mean()
        log_ratio = log_prob - batch["log_prob"]
        divergence = jnp.mean(jnp.expm1(log_ratio) - log_ratio)
        return loss - config.entropy_coefficient * entropy, (loss, entropy, divergence)

    def critic_loss(critic: Parameters) -> Array:
        return value_loss(agent.apply_critic(critic, batch["features"]), batch["target"])

    (_, aux), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.policy.actor)
    loss_of_actor, entropy, divergence = aux
    loss_of_critic, critic_gradient = jax.value_and_grad(critic_loss)(state.policy.critic)
    metrics = {
        "policy_loss": loss_of_actor,
        "value_loss": loss_of_critic,
        "entropy": entropy,
        "policy_divergence": divergence,
        "actor_gradient_norm": optax.tree.norm(actor_gradient),
        "critic_gradient_norm": optax.tree.norm(critic_gradient),
    }
    return descend(agent, state, actor_gradient, critic_gradient), metrics
