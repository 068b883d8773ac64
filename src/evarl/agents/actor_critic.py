"""Actor-critic agents: two networks, two optimisers, and everything but the learning rule."""

import abc
from dataclasses import dataclass
from typing import Self, cast

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float

from evarl.agents.advantages import generalised_advantages, next_values
from evarl.agents.agent import Metrics
from evarl.agents.configuration import AgentConfig
from evarl.agents.distributions import Distribution, noise_for
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.networks import Actor, Critic, Parameters, clipped_adam, descend, flat_features
from evarl.agents.normalisation import RewardScale, RunningStatistics
from evarl.agents.torsos import torso_for
from evarl.agents.trajectory import Trajectory
from evarl.errors import InputError
from evarl.worlds.contexts import Context, standardised
from evarl.worlds.spaces import Box, Space
from evarl.worlds.world import Key


class PolicyState(struct.PyTreeNode):
    """Parameters needed to act and to predict values: what is saved as the final policy."""

    actor: Parameters
    critic: Parameters
    observation_statistics: RunningStatistics | None
    value_scale: Float[Array, ""]
    """Units of reward in one unit of the critic's output."""


class AgentState(struct.PyTreeNode):
    """Everything that learning changes."""

    policy: PolicyState
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    reward_scale: RewardScale | None


