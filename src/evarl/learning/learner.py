"""Training as two pure functions: `init(key) → state` and `update(state) → state, metrics`."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int, UInt32

from evarl.agents.agent import Agent, AgentState, make_agent
from evarl.agents.distributions import noise_for
from evarl.agents.improve import improve
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import Assessment
from evarl.learning.configuration import TrainConfig
from evarl.learning.examiner import Examiner, ExaminerState, LearntEvaluator, make_examiner
from evarl.simulation.compiled import WorldStates
from evarl.simulation.episodes import EpisodeClock, episode_statistics
from evarl.simulation.rollouts import Act, AssessmentRollout, Batch
from evarl.simulation.simulator import Simulator, simulator_for
from evarl.worlds.registry import make_world
from evarl.worlds.world import AnyWorld, Key

Metrics = dict[str, Array]

FAULTS = ("reward", "observation", "actor parameters", "critic parameters")
"""What can stop being finite; the metric `fault` is 0, or 1 + the index of the first that did."""


class LearnerState(struct.PyTreeNode):
    """Everything a run is at one moment; what a checkpoint holds."""

    key: UInt32[Array, "2"]
    agent: AgentState
    clock: EpisodeClock
    worlds: WorldStates | None
    """None for host worlds, whose environments cannot be kept."""
    examiner: ExaminerState | None
    """None in ordinary training."""


@dataclass(frozen=True, eq=False)
class Learner:
    """The fixed part of a run: its world, its agent and, in evaluation-aware training, its examiner."""

    config: TrainConfig
    world: AnyWorld
    agent: Agent
    examiner: Examiner | None

    @property
    def simulator(self) -> Simulator:
        """The simulator of the world."""
        return simulator_for(self.world)

    @property
    def batch(self) -> Batch:
        """The size of a batch."""
        return Batch(self.config.environments, self.config.steps, self.config.rollouts_per_start)

    def init(self, key: Key) -> LearnerState:
        """State before the first update."""
        examiner_key = jax.random.fold_in(key, 1)
        key, agent_key, world_key = jax.random.split(key, 3)
        environments = self.config.environments
        return LearnerState(
            key=key,
            agent=self.agent.init(agent_key, environments),
            clock=EpisodeClock.create(environments),
            worlds=self.simulator.begin(self.batch, world_key) if self.simulator.traceable else None,
            examiner=None if self.examiner is None else self.examiner.init(examiner_key),
        )

    def collect(self, state: LearnerState) -> tuple[LearnerState, Key, Trajectory]:
        """The batch of this update and the key to learn with (JAX worlds)."""
        assert state.worlds is not None
        key, collect_key, learn_key = jax.random.split(state.key, 3)
        noise = lambda key: noise_for(self.world.action_space, key, (self.config.environments,))  # noqa: E731
        act = lambda noise, observation: self.agent.act_to_learn(state.agent.policy, noise, observation)  # noqa: E731
        worlds, trajectory = self.simulator.collect(self.batch, act, state.worlds, collect_key, noise=noise)
        return state.replace(key=key, worlds=worlds), learn_key, trajectory

    def update(self, state: LearnerState, index: Int[Array, ""]) -> tuple[LearnerState, Metrics]:
        """Collect a batch, take the assessment and learn from both (JAX worlds). `index` counts the updates."""
        state, learn_key, trajectory = self.collect(state)
        showing = None
        if self.examiner is not None:
            replicates, key = self.config.assessment.replicates, jax.random.fold_in(learn_key, 1)
            showing = self.examiner.assessment.take(self._acting(state), key, replicates, self.world.action_space)
        return self.learn(state, learn_key, index, trajectory, showing)

    def _acting(self, state: LearnerState) -> Act:
        return lambda key, observation: self.agent.act(state.agent.policy, key, observation)

    def learn(
        self,
        state: LearnerState,
        key: Key,
        index: Int[Array, ""],
        trajectory: Trajectory,
        showing: AssessmentRollout | None,
    ) -> tuple[LearnerState, Metrics]:
        """Learn from a batch and an assessment, wherever they came from."""
        clock, metrics = episode_statistics(state.clock, trajectory.reward, trajectory.done, self.config.discount)
        examiner, guidance = state.examiner, None
        if self.examiner is not None:
            assert examiner is not None
            assert showing is not None
            examiner_key, policy = jax.random.fold_in(key, 2), state.agent.policy
            examiner, guidance, examined = self.examiner.examine(
                examiner, examiner_key, index, self.agent, policy, trajectory, showing
            )
            metrics |= examined
        agent, improved = improve(self.agent, state.agent, key, trajectory, guidance)
        state = state.replace(agent=agent, clock=clock, examiner=examiner)
        return state, metrics | improved | {"fault": _fault(trajectory, agent)}


def make_learner(
    config: TrainConfig,
    assessment: Assessment | None = None,
    frozen: LearntEvaluator | None = None,
) -> Learner:
    """Build the world and the agent that a configuration names, and the examiner if there is an assessment."""
    config.validate()
    world = make_world(config.world, config.horizon, config.discount)
    agent = make_agent(config.agent, world.observation_space, world.action_space, config.discount, config.updates)
    if assessment is None:
        return Learner(config, world, agent, None)
    assessment.check_compatible(world)
    return Learner(config, world, agent, make_examiner(config, world.observation_space, assessment, frozen))


def _fault(trajectory: Trajectory, agent: AgentState) -> Int[Array, ""]:
    quantities = (trajectory.reward, trajectory.last_observation, agent.policy.actor, agent.policy.critic)
    broken = jnp.stack([~_finite(quantity) for quantity in quantities])
    return jnp.where(broken.any(), 1 + jnp.argmax(broken), 0).astype(jnp.int32)


def _finite(tree: Any) -> Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
