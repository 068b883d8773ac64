"""EvA-RL as two pure functions: `init(key) → state` and `update(state, index) → state, metrics`."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.tree_util import Partial
from jaxtyping import Array, Int, UInt32

from evarl.agents.agent import Agent, Metrics, exploration, make_agent
from evarl.agents.networks import as_vector
from evarl.agents.normalisation import RewardScale
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import Assessment
from evarl.assessment.behaviour import BehaviourKind, at_probes, behaviour_kind, observe
from evarl.evaluators.evaluator import Evaluator, LearntEvaluator, make_evaluator
from evarl.keys import split
from evarl.learning import evaluability
from evarl.learning.configuration import TrainConfig
from evarl.learning.evaluability import Evaluability, EvaluationState
from evarl.learning.perturbed import Tried, nothing_tried, try_perturbed
from evarl.simulation.episodes import NEVER, EpisodeClock, episode_statistics, latest_beginning
from evarl.simulation.rollouts import AssessmentRollout, Batch
from evarl.simulation.simulator import Simulator, simulator_for
from evarl.worlds.registry import make_world
from evarl.worlds.spaces import Box
from evarl.worlds.world import AnyWorld, Key

FAULTS = ("reward", "observation", "actor parameters", "critic parameters")
"""What can stop being finite; the metric `fault` is 0, or 1 + the index of the first that did."""


class LearnerState(struct.PyTreeNode):
    """Everything a run is at one moment; what a checkpoint holds."""

    key: UInt32[Array, "2"]
    agent: Any
    clock: EpisodeClock
    worlds: Any
    """None for host worlds, whose environments cannot be saved."""
    evaluation: EvaluationState | None
    """None in ordinary training."""


class Keys(NamedTuple):
    """The random keys of one update, each for one purpose."""

    next_update: Key
    collect: Key
    improve: Key
    assess: Key
    fit: Key
    remember: Key
    contexts: Key
    perturb: Key | None = None
    """For a diverse memory only; so is the next."""
    reservoir: Key | None = None


class Experience(NamedTuple):
    """What one update learns from."""

    trajectory: Trajectory
    rollout: AssessmentRollout | None
    """None in ordinary training."""
    keys: Keys
    perturbed: Tried | None = None
    """None unless the memory is diverse and has perturbed policies."""


@dataclass(frozen=True, eq=False)
class Learner:
    """The fixed part of a run: its world, its agent and, in evaluation-aware training, assessment and evaluator."""

    config: TrainConfig
    simulator: Simulator
    agent: Agent
    evaluability: Evaluability | None

    def init(self, key: Key) -> LearnerState:
        """The state before the first update."""
        key, agent_key, world_key, evaluation_key = jax.random.split(key, 4)
        environments = self.config.environments
        return LearnerState(
            key=key,
            agent=self.agent.init(agent_key, environments),
            clock=EpisodeClock.create(environments, bool(self.world.contexts)),
            worlds=self.simulator.begin(self.batch, world_key) if self.simulator.traceable else None,
            evaluation=None
            if self.evaluability is None
            else evaluability.begin(self.evaluability, evaluation_key, self.agent),
        )

    def update(
        self, state: LearnerState, index: Int[Array, ""], gathered: Experience | None = None
    ) -> tuple[LearnerState, Metrics]:
        """One update: collect → assess → remember → fit → weigh → improve. `index` counts the updates.

        The experience of host worlds is gathered outside of the compiled program, and given.
        """
        if gathered is None:
            worlds, gathered = self.gather(state, state.worlds, index)
            state = state.replace(worlds=worlds)
        trajectory, rollout, keys, perturbed = gathered
        clock, metrics = self._returns(state.clock, trajectory, index)
        evaluation, weights = state.evaluation, None
        if self.evaluability is not None and evaluation is not None and rollout is not None:
            fixed = self.evaluability
            evidence = evaluability.gather_evidence(
                fixed, evaluation, self.agent, state.agent.policy, trajectory, rollout
            )
            fresh = evaluability.fresh_errors(fixed, evaluation, evidence)
            evaluation, watched = evaluability.watch(fixed, evaluation, fresh["skill"], index)
            evaluation = evaluability.remember(fixed, evaluation, evidence, index, keys.remember)
            if keys.reservoir is not None:
                tried = None if perturbed is None else perturbed.records
                evaluation = evaluability.remember_diverse(fixed, evaluation, evidence, index, tried, keys.reservoir)
            evaluation, fitted = evaluability.fit(fixed, evaluation, index, keys.fit)
            evaluation, weights, weighed = evaluability.weigh_policy(fixed, evaluation, evidence, index)
            metrics |= fresh | watched | fitted | weighed
            if perturbed is not None:
                metrics["perturbed_steps"] = perturbed.steps
        agent, improved = self.agent.improve(state.agent, keys.improve, trajectory, weights)
        state = state.replace(key=keys.next_update, agent=agent, clock=clock, evaluation=evaluation)
        return state, metrics | improved | {"fault": _fault(trajectory, agent)}

    def _returns(
        self, clock: EpisodeClock, trajectory: Trajectory, index: Int[Array, ""]
    ) -> tuple[EpisodeClock, Metrics]:
        """Metrics of the episodes that finished."""
        done = trajectory.terminated | trajectory.truncated
        latest: Array | int = NEVER
        if trajectory.context is not None:  # with new contexts all episodes begin anew
            renewed = index % self.batch.context_updates == 0
            clock = jax.tree.map(lambda x: jnp.where(renewed, jnp.zeros_like(x), x), clock)
            latest = latest_beginning(self.batch, self.world.horizon, index)
        clock, metrics = episode_statistics(clock, trajectory.reward, done, self.config.discount, latest)
        metrics["truncated"] = jnp.sum(trajectory.truncated, dtype=jnp.float32) / jnp.sum(done, dtype=jnp.float32)
        return clock, metrics

    def gather(self, state: LearnerState, worlds: Any, index: int | Int[Array, ""]) -> tuple[Any, Experience]:
        """The first two arrows: a batch of deployment experience, and the assessment of the current policy."""
        fixed = self.evaluability
        diverse = fixed is not None and fixed.frozen is None and self.config.evaluator.memory == "diverse"
        keys = Keys(*_update_keys(state.key, len(Keys._fields) if diverse else len(Keys._fields) - 2))
        policy, batch, world, assessment = state.agent.policy, self.batch, self.world, self.assessment
        if world.contexts:
            worlds = self.simulator.renew(batch, worlds, keys.contexts, index)
        noise, act = self._exploration
        worlds, trajectory = self.simulator.collect(batch, Partial(act, policy), worlds, keys.collect, index, noise)
        rollout = None
        if assessment is not None:
            act, replicates = Partial(self.agent.act, policy), self.config.assessment.replicates
            contexts = trajectory.context
            if contexts is not None:
                contexts = contexts[:: batch.environments // batch.contexts]
            rollout = assessment.take(act, keys.assess, replicates, world, contexts)
        perturbed = None
        if diverse and self.config.evaluator.perturbed:
            assert fixed is not None
            assert keys.perturb is not None
            assert state.evaluation is not None
            own = fixed, self.simulator, self.agent, policy, keys.perturb, state.evaluation.evaluator.probed
            perturbed = self.simulator.sometimes(
                fixed.diversified(index), lambda: try_perturbed(*own), nothing_tried(fixed, self.agent)
            )
        return worlds, Experience(trajectory, rollout, keys, perturbed)

    def resumes_exactly(self, index: int) -> bool:
        """Whether a run that is resumed before the update with this index is the same as one that was not interrupted.

        Environments on the host are not saved. But where contexts are drawn just then, all episodes begin anew in any case.
        """
        redrawn = self.world.contexts and index % self.batch.context_updates == 0
        return self.simulator.traceable or index == 0 or bool(redrawn)

    def begun_anew(self, state: LearnerState, index: int) -> LearnerState:
        """The state before the update with this index, once all environments of a host world were reset: sums begin at 0."""
        if self.resumes_exactly(index):
            return state
        agent, scale = state.agent, getattr(state.agent, "reward_scale", None)
        if isinstance(scale, RewardScale):
            agent = agent.replace(reward_scale=scale.begun_anew())
        return state.replace(clock=state.clock.begun_anew(), agent=agent)

    @property
    def _exploration(self) -> tuple[Callable[[Key], Any], Callable[..., tuple[Array, ...]]]:
        """How the agent acts in training. On the host what it could use again is not kept, which would have to be copied."""
        agent: Any = self.agent
        return _explored(agent, self.config.environments)

    @property
    def world(self) -> AnyWorld:
        """The deployment world."""
        return self.simulator.world

    @property
    def batch(self) -> Batch:
        """The size of a batch of deployment experience."""
        config = self.config
        episode = -(-self.world.horizon // config.steps)  # updates
        periods = config.groups, config.context_updates or episode
        return Batch(config.environments, config.steps, config.rollouts_per_start, *periods)

    @property
    def assessment(self) -> Assessment | None:
        """The assessment; None in ordinary training."""
        return None if self.evaluability is None else self.evaluability.assessment

    @property
    def evaluator(self) -> Evaluator | None:
        """The evaluator; None in ordinary training."""
        return None if self.evaluability is None else self.evaluability.evaluator

    def ending_with(self, config: TrainConfig) -> "Learner":
        """The learner of a run that ended after the updates of `config`, for what is saved at the end."""
        fixed = self.evaluability
        fixed = None if fixed is None else dataclasses.replace(fixed, config=config)
        return dataclasses.replace(self, config=config, evaluability=fixed)

    def learnt(self, state: EvaluationState) -> LearntEvaluator:
        """What is saved of one seed's evaluator at the end."""
        assert self.evaluability is not None
        return evaluability.learnt(self.evaluability, state)


