"""Monte Carlo values of a run's final policies with control variates made of the evaluator or the critic."""

from pathlib import Path

import jax
from jax.tree_util import Partial

from evarl.evaluation.keys import root_key
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.runs.checks import not_fitted
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.truth.controlled import Controlled, ControlSettings, Value, controlled_rollouts
from evarl.worlds.world import Key


def controlled_estimates(
    run: Run | str | Path, seed: int | None = None, rollouts: int = 4096, resamples: int = 1, random_seed: int = 0
) -> dict[str, Controlled]:
    """Estimates from the same rollouts of the final policy of a seed (the first), by the predictor used as V̂.

    In worlds with random transitions, use several `resamples` of every step.
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
    """V̂ of the critic and, if the run has one that was fitted, of the evaluator after one assessment of the policy."""
    keep_compiled_programs()
    agent, policy = run.learner.agent, run.policy_state(seed)
    values: dict[str, Value] = {}
    learnt = None if run.assessment is None else run.evaluator_state(seed)
    if learnt is not None and not_fitted(learnt, run.config, seed) is None:
        key, _ = _keys(seed, random_seed)
        predictor = BehaviourPredictor(run)
        values[EVALUATOR] = predictor.value(learnt.state, predictor.assess_seed(seed, key).behaviour)
    return values | {CRITIC: Partial(agent.value, policy)}


def _keys(seed: int, random_seed: int) -> tuple[Key, Key]:
    """Keys of the assessment and of the rollouts."""
    assessment, rollouts = jax.random.split(jax.random.fold_in(root_key(random_seed), seed))
    return assessment, rollouts
