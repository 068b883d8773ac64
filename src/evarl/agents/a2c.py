"""Advantage actor-critic (A2C): one gradient step of the actor per batch, and one or more of the critic."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evarl.agents.actor_critic import ActorCritic, AgentState, PolicyState
from evarl.agents.agent import Metrics
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.losses import ActorBatch, actor_loss, explained_variance, value_loss
from evarl.agents.networks import Parameters, as_vector, descend, first_product
from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import Key


class A2C(ActorCritic):
    """The policy gradient with the critic's advantages."""

    def explore(
        self, policy: PolicyState, noise: Float[Array, "*batch actions"], observation: Array
    ) -> tuple[Array, ...]:
        """Actions, log-probabilities, and the actor's first matrix product, from which the only gradient step starts."""
        if self.actor.torso is not None:
            return super().explore(policy, noise, observation)
        features = self.features(policy, observation)
        product = first_product(policy.actor, features)
        return *self.apply_actor(policy.actor, features, product).draw(noise), product

    def learn(
        self, state: AgentState, key: Key, trajectory: Trajectory, weights: GradientWeights | None
    ) -> tuple[AgentState, Metrics]:
        """The critic is evaluated once: the values it is trained on first are also those behind the advantages."""
        policy = state.policy
        features = self.features(policy, trajectory.observation)

        def critic_loss(critic: Parameters) -> tuple[Array, tuple[Array, Array]]:
            value, advantage = self.advantages(policy, trajectory, features, critic)
            return value_loss(value, value + advantage), (value, advantage)

        critic_slope = jax.value_and_grad(critic_loss, has_aux=True)
        (critic_cost, (value, advantage)), critic_gradient = critic_slope(policy.critic)
        batch = ActorBatch.create(features, trajectory, advantage, weights)._replace(product=trajectory.reusable)
        loss = actor_loss(self, policy, batch, weights, policy_gradient)
        (_, (actor_cost, entropy, _)), actor_gradient = jax.value_and_grad(loss, has_aux=True)(policy.actor)
        metrics = {
            "policy_loss": actor_cost,
            "value_loss": critic_cost,
            "entropy": entropy,
            "explained_variance": explained_variance(value, value + advantage),
            "actor_gradient_norm": jnp.linalg.norm(as_vector(actor_gradient)),
            "critic_gradient_norm": jnp.linalg.norm(as_vector(critic_gradient)),
        }
        state = self.descend(state, actor_gradient, critic_gradient)
        if self.config.critic_steps > 1:
            state = self._further_critic_steps(state, trajectory, features)
        return state, metrics

    def _further_critic_steps(
        self, state: AgentState, trajectory: Trajectory, features: Float[Array, "T N features"]
    ) -> AgentState:
        """All steps of the critic but the first, on the whole batch; the actor stays as it is."""

        def one_step(_: Array, state: AgentState) -> AgentState:
            policy = state.policy

            def critic_loss(critic: Parameters) -> Array:
                value, advantage = self.advantages(policy, trajectory, features, critic)
                return value_loss(value, value + advantage)

            gradient = jax.grad(critic_loss)(policy.critic)
            critic, optimizer = descend(self.critic_optimizer, gradient, state.critic_optimizer, policy.critic)
            return state.replace(policy=policy.replace(critic=critic), critic_optimizer=optimizer)

        return jax.lax.fori_loop(1, self.config.critic_steps, one_step, state)


def policy_gradient(log_prob: Array, old_log_prob: Array, advantage: Array, unit: Array | float) -> Array:
    """A log π(a|s), whose gradient is the policy gradient."""
    return log_prob * advantage / unit