def make_learner(
    config: TrainConfig,
    assessment: Assessment | None = None,
    frozen: LearntEvaluator | None = None,
) -> Learner:
    """The learner for a configuration; evaluation-aware if there is an assessment, with a fixed evaluator if one is given."""
    config.validate()
    world = make_world(config.world, config.horizon, config.discount, config.context)
    seen = world.contexts if config.critic_sees_context else ()
    spaces = world.observation_space, world.action_space
    agent = make_agent(config.agent, *spaces, config.discount, config.updates, seen)
    if assessment is None:
        return Learner(config, simulator_for(world), agent, None)
    assessment.check_compatible(world)
    kind = behaviour_kind(config.assessment.behaviour, world.action_space)
    shapes = behaviour_shapes(kind, agent, assessment, config.assessment.replicates)
    scenarios = jnp.asarray(assessment.observations())
    probe = partial(at_probes, kind) if config.assessment.probes == "learnt" else None
    evaluator = make_evaluator(config.evaluator, world.observation_space, scenarios, shapes, probe)
    simulator, fixed = simulator_for(world), Evaluability(config, assessment, kind, evaluator, frozen)
    return Learner(config, simulator, agent, fixed)


def behaviour_shapes(kind: BehaviourKind, agent: Agent, assessment: Assessment, replicates: int = 1) -> Any:
    """Shapes of the behaviour of one policy, without a rollout."""
    steps, space = (assessment.horizon, assessment.scenarios, replicates), agent.action_space
    shape, dtype = ((space.size,), jnp.float32) if isinstance(space, Box) else ((), jnp.int32)

    def one(key: Key) -> Any:
        zeros = jnp.zeros(steps)
        observation = jnp.zeros((*steps, *agent.observation_space.shape), agent.observation_space.dtype)
        rollout = AssessmentRollout(observation, jnp.zeros((*steps, *shape), dtype), zeros, zeros, zeros > 0)
        policy = agent.init(key, 1).policy
        act = lambda observation: agent.distribution(policy, observation)  # noqa: E731
        return observe(kind, rollout, act, assessment.discount).behaviour

    return jax.eval_shape(one, jax.random.PRNGKey(0))


@partial(jax.jit, static_argnums=1, inline=True)
def _update_keys(key: Key, count: int) -> tuple[Key, ...]:
    """Keys by one program, which on the host is much faster than key by key."""
    return tuple(split(key, count))


@lru_cache(maxsize=64)
def _explored(agent: Any, environments: int) -> tuple[Callable[[Key], Any], Callable[..., tuple[Array, ...]]]:
    """The same functions for the same agent, because compiled programs are found again by them."""
    return exploration(agent, environments)


def _fault(trajectory: Trajectory, agent: Any) -> Int[Array, ""]:
    quantities = (trajectory.reward, trajectory.last_observation, agent.policy.actor, agent.policy.critic)
    broken = jnp.stack([~_finite(quantity) for quantity in quantities])
    return jnp.where(broken.any(), 1 + jnp.argmax(broken), 0).astype(jnp.int32)


def _finite(tree: Any) -> Array:
    return jnp.isfinite(as_vector(tree)).all()
