"""Predictions of a run's evaluators from assessments of policies.

The only module outside of training that handles behaviours Ξ: it takes assessments, predicts values from them, and makes the
controls (Ξ zeroed, Ξ shuffled). Everything else passes a `Behaviour` on without looking inside.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.agents.distributions import world_action
from evarl.assessment.assessment import Assessment
from evarl.assessment.host import HostAssessment
from evarl.errors import FileError
from evarl.evaluation.policies import check_actions
from evarl.evaluation.predictors import BATCH, EVALUATOR, SHUFFLED, ZEROED
from evarl.evaluators.fitting import EvaluatorState
from evarl.learning.configuration import TrainConfig
from evarl.learning.examiner import LearntEvaluator
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.simulation.collect import Act
from evarl.sizes import check_assessment
from evarl.truth.controlled import Value
from evarl.worlds.spaces import Space
from evarl.worlds.world import HostWorld, Key, World

Behaviour = Any
"""Ξ of one policy, a pytree with leaves [k, ...]. Behaviours of J policies are stacked: leaves [J, k, ...]."""

Returns = Callable[[Act, Key], Float[np.ndarray, "k R"]]
"""Rolls a policy through an assessment and gives its returns."""

Check = Callable[[np.ndarray], None]
"""Refuses actions [M, ...] that the world does not have."""

Predictions = dict[str, Float[np.ndarray, "J Q"]]
"""Predicted values at Q states by predictor; J is 1 except for Ξ shuffled, where it is the number of other policies."""


class Assessed(NamedTuple):
    """One assessment of a policy."""

    behaviour: Behaviour
    returns: Float[np.ndarray, "k R"]
    """Return of each of R rollouts of each scenario, for display."""

    @property
    def mean_returns(self) -> Float[np.ndarray, " k"]:
        """Mean return of each scenario."""
        return self.returns.mean(axis=1)


class BehaviourPredictor:
    """Takes the assessment of a run and predicts values with the run's evaluators; compiled once for all policies.

    Policies are given as `Partial(act, parameters)`, so that they share one compilation.
    """

    def __init__(self, run: Run, replicates: int | None = None, policy: str = "the policy"):
        """By default, each scenario has the run's own number of replicates; errors call the assessed policy `policy`."""
        assessment, examiner = run.assessment, run.learner.examiner
        assert assessment is not None
        assert examiner is not None
        replicates = run.config.assessment.replicates if replicates is None else replicates
        check_assessment(run.world, assessment.scenarios, assessment.horizon, replicates)
        self._run, self._evaluator = run, examiner.evaluator
        self._predict = jax.jit(jax.vmap(self._evaluator.predict, (None, 0, None)))

        def check(actions: np.ndarray) -> None:
            check_actions(run.world, actions, policy)

        if isinstance(assessment, Assessment):
            self._returns = _returns_in_jax(assessment, run.world, replicates, check)
        else:
            self._returns = _returns_on_host(assessment, run.world.action_space, replicates, check)

    def assess(self, act: Act, key: Key) -> Assessed:
        """Roll a policy through the assessment once."""
        returns = self._returns(act, key)
        return Assessed(returns.mean(axis=1).astype(np.float32), returns)

    def assess_seed(self, seed: int, key: Key) -> Assessed:
        """Roll the final policy of a seed through the assessment once."""
        return self.assess(Partial(self._run.learner.agent.act, self._run.policy_state(seed)), key)

    def predict(self, state: EvaluatorState, behaviour: Behaviour, queries: Any) -> Float[np.ndarray, " Q"]:
        """V̂ at the queries [Q, ...] for the policy with this behaviour."""
        return self.predict_each(state, _stacked([behaviour]), queries)[0]

    def predict_each(self, state: EvaluatorState, behaviours: Behaviour, queries: Any) -> Float[np.ndarray, "J Q"]:
        """V̂ at the queries [Q, ...] for each of J policies, whose behaviours are stacked."""
        return np.asarray(self._predict(state, behaviours, queries), np.float64)

    def value(self, state: EvaluatorState, behaviour: Behaviour) -> Value:
        """V̂(· | Ξ) as a function of observations, for compiled programs."""
        return Partial(self._evaluator.predict, state, behaviour)


