"""Predictions of a run's evaluators from assessments of policies.

The only module outside of training that handles behaviours Ξ: it takes assessments, predicts values from them, and makes the
controls (Ξ zeroed, Ξ shuffled). Everything else passes a `Behaviour` on without looking inside.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.assessment.behaviour import Behaviour, observe
from evarl.errors import FileError
from evarl.evaluation.inputs import AssessedPolicy, agent_policy
from evarl.evaluation.predictors import BATCH, EVALUATOR, SHUFFLED, ZEROED
from evarl.evaluators.evaluator import EvaluatorState, LearntEvaluator
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.simulation.host_acting import ActionError, check_actions
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_assessment
from evarl.truth.controlled import Value
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.world import Key

Predictions = dict[str, Float[np.ndarray, "J Q"]]
"""Predicted values at Q states by predictor; J is 1 except for Ξ shuffled, where it is the number of other policies."""


class Assessed(NamedTuple):
    """One assessment of a policy, or one on each of C sites: then all arrays have a leading axis C."""

    behaviour: Behaviour
    returns: Float[np.ndarray, "*C k R"]
    """Return of each of R rollouts of each scenario, for display."""


class BehaviourPredictor:
    """Takes the assessment of a run and predicts values with the run's evaluators; compiled once for all policies."""

    def __init__(self, run: Run, replicates: int | None = None, policy: str = "the policy"):
        """By default, each scenario has the run's own number of replicates; errors call the assessed policy `policy`."""
        fixed = run.learner.evaluability
        assert fixed is not None
        assessment = fixed.assessment
        replicates = run.config.assessment.replicates if replicates is None else replicates
        check_assessment(run.world, assessment.scenarios, assessment.horizon, replicates)
        self._run, self._evaluator, self._name = run, fixed.evaluator, policy
        self._predict = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, None)))
        self._predict_lower = jax.jit(jax.vmap(fixed.evaluator.predict_lower, (None, 0, None)))
        self._predict_sites = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, 0)))

        @simulator_for(assessment.world).compile
        def take(
            policy: AssessedPolicy, key: Key, contexts: Float[Array, "C P"] | None, probes: Array | None
        ) -> tuple[Behaviour, Array, Array, Array]:
            rollout = assessment.take(policy.act, key, replicates, run.world, contexts)
            observed = observe(fixed.behaviour, rollout, policy.distribution, assessment.discount, probes)
            return observed.behaviour, observed.returns, rollout.action, rollout.alive

        self._take = take

    def assess(
        self,
        policy: AssessedPolicy,
        key: Key,
        contexts: Float[Array | np.ndarray, "C P"] | None = None,
        probes: Array | None = None,
    ) -> Assessed:
        """Roll a policy through the assessment once, or once on each of C sites with these contexts.

        In a family of worlds and without contexts, it is taken on one site, whose context is drawn. `probes` are those of the
        evaluator that is to be given the behaviour, `state.probed`.
        """
        if contexts is not None or not self._run.world.contexts:
            return self._assessed(policy, key, contexts, probes)
        own, key = jax.random.split(key)
        return self.assess_site(policy, key, draw_contexts(self._run.world.contexts, own, 1)[0], probes)

    def assess_site(
        self,
        policy: AssessedPolicy,
        key: Key,
        context: Float[Array | np.ndarray, " P"],
        probes: Array | None = None,
    ) -> Assessed:
        """Roll a policy through the assessment once on one site."""
        return jax.tree.map(lambda leaf: leaf[0], self._assessed(policy, key, context[None], probes))

    def _assessed(
        self,
        policy: AssessedPolicy,
        key: Key,
        contexts: Float[Array | np.ndarray, "C P"] | None,
        probes: Array | None,
    ) -> Assessed:
        world = self._run.world
        try:
            behaviour, returns, action, alive = jax.device_get(
                self._take(policy, key, None if contexts is None else jnp.asarray(contexts, jnp.float32), probes)
            )
            check_actions(world.name, world.action_space, action[alive])
        except ActionError as error:
            raise ActionError(error.told, self._name) from error
        if contexts is not None:  # the scenarios are those of all contexts, context by context
            places = len(contexts)
            behaviour, returns = jax.tree.map(lambda x: x.reshape(places, -1, *x.shape[1:]), (behaviour, returns))
        return Assessed(behaviour, np.asarray(returns, np.float64))

    def assess_seed(
        self,
        seed: int,
        key: Key,
        contexts: Float[Array | np.ndarray, "C P"] | None = None,
        evaluator: int | None = None,
    ) -> Assessed:
        """Roll the final policy of a seed through the assessment, as `assess` does, for its own evaluator or another seed's."""
        probes = None
        if self._run.config.assessment.probes == "learnt":
            probes = self._run.evaluator_state(seed if evaluator is None else evaluator).state.probed
        return self.assess(agent_policy(self._run, self._run.policy_state(seed)), key, contexts, probes)

    def predict(self, state: EvaluatorState, behaviour: Behaviour, queries: Any) -> Float[np.ndarray, " Q"]:
        """V̂ at the queries [Q, ...] for the policy with this behaviour."""
        return self.predict_each(state, _stacked([behaviour]), queries)[0]

    def predict_each(self, state: EvaluatorState, behaviours: Behaviour, queries: Any) -> Float[np.ndarray, "J Q"]:
        """V̂ at the queries [Q, ...] for each of J policies, whose behaviours are stacked."""
        return np.asarray(self._predict(state, behaviours, queries), np.float64)

    def predict_lower(self, state: EvaluatorState, behaviours: Behaviour, queries: Any) -> Float[np.ndarray, "J Q"]:
        """The lower quantile of the value at the queries, in place of V̂; the evaluator must have one."""
        return np.asarray(self._predict_lower(state, behaviours, queries), np.float64)

    def predict_sites(self, state: EvaluatorState, behaviours: Behaviour, queries: Any) -> Float[np.ndarray, "C Q"]:
        """V̂ at queries [C, Q, ...] of each of C sites, whose behaviours [C, k, ...] are stacked."""
        return np.asarray(self._predict_sites(state, behaviours, queries), np.float64)

    def value(self, state: EvaluatorState, behaviour: Behaviour) -> Value:
        """V̂(· | Ξ) as a function of observations, for compiled programs."""
        return Partial(self._evaluator.predict, state, behaviour)


