"""Evaluators fitted to the policies of an earlier run, to be frozen in another run or tested on unseen policies."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.assessment.assessment import Assessment
from evarl.errors import InputError
from evarl.evaluators.evaluator import Evaluator, EvaluatorState, LearntEvaluator
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.learning.configuration import ORDINARY, TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import LearnerState, make_learner

CHUNK = 200
"""Updates between two calls of `advance`, at most."""


@dataclass(frozen=True)
class Past:
    """Records of M policies of a run for each of its seeds.

    Leaves are [seeds, M, S, ...] observations, [seeds, M, S] returns-to-go and [seeds, M, ...] behaviours. In a family of worlds
    every policy has a record for each of its C contexts, and M is C times as large.
    """

    assessment: Assessment
    policies: PolicyRecord
    updates: list[int]
    """The updates after which the policies were recorded."""


def remember(
    config: TrainConfig,
    assessment: Assessment,
    policies: int,
    transitions: int,
    seeds: list[int],
    advance: Callable[[int], None] = lambda updates: None,
) -> Past:
    """Records of policies at equal distances in a run, made by training it again, bit for bit.

    Training is ordinary (β = 0) and the evaluator passive, so the policies are those of the run without an evaluator.
    """
    memory = dataclasses.replace(
        config.evaluator,
        memory="recent",
        policies=1,
        transitions=transitions,
        warmup=config.updates,
        warmup_ends="fixed",
        file=None,
    )
    passive = dataclasses.replace(config, **ORDINARY, evaluator_mode="colearned", evaluator=memory)
    learner = make_learner(passive, assessment)
    if not learner.world.can_restart:
        raise InputError(f"{config.world}: a host world cannot be trained again bit for bit; use a JAX world")
    engine = CompiledEngine(learner, len(seeds))
    state, records, updates, done = engine.init(seeds), [], [], 0
    for last in np.unique(np.linspace(0, config.updates - 1, min(policies, config.updates)).astype(int)):
        while done <= last:
            count = min(int(last) + 1 - done, CHUNK)
            state, _ = engine.advance(state, done, count)
            done += count
            advance(count)
        records.append(_newest_records(state))
        updates.append(int(last))
    return Past(assessment, jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *records), updates)


def fit_to(
    past: Past, config: TrainConfig, rows: list[int], steps: int, seed: int, decay: bool = False
) -> tuple[Evaluator, EvaluatorState]:
    """An evaluator fitted from scratch to the policies of some of the seeds, given by their positions `rows`.

    With `decay` the step size falls to 0.
    """
    final_steps = steps if decay else config.evaluator.final_steps
    recent = dataclasses.replace(config.evaluator, memory="recent", final_steps=final_steps)
    passive = dataclasses.replace(config, **ORDINARY, evaluator_mode="colearned", evaluator=recent)
    evaluator = make_learner(passive, past.assessment).evaluator
    assert evaluator is not None
    memory = Memory(jax.tree.map(lambda leaf: jnp.asarray(_merged(leaf[rows])), past.policies))

    @jax.jit
    def fit(key: jax.Array, memory: Memory) -> EvaluatorState:
        init_key, fit_key = jax.random.split(key)
        state = evaluator.init(init_key)
        slots = memory.slots
        by_policy = slots.observation, slots.target, slots.following
        observation, target, following = jax.tree.map(_merged, by_policy)
        every = slots.replace(observation=observation, target=target, following=following)
        state = evaluator.rescale(state, every, jnp.ones(()))
        return evaluator.fit(state, memory, jnp.int32(memory.policies), jnp.int32(steps), fit_key, decay)[0]

    return evaluator, fit(jax.random.PRNGKey(seed), memory)


def learnt_from(past: Past, evaluator: Evaluator, state: EvaluatorState) -> LearntEvaluator:
    """A fitted evaluator with the behaviours of the policies it was fitted to, in the form that run directories keep."""
    shown = evaluator.present(state, jax.tree.map(_merged, past.policies)).behaviour
    return LearntEvaluator(
        state=state,
        scenarios=evaluator.scenarios,
        remembered=jax.tree.map(jnp.asarray, shown),
        lowest=jax.tree.map(lambda leaf: jnp.asarray(leaf.min(axis=0)), shown),
        highest=jax.tree.map(lambda leaf: jnp.asarray(leaf.max(axis=0)), shown),
        batch_mean=jnp.asarray(past.policies.target[:, -1].mean()),
    )


def _newest_records(state: LearnerState) -> PolicyRecord:
    """The records in each seed's memory, [seeds, C, ...]: of one policy, in each of its C contexts."""
    assert state.evaluation is not None
    assert state.evaluation.memory is not None
    return jax.device_get(state.evaluation.memory.slots)


def _merged(leaf: Any) -> Any:
    """An array with its first two axes made one."""
    return leaf.reshape(-1, *leaf.shape[2:])
