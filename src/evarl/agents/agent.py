"""An agent: two networks, two optimisers, and the plain data they learn."""

from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float

from evarl.agents.advantages import generalised_advantages, next_values
from evarl.agents.configuration import AgentConfig
from evarl.agents.distributions import Distribution, noise_for
from evarl.agents.networks import Actor, Critic, Parameters, first_product
from evarl.agents.normalisation import RewardScale, RunningStatistics
from evarl.agents.trajectory import Trajectory
from evarl.worlds.spaces import Box, Space
from evarl.worlds.world import Key, flat_features


class PolicyState(struct.PyTreeNode):
    """All that is needed to act and to predict values: what is saved as the final policy."""

    actor: Parameters
    critic: Parameters
    observation_statistics: RunningStatistics | None
    value_scale: Float[Array, ""]
    """Units of reward in one unit of the critic's output."""


class AgentState(struct.PyTreeNode):
    """All that learning changes."""

    policy: PolicyState
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    reward_scale: RewardScale | None


@dataclass(frozen=True, eq=False)
class Agent:
    """The fixed part of an agent; its functions are pure and take the changing part as an argument."""

    config: AgentConfig
    observation_space: Box
    action_space: Space
    discount: float
    actor: Actor
    critic: Critic
    actor_optimizer: optax.GradientTransformation
    critic_optimizer: optax.GradientTransformation

    def init(self, key: Key, environments: int) -> AgentState:
        """Fresh networks and optimisers. Not to be vmapped on a CPU: batched orthogonal initialisation can hang."""
        actor_key, critic_key = jax.random.split(key)
        features = jnp.zeros((1, self.observation_space.size))
        actor, critic = self.actor.init(actor_key, features), self.critic.init(critic_key, features)
        statistics = RunningStatistics.create((self.observation_space.size,))
        return AgentState(
            policy=PolicyState(
                actor=actor,
                critic=critic,
                observation_statistics=statistics if self.config.normalise_observations else None,
                value_scale=jnp.ones(()),
            ),
            actor_optimizer=self.actor_optimizer.init(actor),
            critic_optimizer=self.critic_optimizer.init(critic),
            reward_scale=RewardScale.create(environments) if self.config.scale_rewards else None,
        )

    def features(self, policy: PolicyState, observation: Array) -> Float[Array, "*batch features"]:
        """Flattened, and standardised where the configuration asks for it."""
        flat = flat_features(observation, len(self.observation_space.shape))
        statistics = policy.observation_statistics
        return flat if statistics is None else statistics.standardise(flat)

    def distribution(self, policy: PolicyState, observation: Array) -> Distribution:
        """π(· | observation)."""
        return self.apply_actor(policy.actor, self.features(policy, observation))

    def apply_actor(
        self,
        actor: Parameters,
        features: Float[Array, "*batch features"],
        product: Float[Array, "*batch width"] | None = None,
    ) -> Distribution:
        """π(· | features) for given parameters; `product` is their `first_product`, where it is known already."""
        return cast(Distribution, self.actor.apply(actor, features, product))

    def apply_critic(self, critic: Parameters, features: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """The critic's output for given parameters, in its own units."""
        return cast(Array, self.critic.apply(critic, features))

    def act(self, policy: PolicyState, key: Key, observation: Array) -> tuple[Array, Float[Array, "*batch"]]:
        """Draw an action; also its log-probability."""
        batch = observation.shape[: observation.ndim - len(self.observation_space.shape)]
        return self.act_on(policy, noise_for(self.action_space, key, batch), observation)

    def act_on(
        self, policy: PolicyState, noise: Float[Array, "*batch actions"], observation: Array
    ) -> tuple[Array, Float[Array, "*batch"]]:
        """The same with noise that was drawn before, by `noise_for`."""
        return _drawn(self.distribution(policy, observation), noise)

    def act_to_learn(
        self, policy: PolicyState, noise: Float[Array, "*batch actions"], observation: Array
    ) -> tuple[Array, ...]:
        """The same, and `Trajectory.first_product` if the one step of the next update starts from the very same product."""
        if self.config.algorithm != "a2c":
            return self.act_on(policy, noise, observation)
        features = self.features(policy, observation)
        product = first_product(policy.actor, features)
        return *_drawn(self.apply_actor(policy.actor, features, product), noise), product

    def value(self, policy: PolicyState, observation: Array) -> Float[Array, "*batch"]:
        """The critic's value in units of reward."""
        return self.apply_critic(policy.critic, self.features(policy, observation)) * policy.value_scale

    def advantages(
        self,
        policy: PolicyState,
        trajectory: Trajectory,
        features: Float[Array, "T N features"],
        critic: Parameters,
        reward: Float[Array, "T N"],
    ) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
        """The critic's values (differentiable with respect to `critic`) and the advantages over them (held fixed)."""
        value = self.apply_critic(critic, features)
        fixed = jax.lax.stop_gradient(value)
        last = self.apply_critic(policy.critic, self.features(policy, trajectory.last_observation))
        final = self.apply_critic(policy.critic, self.features(policy, trajectory.final_observation))
        terminated = trajectory.terminated
        if self.config.truncation == "as-termination":
            terminated = trajectory.done
        advantages = generalised_advantages(
            reward=reward,
            value=fixed,
            next_value=next_values(fixed, last, final, trajectory.truncated),
            terminated=terminated,
            truncated=trajectory.truncated,
            discount=self.discount,
            gae_lambda=self.config.gae_lambda,
        )
        return value, advantages


def _drawn(distribution: Distribution, noise: Float[Array, "*batch actions"]) -> tuple[Array, Float[Array, "*batch"]]:
    action = distribution.perturbed(noise)
    return action, distribution.log_prob(action)


def make_agent(
    config: AgentConfig, observation_space: Box, action_space: Space, discount: float, updates: int
) -> Agent:
    """Build networks and optimisers; `updates` is the length of the run, for annealing."""
    gradient_steps = updates * (config.ppo.epochs * config.ppo.minibatches if config.algorithm == "ppo" else 1)

    def optimizer(learning_rate: float) -> optax.GradientTransformation:
        schedule = optax.linear_schedule(learning_rate, 0.0, gradient_steps)
        return optax.chain(
            optax.clip_by_global_norm(config.max_gradient_norm),
            optax.adam(schedule if config.anneal_learning_rates else learning_rate, eps=1e-5),
        )

    return Agent(
        config=config,
        observation_space=observation_space,
        action_space=action_space,
        discount=discount,
        actor=Actor(config.hidden_sizes, config.activation, action_space),
        critic=Critic(config.hidden_sizes, config.activation),
        actor_optimizer=optimizer(config.actor_learning_rate),
        critic_optimizer=optimizer(config.critic_learning_rate),
    )
