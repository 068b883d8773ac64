"""The examiner: watches each policy, remembers it, fits the evaluator and tells the policy what its errors ask for."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from evarl.agents.advantages import returns_to_go
from evarl.agents.agent import Agent, PolicyState
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import Assessment
from evarl.evaluators.fitting import SLOWEST, Evaluator, EvaluatorState, make_evaluator
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.learning.configuration import TrainConfig
from evarl.learning.objective import Evidence, Objective, Thinned, guide, masked_mean, mean_of_others
from evarl.simulation.rollouts import AssessmentRollout
from evarl.worlds.spaces import Box
from evarl.worlds.world import Key

Metrics = dict[str, Array]

ENOUGH = 256
"""Visited states over which averages are taken where the whole batch is not needed."""


class LearntEvaluator(struct.PyTreeNode):
    """An evaluator as it is kept: what it has learnt, and what it has learnt it from."""

    state: EvaluatorState
    scenarios: Array
    """[k, ...] what policies see at the start states of its assessment."""
    remembered: Float[Array, "m k"]
    """Assessment returns of the last policies it was fitted to."""
    lowest: Float[Array, " k"]
    """Least and greatest assessment returns that it has met."""
    highest: Float[Array, " k"]
    batch_mean: Float[Array, ""]
    """Mean return-to-go of the last batch."""


class ExaminerState(struct.PyTreeNode):
    """All that the examiner carries from update to update."""

    evaluator: EvaluatorState
    memory: Memory | None
    """None when the evaluator is frozen."""
    baseline: Float[Array, "h k"]
    """Running mean of the assessment's rewards-to-go."""
    loss_baseline: Float[Array, ""]
    """Running mean of the squared error at start states."""
    batch_mean: Float[Array, ""]
    """Mean return-to-go of the last batch: the simplest predictor without Ξ."""
    lowest: Float[Array, " k"]
    """Least and greatest assessment returns met so far: beyond them the evaluator has learnt nothing."""
    highest: Float[Array, " k"]