@dataclass(frozen=True, eq=False)
class ActorCritic(abc.ABC):
    """An actor and a critic, two separate networks. A subclass adds a learning rule, `learn`."""

    config: AgentConfig
    observation_space: Box
    action_space: Space
    discount: float
    actor: Actor
    critic: Critic
    actor_optimizer: optax.GradientTransformation
    critic_optimizer: optax.GradientTransformation
    contexts: tuple[Context, ...] = ()
    """Hidden numbers that the critic sees beside the observation, as in asymmetric actor-critic; the actor never does."""

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        observation_space: Box,
        action_space: Space,
        discount: float,
        updates: int,
        contexts: tuple[Context, ...] = (),
    ) -> Self:
        """Networks and optimisers for some spaces; `updates` is the length of the run, for annealing."""

        def optimizer(learning_rate: float, steps: int = 1) -> optax.GradientTransformation:
            schedule = optax.linear_schedule(learning_rate, 0.0, updates * cls.gradient_steps(config) * steps)
            return clipped_adam(schedule if config.anneal_learning_rates else learning_rate, config.max_gradient_norm)

        torso, shape = torso_for(config.network, observation_space), observation_space.shape
        actor = Actor(config.hidden_sizes, config.activation, action_space, torso, shape)
        critic = Critic(config.hidden_sizes, config.activation, torso, shape)
        critic_optimizer = optimizer(config.critic_learning_rate, config.critic_steps)
        optimizers = optimizer(config.actor_learning_rate), critic_optimizer
        return cls(config, observation_space, action_space, discount, actor, critic, *optimizers, contexts)

    @staticmethod
    def gradient_steps(config: AgentConfig) -> int:
        """Gradient steps in one update."""
        return 1

    @abc.abstractmethod
    def learn(
        self, state: AgentState, key: Key, trajectory: Trajectory, weights: GradientWeights | None
    ) -> tuple[AgentState, Metrics]:
        """The learning rule: gradient steps on one batch, whose rewards are in the critic's units."""

    def init(self, key: Key, environments: int) -> AgentState:
        """Fresh networks and optimisers. Not to be vmapped on a CPU: batched orthogonal initialisation can hang."""
        actor_key, critic_key = jax.random.split(key)
        features = jnp.zeros((1, self.observation_space.size))
        shown = self.seen_by_critic(features, jnp.zeros((1, len(self.contexts))))
        actor, critic = self.actor.init(actor_key, features), self.critic.init(critic_key, shown)
        size, config = self.observation_space.size, self.config
        standardised = config.normalise_observations and self._pixel is None
        statistics = RunningStatistics.create((size,)) if standardised else None
        policy = PolicyState(actor, critic, statistics, value_scale=jnp.ones(()))
        scale = RewardScale.create(environments) if config.scale_rewards else None
        return AgentState(policy, self.actor_optimizer.init(actor), self.critic_optimizer.init(critic), scale)

    def features(self, policy: PolicyState, observation: Array) -> Float[Array, "*batch features"]:
        """Flattened observations, standardised where the configuration asks for it; images of bytes are from 0 to 1."""
        flat = flat_features(observation, len(self.observation_space.shape))
        if self._pixel is not None:
            flat = flat * self._pixel
        statistics = policy.observation_statistics
        return flat if statistics is None else statistics.standardise(flat)

    @property
    def _pixel(self) -> float | None:
        """What the bytes of an image are multiplied by; None for other observations, and where all layers are dense."""
        image = self.actor.torso is not None and self.observation_space.dtype == "uint8"
        return 1.0 / 255.0 if image else None

    def distribution(self, policy: PolicyState, observation: Array) -> Distribution:
        """π(· | observation)."""
        return self.apply_actor(policy.actor, self.features(policy, observation))

    def apply_actor(
        self,
        actor: Parameters,
        features: Float[Array, "*batch features"],
        product: Float[Array, "*batch width"] | None = None,
    ) -> Distribution:
        """π(· | features) for given parameters; `product` is their `networks.first_product`, where it is known already."""
        return cast(Distribution, self.actor.apply(actor, features, product))

    def apply_critic(self, critic: Parameters, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The critic's output for given parameters, in its own units."""
        return cast(Array, self.critic.apply(critic, features))

    def act(self, policy: PolicyState, key: Key, observation: Array) -> tuple[Array, Float[Array, "*batch"]]:
        """Sampled actions and their log-probabilities."""
        batch = observation.shape[: observation.ndim - len(self.observation_space.shape)]
        return self.distribution(policy, observation).draw(noise_for(self.action_space, key, batch))

    def explore(
        self, policy: PolicyState, noise: Float[Array, "*batch actions"], observation: Array
    ) -> tuple[Array, ...]:
        """As `act` with noise that was drawn before, by `noise_for`; also what learning can use again, if anything."""
        return self.distribution(policy, observation).draw(noise)

    def value(self, policy: PolicyState, observation: Array, context: Array | None = None) -> Float[Array, "*batch"]:
        """The critic's value in units of reward; `context` [N, P] is needed if the critic sees it."""
        shown = self.seen_by_critic(self.features(policy, observation), context)
        return self.apply_critic(policy.critic, shown) * policy.value_scale

    def seen_by_critic(self, features: Float[Array, "*batch F"], context: Array | None) -> Float[Array, "*batch G"]:
        """The critic's input: the features and, in a family of worlds, the context [N, P] of each environment."""
        if not self.contexts:
            return features
        if context is None:
            raise InputError("context: this critic was trained with the hidden context; give one for each observation")
        shown = jnp.broadcast_to(standardised(self.contexts, context), (*features.shape[:-1], len(self.contexts)))
        return jnp.concatenate([features, shown], axis=-1)

    def improve(
        self, state: AgentState, key: Key, trajectory: Trajectory, weights: GradientWeights | None = None
    ) -> tuple[AgentState, Metrics]:
        """One update of actor and critic.

        Statistics of observations stay fixed within an update, so that the probabilities of the batch's actions are those
        with which they were taken; the batch enters them afterwards.
        """
        if state.reward_scale is not None:
            scale = state.reward_scale.update(trajectory.reward, trajectory.done, self.discount)
            policy = state.policy.replace(value_scale=scale.deviation())
            state = state.replace(policy=policy, reward_scale=scale)
            trajectory = trajectory.replace(reward=trajectory.reward / scale.deviation())
        state, metrics = self.learn(state, key, trajectory, weights)
        statistics = state.policy.observation_statistics
        if statistics is not None:
            statistics = statistics.update(flat_features(trajectory.observation, len(self.observation_space.shape)))
            state = state.replace(policy=state.policy.replace(observation_statistics=statistics))
        return state, metrics

    def advantages(
        self, policy: PolicyState, trajectory: Trajectory, features: Float[Array, "T N features"], critic: Parameters
    ) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
        """The critic's values (differentiable with respect to `critic`) and the advantages over them (held fixed)."""
        shown = lambda features: self.seen_by_critic(features, trajectory.context)  # noqa: E731
        value = self.apply_critic(critic, shown(features))
        fixed = jax.lax.stop_gradient(value)
        last = self.apply_critic(policy.critic, shown(self.features(policy, trajectory.last_observation)))
        final = self.apply_critic(policy.critic, shown(self.features(policy, trajectory.final_observation)))
        following = next_values(fixed, last, final, trajectory.truncated)
        terminated = trajectory.done if self.config.truncation == "as-termination" else trajectory.terminated
        ends, rates = (terminated, trajectory.truncated), (self.discount, self.config.gae_lambda)
        return value, generalised_advantages(trajectory.reward, fixed, following, *ends, *rates)

    def descend(self, state: AgentState, actor_gradient: optax.Updates, critic_gradient: optax.Updates) -> AgentState:
        """The state after one step of both optimisers."""
        policy = state.policy
        actor, first = descend(self.actor_optimizer, actor_gradient, state.actor_optimizer, policy.actor)
        critic, second = descend(self.critic_optimizer, critic_gradient, state.critic_optimizer, policy.critic)
        policy = policy.replace(actor=actor, critic=critic)
        return state.replace(policy=policy, actor_optimizer=first, critic_optimizer=second)
