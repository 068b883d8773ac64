"""Pieces of the losses, each testable alone."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from evarl.agents.agent import Agent, AgentState
from evarl.worlds.third_party import lenient_promotion


def policy_gradient_loss(log_prob: Float[Array, "*batch"], advantage: Float[Array, "*batch"]) -> Float[Array, ""]:
    """− E[A log π(a|s)], whose gradient is minus the policy gradient."""
    return -jnp.mean(advantage * log_prob)


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
    """1 − Var(target − V) / Var(target): 1 for a perfect critic, 0 for one that knows only the mean."""
    return 1.0 - jnp.var(target - value) / (jnp.var(target) + 1e-8)


def descend(
    agent: Agent, state: AgentState, actor_gradient: optax.Updates, critic_gradient: optax.Updates
) -> AgentState:
    """One step of both optimisers."""
    policy = state.policy
    with lenient_promotion():
        actor_step, actor_optimizer = agent.actor_optimizer.update(actor_gradient, state.actor_optimizer, policy.actor)
        critic_step, critic_optimizer = agent.critic_optimizer.update(
            critic_gradient, state.critic_optimizer, policy.critic
        )
    actor, critic = optax.apply_updates(policy.actor, actor_step), optax.apply_updates(policy.critic, critic_step)
    policy = policy.replace(actor=actor, critic=critic)
    return state.replace(policy=policy, actor_optimizer=actor_optimizer, critic_optimizer=critic_optimizer)