@dataclass(frozen=True, eq=False)
class Examiner:
    """The fixed part: an assessment, an evaluator and the objective."""

    config: TrainConfig
    assessment: Assessment
    evaluator: Evaluator
    objective: Objective
    frozen: LearntEvaluator | None

    def init(self, key: Key) -> ExaminerState:
        """State before the first update."""
        k = self.assessment.scenarios
        memory = None
        if self.frozen is None:
            memory = Memory.create(self.config.evaluator.policies, self._kept(), self.evaluator.observation_space, k)
        return ExaminerState(
            evaluator=self.evaluator.init(key) if self.frozen is None else self.frozen.state,
            memory=memory,
            baseline=jnp.zeros((self.assessment.horizon, k)),
            loss_baseline=jnp.zeros(()),
            batch_mean=jnp.zeros(()),
            lowest=jnp.full(k, jnp.inf) if self.frozen is None else self.frozen.lowest,
            highest=jnp.full(k, -jnp.inf) if self.frozen is None else self.frozen.highest,
        )

    def learnt(self, state: ExaminerState) -> LearntEvaluator:
        """What is kept of one seed's examiner at the end."""
        nothing = jnp.zeros((0, self.assessment.scenarios))
        return LearntEvaluator(
            state=state.evaluator,
            scenarios=self.evaluator.scenarios,
            remembered=nothing if state.memory is None else state.memory.slots.returns,
            lowest=state.lowest,
            highest=state.highest,
            batch_mean=state.batch_mean,
        )

    def examine(
        self,
        state: ExaminerState,
        key: Key,
        index: Int[Array, ""],
        agent: Agent,
        policy: PolicyState,
        trajectory: Trajectory,
        showing: AssessmentRollout,
    ) -> tuple[ExaminerState, GradientWeights | None, Metrics]:
        """One update's worth: measure, remember, fit, and guide."""
        config = self.config
        value, returns = self._returns(agent, policy, trajectory)
        to_go = showing.rewards_to_go(self.assessment.discount)
        shown = to_go[0].mean(axis=1)
        flat = trajectory.observation.reshape(returns.size, *trajectory.observation.shape[2:])
        stride, skip = self._thinning()

        def predict(evaluator: EvaluatorState, shown: Array, stride: int = 1, skip: int = 1) -> Float[Array, "T N"]:
            queries = trajectory.observation[::stride, ::skip]
            values = self.evaluator.predict(evaluator, shown, queries.reshape(-1, *queries.shape[2:]))
            return values.reshape(queries.shape[:2])

        evaluator, memory = state.evaluator, state.memory
        average = jnp.full_like(shown, evaluator.returns.mean)
        fresh, blind = (predict(evaluator, xi, stride, skip) for xi in (shown, average))
        metrics = self._fresh_metrics(state, fresh, blind, value[::stride, ::skip], returns[::stride, ::skip])
        if memory is not None:
            policy_row = PolicyRecord(*self._subsample(key, flat, returns.reshape(-1)), shown)
            memory = memory.store(index, policy_row)
            evaluator = self.evaluator.rescale(evaluator, policy_row, index)
            filled = jnp.minimum(index + 1, memory.policies)
            evaluator, loss = self.evaluator.fit(evaluator, memory, filled, self._fit_steps(index), key)
            metrics["evaluator_loss"] = loss
        predicted = predict(evaluator, shown)
        start = trajectory.start_label >= 0
        squared = masked_mean((returns - predicted) ** 2, start)
        metrics |= self._error_metrics(trajectory, returns, predicted)

        guidance = None
        if config.beta > 0 or config.beta_variance > 0:
            evidence = Evidence(trajectory, returns, value, showing, state.baseline, state.loss_baseline)
            beta = jnp.float32(config.beta) * self._ramp(index)
            thinned = Thinned(stride, lambda shown: predict(evaluator, shown, stride, skip), skip)
            everywhere = lambda shown: predict(evaluator, shown)  # noqa: E731
            guidance, weights = guide(self.objective, beta, evidence, everywhere, thinned, self._ramp(index))
            metrics |= weights
        rate = jnp.maximum(SLOWEST, 1.0 / (index.astype(jnp.float32) + 1.0))
        state = ExaminerState(
            evaluator=evaluator,
            memory=memory,
            baseline=state.baseline + rate * (to_go.mean(axis=2) - state.baseline),
            loss_baseline=state.loss_baseline + rate * (squared - state.loss_baseline),
            batch_mean=returns.mean(),
            lowest=state.lowest if self.frozen else jnp.minimum(state.lowest, shown),
            highest=state.highest if self.frozen else jnp.maximum(state.highest, shown),
        )
        return state, guidance, metrics | {"assessment_return": shown.mean()}

    def _returns(self, agent: Agent, policy: PolicyState, trajectory: Trajectory) -> tuple[Array, Array]:
        """The critic's values and the returns-to-go, continued by the critic where the batch cut an episode."""
        value = agent.value(policy, trajectory.observation)
        last = agent.value(policy, trajectory.last_observation)
        ends = trajectory.terminated, trajectory.truncated
        return value, returns_to_go(trajectory.reward, last, *ends, self.config.discount)

    def _thinning(self) -> tuple[int, int]:
        """Strides over steps and environments that leave about ENOUGH states, spread over both."""
        stride = max(1, self.config.steps // 32)
        states = -(-self.config.steps // stride) * self.config.environments
        return stride, max(1, min(self.config.environments, states // ENOUGH))

    def _kept(self) -> int:
        batch = self.config.environments * self.config.steps
        return min(batch, self.config.evaluator.transitions or batch)

    def _subsample(self, key: Key, observation: Array, target: Array) -> tuple[Array, Array]:
        kept = self._kept()
        if kept == target.shape[0]:
            return observation, target
        rows = jax.random.choice(jax.random.fold_in(key, 1), target.shape[0], (kept,), replace=False)
        return observation[rows], target[rows]

    def _fit_steps(self, index: Int[Array, ""]) -> Int[Array, ""]:
        """None during the warm-up, many at its end, a few in every update (or every n-th) after it."""
        settings = self.config.evaluator
        due = (index > settings.warmup) & ((index - settings.warmup) % settings.every == 0)
        return jnp.where(index == settings.warmup, settings.initial_steps, jnp.where(due, settings.steps, 0))

    def _ramp(self, index: Int[Array, ""]) -> Float[Array, ""]:
        """0 during the warm-up, then up to 1 over `ramp` updates."""
        warmup = 0 if self.frozen is not None else self.config.evaluator.warmup
        since = (index - warmup + 1).astype(jnp.float32)
        return jnp.clip(since / max(1, self.config.ramp), 0.0, 1.0)

    def _fresh_metrics(
        self, state: ExaminerState, predicted: Array, blind: Array, value: Array, returns: Array
    ) -> Metrics:
        """Errors on a batch that the evaluator has not learnt from, beside the best predictor without Ξ: the critic, the
        last batch's mean, or the evaluator itself when it is shown average returns.
        """
        squared = jnp.mean((returns - predicted) ** 2)
        without = jnp.stack([jnp.mean((returns - other) ** 2) for other in (value, blind, state.batch_mean)]).min()
        return {
            "evaluation_error_fresh": jnp.mean(jnp.abs(returns - predicted)),
            "evaluation_bias_fresh": jnp.mean(predicted - returns),
            "skill": 1.0 - squared / jnp.maximum(without, 1e-12),
        }

    def _error_metrics(self, trajectory: Trajectory, returns: Array, predicted: Array) -> Metrics:
        """Errors just before the policy update. The corrected one multiplies the errors of independent rollouts from one
        start state, whose noise averages out: (G − V̂)(G' − V̂) is unbiased for (V − V̂)².
        """
        error = returns - predicted
        others, paired = mean_of_others(returns, trajectory.start_label, self.config.rollouts_per_start)
        corrected = masked_mean(error * (others - predicted), paired)
        start = trajectory.start_label >= 0
        return {
            "evaluation_error": jnp.mean(jnp.abs(error)),
            "start_error": jnp.where(start.any(), masked_mean(jnp.abs(error), start), jnp.nan),
            "start_squared_error_corrected": jnp.where(paired.any(), corrected, jnp.nan),
        }


def make_examiner(config: TrainConfig, space: Box, assessment: Assessment, frozen: LearntEvaluator | None) -> Examiner:
    """Put the parts together; `frozen` is a pre-trained evaluator to be held fixed."""
    objective = Objective(
        gradient=config.gradient,
        queries=config.queries,
        beta_variance=config.beta_variance,
        rollouts_per_start=config.rollouts_per_start,
        max_shift=config.max_shift,
        discount=config.discount,
        assessment_discount=assessment.discount,
    )
    evaluator = make_evaluator(config.evaluator, space, jnp.asarray(assessment.observations()))
    return Examiner(config, assessment, evaluator, objective, frozen)
