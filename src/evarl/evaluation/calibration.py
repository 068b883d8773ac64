"""What an evaluator knows about policies other than those of its training, found out after training.

Perturbed versions of the final policy play whole episodes and take the assessment, and the evaluator predicts their values
(`evarl.learning.perturbed`). Every HELD_OUT-th of them calibrates intervals, the others tell how wrong the evaluator is about
which behaviour. An evaluator with a diverse memory knows this from training. For any other one it is found out here, once, and
kept in the run directory.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.assessment.behaviour import Behaviour
from evarl.evaluation.inputs import root_key
from evarl.evaluators.evaluator import EvaluatorState, LearntEvaluator
from evarl.evaluators.knowledge import Knowledge, Known
from evarl.evaluators.memory import HELD_OUT, PolicyRecord
from evarl.learning.configuration import with_settings
from evarl.learning.evaluability import Evaluability
from evarl.learning.perturbed import try_perturbed
from evarl.runs.run import Run
from evarl.simulation.simulator import Simulator, simulator_for

POLICIES = 250
"""Perturbed policies; a fifth of them calibrates, and 29 is the least number that can."""
AT_ONCE = 50
"""Perturbed policies that play at the same time."""
STEPS = 12_500
"""Environment steps for each rollout that a simulator makes by default; they are shared by all perturbed policies."""
FEWEST, MOST = 2, 16
"""Episodes of each perturbed policy."""


def calibrated(run: Run, seed: int, learnt: LearntEvaluator, own: bool = True) -> LearntEvaluator:
    """The evaluator with what it knows about perturbed versions of the final policy of a seed.

    That of the run's `own` evaluator is read from the run directory if it is there, and else written.
    """
    if learnt.knowledge is not None:
        return learnt
    kept = run.calibrated_evaluator(seed) if own else None
    if kept is not None and _equal(kept.state, learnt.state):
        return learnt.replace(knowledge=kept.knowledge)
    learnt = learnt.replace(knowledge=_knowledge(run, seed, learnt))
    if own:
        run.keep_calibrated(seed, learnt)
    return learnt


def _knowledge(run: Run, seed: int, learnt: LearntEvaluator) -> Knowledge:
    """What the evaluator predicts of perturbed policies, beside what they return."""
    fixed, simulator, policy = run.learner.evaluability, run.learner.simulator, run.policy_state(seed)
    assert fixed is not None
    episodes = _episodes(simulator)
    many = {"evaluator.perturbed": AT_ONCE, "evaluator.perturbed_environments": episodes}
    fixed = dataclasses.replace(fixed, config=with_settings(fixed.config, many))

    @simulator.compile
    def tried(policy: Any, key: jax.Array) -> PolicyRecord:
        return try_perturbed(fixed, simulator, run.learner.agent, policy, key, learnt.state.probed).records

    keys = jax.random.split(jax.random.fold_in(root_key(0), seed), POLICIES // AT_ONCE)
    records = [jax.device_get(tried(policy, key)) for key in keys]
    together: PolicyRecord = jax.tree.map(lambda *parts: np.concatenate(parts), *records)
    held_out = np.arange(POLICIES) % HELD_OUT == HELD_OUT - 1
    others, calibrating = (_known(fixed, learnt.state, together, which, episodes) for which in (~held_out, held_out))
    return Knowledge(others, calibrating, learnt.remembered)


def _known(fixed: Evaluability, state: EvaluatorState, records: PolicyRecord, which: Any, starts: int) -> Known:
    """Some of the policies; the first states of each are the start states of its episodes."""
    some: PolicyRecord = jax.tree.map(lambda x: jnp.asarray(x[which]), records)
    predict = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, 0)))
    predicted = predict(state, some.behaviour, some.observation[:, :starts]).mean(axis=1)
    behaviour: Behaviour = some.behaviour
    return Known(behaviour, some.target[:, :starts].mean(axis=1), predicted)


def _episodes(simulator: Simulator) -> int:
    """Episodes of each policy: fewer where they are long, or where the world is on the host."""
    budget = STEPS * simulator_for(simulator.world).default_rollouts
    return int(np.clip(budget // (POLICIES * simulator.world.horizon), FEWEST, MOST))


def _equal(one: EvaluatorState, other: EvaluatorState) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)