class EvaluatorPredictions:
    """Predictions of each seed's evaluator for its final policy, or for one given policy: from its Ξ, and from the controls.

    `Ξ zeroed` replaces the behaviour by the evaluator's running mean of it, `Ξ shuffled` by those of other policies.
    """

    def __init__(
        self,
        run: Run,
        seeds: Sequence[int],
        replicates: int | None,
        key: Key,
        notify: Callable[[str], None],
        given: tuple[AssessedPolicy, str] | None = None,
    ):
        """Assess the final policies of all seeds, not only those evaluated: the others are used for `Ξ shuffled`.

        A given policy, with its name, is assessed for the evaluator of each of the seeds.
        """
        self._predictor = BehaviourPredictor(run, replicates)
        self._learnt: dict[int, LearntEvaluator] = {}
        self._final: dict[int, Assessed] = {}
        self._given: dict[int, Assessed] = {}
        self.not_fitted: dict[int, str | None] = {}
        """By seed: why its evaluator predicts nothing; None if it was fitted."""
        self._keys = {seed: jax.random.fold_in(jax.random.fold_in(key, seed), 1) for seed in run.seeds}
        self._own_probes = run.config.assessment.probes == "learnt"
        for seed, seed_key in self._keys.items():
            try:
                learnt = run.evaluator_state(seed)
                self._final[seed] = self._predictor.assess_seed(seed, seed_key)
            except FileError as error:
                if seed in seeds:
                    raise
                notify(f"seed {seed} is left out of Ξ shuffled: {error}")
                continue
            self._learnt[seed], self.not_fitted[seed] = learnt, not_fitted(learnt, run.config, seed)
        if given is not None:
            policy, name = given
            asked = BehaviourPredictor(run, replicates, name)
            probes = {seed: self._learnt[seed].state.probed for seed in seeds}
            self._given = {seed: asked.assess(policy, self._keys[seed], probes=probes[seed]) for seed in seeds}
        updates = run.config.updates
        self._remembered = {seed: oldest_first(one.remembered, updates) for seed, one in self._learnt.items()}

    @property
    def shuffled_with(self) -> str | None:
        """The policies whose behaviours are used for `Ξ shuffled`; None if there are none."""
        if self._given:
            return "final policies of the run"
        remembered = any(_count(one.remembered) for one in self._learnt.values())
        if len(self._learnt) > 1:
            return f"{'remembered' if remembered and not self._own_probes else 'final'} policies of other seeds"
        return "older remembered policies of the same seed" if remembered else None

    def assessed(self, seed: int) -> Assessed:
        """The assessment of the policy that the evaluator of a seed is asked about."""
        return self._given[seed] if self._given else self._final[seed]

    def predict(self, seed: int, queries: Array | np.ndarray) -> Predictions:
        """Predictions for one seed at Q states; only the last batch's mean if its evaluator was not fitted.

        The last batch is that of the seed's own policy, and left out for a given one.
        """
        learnt = self._learnt[seed]
        mean = {} if self._given else {BATCH: np.full((1, len(queries)), float(learnt.batch_mean))}
        if self.not_fitted[seed] is not None:
            return mean
        own = self.assessed(seed).behaviour
        stacks = [_stacked([own, learnt.state.mean_behaviour(own)]), *self._others(seed)]
        behaviours = jax.tree.map(lambda *leaves: np.concatenate(leaves), *stacks)
        values = self._predictor.predict_each(learnt.state, behaviours, queries)
        shuffled = {SHUFFLED: values[2:]} if len(values) > 2 else {}
        return {EVALUATOR: values[:1], ZEROED: values[1:2]} | shuffled | mean

    def _others(self, seed: int) -> list[Behaviour]:
        """Stacked behaviours of other policies; where each evaluator has probes of its own, at those of this seed's."""
        rest = [other for other in self._learnt if self._given or other != seed]
        if not rest:
            return [jax.tree.map(lambda leaf: leaf[:-1], self._remembered[seed])]
        if self._own_probes:
            again = [self._predictor.assess_seed(other, self._keys[other], evaluator=seed) for other in rest]
            return [_stacked([one.behaviour for one in again])]
        remembered = [self._remembered[other] for other in rest]
        if any(map(_count, remembered)) and not self._given:
            return remembered
        return [_stacked([self._final[other].behaviour for other in rest])]


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


def _count(stack: Behaviour) -> int:
    return len(jax.tree.leaves(stack)[0])