class EvaluatorPredictions:
    """Predictions of each seed's evaluator for its final policy: from the policy's own Ξ, and from the controls.

    `Ξ zeroed` replaces the behaviour by the evaluator's running mean of it, `Ξ shuffled` by those of other policies.
    """

    def __init__(
        self,
        predictor: BehaviourPredictor,
        learnt: dict[int, LearntEvaluator],
        assessed: dict[int, Assessed],
        config: TrainConfig,
    ):
        self.assessed = assessed
        self._predictor, self._learnt = predictor, learnt
        self._remembered = {seed: oldest_first(one.remembered, config.updates) for seed, one in learnt.items()}
        reasons = {seed: not_fitted(one, config, seed) for seed, one in learnt.items()}
        self.not_fitted = {seed: reason for seed, reason in reasons.items() if reason is not None}
        """By seed: why its evaluator predicts nothing."""

    @classmethod
    def of_run(
        cls, run: Run, seeds: Sequence[int], replicates: int | None, key: Key, say: Callable[[str], None]
    ) -> "EvaluatorPredictions":
        """Assess the final policies of all seeds, not only those evaluated: the others are used for `Ξ shuffled`."""
        predictor = BehaviourPredictor(run, replicates)
        learnt, assessed = {}, {}
        for seed in run.seeds:
            try:
                evaluator, seed_key = run.evaluator_state(seed), jax.random.fold_in(jax.random.fold_in(key, seed), 1)
                assessed[seed] = predictor.assess_seed(seed, seed_key)
            except FileError as error:
                if seed in seeds:
                    raise
                say(f"seed {seed} is left out of Ξ shuffled: {error}")
                continue
            learnt[seed] = evaluator
        return cls(predictor, learnt, assessed, run.config)

    @property
    def shuffled_with(self) -> str | None:
        """The policies whose behaviours are used for `Ξ shuffled`; None if there are none."""
        remembered = any(_count(one.remembered) for one in self._learnt.values())
        if len(self._learnt) > 1:
            return f"{'remembered' if remembered else 'final'} policies of other seeds"
        return "older remembered policies of the same seed" if remembered else None

    def predict(self, seed: int, queries: Array | np.ndarray) -> Predictions:
        """Predictions for one seed at Q states; only the last batch's mean if its evaluator was not fitted."""
        learnt = self._learnt[seed]
        mean = {BATCH: np.full((1, len(queries)), float(learnt.batch_mean))}
        if seed in self.not_fitted:
            return mean
        own = self.assessed[seed].behaviour
        behaviours = _joined([_stacked([own, zeroed(learnt.state, own)]), *self._others(seed)])
        values = self._predictor.predict_each(learnt.state, behaviours, queries)
        shuffled = {SHUFFLED: values[2:]} if len(values) > 2 else {}
        return {EVALUATOR: values[:1], ZEROED: values[1:2]} | shuffled | mean

    def _others(self, seed: int) -> list[Behaviour]:
        """Stacked behaviours of other policies."""
        rest = [other for other in self._learnt if other != seed]
        if not rest:
            return [jax.tree.map(lambda leaf: leaf[:-1], self._remembered[seed])]
        remembered = [self._remembered[other] for other in rest]
        return (
            remembered if any(map(_count, remembered)) else [_stacked([self.assessed[one].behaviour for one in rest])]
        )


def training_range(learnt: LearntEvaluator) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Lowest and highest return in each scenario of the policies that the evaluator was fitted to."""
    return np.asarray(learnt.lowest, np.float64), np.asarray(learnt.highest, np.float64)


def zeroed(state: EvaluatorState, behaviour: Behaviour) -> Behaviour:
    """The running mean of the behaviours that the evaluator was fitted to: its network is given zeros."""
    return jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(state.returns.mean), leaf.shape), behaviour)


def oldest_first(slots: Behaviour, updates: int) -> Behaviour:
    """The remembered behaviours of the last policies [m, k, ...], oldest first and without slots that are still empty.

    >>> oldest_first(np.array([[4.0], [5.0], [3.0]]), updates=5).tolist()
    [[3.0], [4.0], [5.0]]
    """
    count = _count(slots)
    filled = min(updates, count)
    order = np.roll(np.arange(filled), -updates % count if filled == count > 0 else 0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[order], slots)


def _stacked(behaviours: Sequence[Behaviour]) -> Behaviour:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *behaviours)


def _joined(stacks: Sequence[Behaviour]) -> Behaviour:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *stacks)


def _count(stack: Behaviour) -> int:
    return len(jax.tree.leaves(stack)[0])


def _returns_in_jax(assessment: Assessment, world: World | HostWorld, replicates: int, check: Check) -> Returns:
    @jax.jit
    def roll_out(act: Act, key: Key) -> tuple[Array, Array, Array]:
        rollout = assessment.take(act, key, replicates, world)
        return rollout.rewards_to_go(assessment.discount)[0], rollout.action, rollout.alive

    def returns(act: Act, key: Key) -> Float[np.ndarray, "k R"]:
        found, action, alive = jax.device_get(roll_out(act, key))
        check(action[alive])
        return np.asarray(found, np.float64)

    return returns


def _returns_on_host(assessment: HostAssessment, space: Space, replicates: int, check: Check) -> Returns:
    @jax.jit
    def choose(act: Act, key: Key, observation: Array) -> tuple[Array, Array, Array]:
        action, log_prob = act(key, observation)
        return action, log_prob, world_action(space, action)

    def returns(act: Act, key: Key) -> Float[np.ndarray, "k R"]:
        keys = iter(jax.random.split(key, assessment.horizon))

        def checked(observation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            action, log_prob, in_world = jax.device_get(choose(act, next(keys), observation))
            check(action)
            return action, log_prob, in_world

        rollout = assessment.take(checked, replicates)
        return np.asarray(rollout.rewards_to_go(assessment.discount)[0], np.float64)

    return returns
