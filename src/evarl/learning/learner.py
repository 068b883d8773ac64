"""Training as two pure functions: `init(key) → state` and `update(state) → state, metrics`."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int, UInt32

from evarl.agents.agent import Agent, AgentState, make_agent
from evarl.agents.improve import improve
from evarl.agents.trajectory import Trajectory
from evarl.learning.configuration import TrainConfig
from evarl.rollouts.collect import WorldStates, begin, collect
from evarl.rollouts.episodes import EpisodeClock, episode_statistics
from evarl.worlds.registry import make_world
from evarl.worlds.world import HostWorld, Key, World

Metrics = dict[str, Array]

FAULTS = ("reward", "observation", "actor parameters", "critic parameters")
"""What can stop being finite; the metric `fault` is 0, or 1 + the index of the first that did."""


class LearnerState(struct.PyTreeNode):
    """Everything a run is at one moment; what a checkpoint holds."""

    key: UInt32[Array, "2"]
    update: Int[Array, ""]
    agent: AgentState
    clock: EpisodeClock
    worlds: Any
    """WorldStates of a JAX world; for a host world the number of episodes begun in each environment."""


@dataclass(frozen=True, eq=False)
class Learner:
    """The fixed part of a run: its world and its agent."""

    config: TrainConfig
    world: World | HostWorld
    agent: Agent

    def init(self, key: Key) -> LearnerState:
        """State before the first update."""
        key, agent_key, world_key = jax.random.split(key, 3)
        environments = self.config.environments
        worlds: WorldStates | Array
        if isinstance(self.world, World):
            worlds = begin(self.world, world_key, environments)
        else:
            worlds = jnp.zeros(environments, jnp.int32)
        return LearnerState(
            key=key,
            update=jnp.zeros((), jnp.int32),
            agent=self.agent.init(agent_key, environments),
            clock=EpisodeClock.create(environments),
            worlds=worlds,
        )

    def update(self, state: LearnerState) -> tuple[LearnerState, Metrics]:
        """Collect a batch and learn from it (JAX worlds)."""
        assert isinstance(self.world, World)
        key, collect_key, learn_key = jax.random.split(state.key, 3)

        def act(key: Key, observation: Array) -> tuple[Array, Array]:
            return self.agent.act(state.agent.policy, key, observation)

        worlds, trajectory = collect(self.world, act, state.worlds, collect_key, self.config.steps)
        return self.learn(state.replace(key=key, worlds=worlds), learn_key, trajectory)

    def learn(self, state: LearnerState, key: Key, trajectory: Trajectory) -> tuple[LearnerState, Metrics]:
        """Learn from a batch, wherever it came from."""
        clock, episodes = episode_statistics(state.clock, trajectory.reward, trajectory.done, self.config.discount)
        agent, metrics = improve(self.agent, state.agent, key, trajectory)
        state = state.replace(update=state.update + 1, agent=agent, clock=clock)
        return state, episodes | metrics | {"fault": _fault(trajectory, agent)}


def make_learner(config: TrainConfig) -> Learner:
    """Build the world and the agent that a configuration names."""
    config.validate()
    world = make_world(config.world, config.horizon, config.discount)
    agent = make_agent(config.agent, world.observation_space, world.action_space, config.discount, config.updates)
    return Learner(config, world, agent)


def _fault(trajectory: Trajectory, agent: AgentState) -> Int[Array, ""]:
    quantities = (trajectory.reward, trajectory.last_observation, agent.policy.actor, agent.policy.critic)
    broken = jnp.stack([~_finite(quantity) for quantity in quantities])
    return jnp.where(broken.any(), 1 + jnp.argmax(broken), 0).astype(jnp.int32)


def _finite(tree: Any) -> Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
