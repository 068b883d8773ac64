"""Proximal policy optimisation (PPO): several passes over each batch with a clipped surrogate."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from evarl.agents.actor_critic import ActorCritic, AgentState
from evarl.agents.agent import Metrics
from evarl.agents.configuration import AgentConfig
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.losses import ActorBatch, actor_loss, clipped_terms, explained_variance, value_loss
from evarl.agents.networks import Parameters, as_vector
from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import Key


class PPO(ActorCritic):
    """Clipped policy gradients on minibatches; its own settings are `config.ppo`."""

    @staticmethod
    def gradient_steps(config: AgentConfig) -> int:
        """Gradient steps in one update."""
        return config.ppo.epochs * config.ppo.minibatches

    def learn(
        self, state: AgentState, key: Key, trajectory: Trajectory, weights: GradientWeights | None
    ) -> tuple[AgentState, Metrics]:
        """`epochs` passes of `minibatches` gradient steps; advantages are computed once, with the critic as it was.

        A single minibatch is the whole batch in any order, and so is not drawn.
        """
        features = self.features(state.policy, trajectory.observation)
        value, advantage = self.advantages(state.policy, trajectory, features, state.policy.critic)
        size, minibatches = advantage.size, self.config.ppo.minibatches
        batch = ActorBatch.create(features, trajectory, advantage, weights)
        shown = self.seen_by_critic(features, trajectory.context) if self.contexts else None
        rows = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), (batch, (value + advantage, shown)))

        def one_step(state: AgentState, chosen: Int[Array, " B"]) -> tuple[AgentState, Metrics]:
            minibatch, critic_batch = jax.tree.map(lambda x: x[chosen], rows)
            return self._gradient_step(state, minibatch, critic_batch, weights)

        def one_pass(state: AgentState, key: Key) -> tuple[AgentState, Metrics]:
            if minibatches == 1:
                minibatch, critic_batch = rows
                return self._gradient_step(state, minibatch, critic_batch, weights)
            return jax.lax.scan(one_step, state, jax.random.permutation(key, size).reshape(minibatches, -1))

        state, metrics = jax.lax.scan(one_pass, state, jax.random.split(key, self.config.ppo.epochs))
        metrics = {name: x.mean() for name, x in metrics.items()}
        return state, metrics | {"explained_variance": explained_variance(value, value + advantage)}

    def _gradient_step(
        self,
        state: AgentState,
        batch: ActorBatch,
        critic_batch: tuple[Float[Array, " B"], Float[Array, "B G"] | None],
        weights: GradientWeights | None,
    ) -> tuple[AgentState, Metrics]:
        """One step of both optimisers; `critic_batch` has targets and, where they are not the actor's, inputs."""
        clip, (target, shown) = self.config.ppo.clip_range, critic_batch

        def surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, unit: Array | float) -> Array:
            return clipped_terms(log_prob, old_log_prob, advantage / unit, clip)

        def critic_loss(critic: Parameters) -> Array:
            return value_loss(self.apply_critic(critic, batch.features if shown is None else shown), target)

        policy = state.policy
        loss = actor_loss(self, policy, batch, weights, surrogate)
        (_, (actor_cost, entropy, log_prob)), actor_gradient = jax.value_and_grad(loss, has_aux=True)(policy.actor)
        critic_cost, critic_gradient = jax.value_and_grad(critic_loss)(policy.critic)
        log_ratio = log_prob - batch.log_prob
        metrics = {
            "policy_loss": actor_cost,
            "value_loss": critic_cost,
            "entropy": entropy,
            "policy_divergence": jnp.mean(jnp.expm1(log_ratio) - log_ratio),
            "actor_gradient_norm": jnp.linalg.norm(as_vector(actor_gradient)),
            "critic_gradient_norm": jnp.linalg.norm(as_vector(critic_gradient)),
        }
        return self.descend(state, actor_gradient, critic_gradient), metrics
