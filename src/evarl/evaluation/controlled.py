"""Cheap estimates of what a run's final policies are worth, with the evaluator and with the critic as control variates."""

from pathlib import Path

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.evaluation.subjects import root_key, taker
from evarl.runs.checks import not_fitted
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.truth.controlled import Controlled, ControlSettings, Value, controlled_rollouts
from evarl.worlds.world import Key


def controlled_estimates(
    run: Run | str | Path, seed: int | None = None, rollouts: int = 4096, resamples: int = 1, random_seed: int = 0
) -> dict[str, Controlled]:
    """The same rollouts of the final policy of a seed (the first), with each of its frozen V̂, by predictor.

    In a world with dice, more than one of the `resamples` of every step are wanted. `random_seed` fixes what is random.
    """
    run = run if isinstance(run, Run) else Run.load(run)
    world, seed = run.world, run.seeds[0] if seed is None else seed
    policy = Partial(run.learner.agent.distribution, run.policy_state(seed))
    _, key = _keys(seed, random_seed)
    return {
        name: controlled_rollouts(world, policy, value, key, rollouts, ControlSettings(resamples))
        for name, value in frozen_values(run, seed, random_seed).items()
    }


def frozen_values(run: Run, seed: int, random_seed: int = 0) -> dict[str, Value]:
    """V̂ of the critic and, if there is one that was fitted, of the evaluator.

    Its assessment is taken once, before the rollouts of `random_seed`.
    """
    keep_compiled_programs()
    agent, policy, examiner = run.learner.agent, run.policy_state(seed), run.learner.examiner
    values: dict[str, Value] = {}
    learnt = None if examiner is None else run.evaluator_state(seed)
    if examiner is not None and learnt is not None and not_fitted(learnt, run.config, seed) is None:
        key, _ = _keys(seed, random_seed)
        shown = taker(run, None)(Partial(agent.act, policy), key).mean(axis=1)
        values[EVALUATOR] = Partial(examiner.evaluator.predict, learnt.state, jnp.asarray(shown, jnp.float32))
    return values | {CRITIC: Partial(agent.value, policy)}


def _keys(seed: int, random_seed: int) -> tuple[Key, Key]:
    """Of the assessment, and of the rollouts."""
    assessment, rollouts = jax.random.split(jax.random.fold_in(root_key(random_seed), seed))
    return assessment, rollouts
