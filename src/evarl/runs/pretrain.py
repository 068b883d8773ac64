"""Evaluators fitted to all policies of an earlier run, to be held fixed or to be tried on policies never seen."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from evarl.assessment.assessment import Assessment
from evarl.errors import InputError
from evarl.evaluators.evaluator import Evaluator, EvaluatorState, LearntEvaluator
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.runs.assessments import ASSESSMENT, build_assessment, save_assessment, save_evaluator
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.sizes import check_pretraining


@dataclass(frozen=True)
class Past:
    """What the policies of a run met and showed: leaves [seeds, M, S, ...], [seeds, M, S], [seeds, M, k]."""

    assessment: Assessment
    policies: PolicyRecord
    updates: list[int]
    """Which updates the M policies made."""


def remember(
    config: TrainConfig,
    assessment: Assessment,
    policies: int,
    transitions: int,
    seeds: list[int],
    advance: Callable[[int], None] = lambda updates: None,
) -> Past:
    """Train again, which gives the same policies to the last bit, and keep M of them at equal distances.

    Training is ordinary (β = 0): the examiner only watches, so the policies are those of the run without it.
    """
    memory = dataclasses.replace(
        config.evaluator, policies=1, transitions=transitions, warmup=config.updates, file=None
    )
    passive = dataclasses.replace(config, beta=0.0, beta_variance=0.0, evaluator_mode="colearned", evaluator=memory)
    learner = make_learner(passive, assessment)
    if not learner.world.can_restart:
        raise InputError(f"{config.world}: a host world cannot be trained again to the last bit; use a JAX world")
    engine = CompiledEngine(learner, len(seeds))
    state, rows, updates, done = engine.init(seeds), [], [], 0
    for last in np.unique(np.linspace(0, config.updates - 1, min(policies, config.updates)).astype(int)):
        while done <= last:
            count = min(int(last) + 1 - done, 200)
            state, _ = engine.advance(state, done, count)
            done += count
            advance(count)
        assert state.evaluation is not None
        assert state.evaluation.memory is not None
        rows.append(jax.device_get(jax.tree.map(lambda leaf: leaf[:, 0], state.evaluation.memory.slots)))
        updates.append(int(last))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *rows)
    return Past(assessment, stacked, updates)


def fit_to(past: Past, config: TrainConfig, rows: list[int], steps: int, seed: int) -> tuple[Evaluator, EvaluatorState]:
    """Fit a new evaluator to the policies of some of the seeds."""
    evaluator = make_learner(dataclasses.replace(config, beta=0.0, beta_variance=0.0), past.assessment).evaluator
    assert evaluator is not None
    chosen = jax.tree.map(lambda leaf: jnp.asarray(leaf[rows].reshape(-1, *leaf.shape[2:])), past.policies)
    memory = Memory(chosen)

    @jax.jit
    def fit(key: jax.Array, memory: Memory) -> EvaluatorState:
        state = evaluator.init(key)
        flat = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (memory.slots.observation, memory.slots.target)
        )
        merged = PolicyRecord(observation=flat[0], target=flat[1], behaviour=memory.slots.behaviour)
        state = evaluator.rescale(state, merged, jnp.zeros((), jnp.int32))
        return evaluator.fit(state, memory, jnp.int32(memory.policies), jnp.int32(steps), key)[0]

    return evaluator, fit(jax.random.PRNGKey(seed), memory)


def learnt_from(past: Past, evaluator: Evaluator, state: EvaluatorState) -> LearntEvaluator:
    """A fitted evaluator with what it remembers of the policies it was fitted to, as runs keep their own."""
    behaviours = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), past.policies.behaviour)
    return LearntEvaluator(
        state=state,
        scenarios=evaluator.scenarios,
        remembered=behaviours,
        lowest=jax.tree.map(lambda x: x.min(axis=0), behaviours),
        highest=jax.tree.map(lambda x: x.max(axis=0), behaviours),
        batch_mean=jnp.asarray(past.policies.target[:, -1].mean()),
    )


def pretrain(
    run: Run, *, out: str | Path | None = None, policies: int = 100, transitions: int = 512, steps: int = 5000
) -> Path:
    """Fit an evaluator to all policies of a run and write it, with its assessment beside it.

    Args:
        run: a finished run.
        out: file for the evaluator; by default `pretrained.safetensors` in the run directory.
        policies: how many of the run's policies to use, at equal distances.
        transitions: states kept of each.
        steps: gradient steps.
    """
    check_pretraining(run.config, run.world, policies, transitions, steps)
    keep_compiled_programs()
    path = Path(out) if out is not None else run.path / "pretrained.safetensors"
    config = dataclasses.replace(run.config, evaluator_mode="colearned")
    assessment = run.assessment or build_assessment(config, print)
    past = remember(config, assessment, policies, transitions, run.seeds)
    evaluator, state = fit_to(past, config, list(range(len(run.seeds))), steps, run.seeds[0])
    save_evaluator(path, learnt_from(past, evaluator, state), config)
    save_assessment(path.with_name(f"{path.stem}-{ASSESSMENT}"), assessment)
    return path
