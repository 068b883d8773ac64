"""Monte Carlo values of a run's final policies with control variates made of the evaluator or the critic."""

from pathlib import Path

import jax
from jax.tree_util import Partial

from evarl.evaluation.inputs import agent_policy, opened, root_key
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.truth.controlled import Controlled, ControlSettings, Value, controlled_rollouts
from evarl.worlds.world import Key


def controlled_estimates(
    run: Run | str | Path, seed: int | None = None, rollouts: int = 4096, resamples: int = 1, random_seed: int = 0
) -> dict[str, Controlled]:
    """Estimates from the same rollouts of the final policy of a seed (the first), by the predictor used as V̂.

    In worlds with random transitions, use several `resamples` of every step.
    """
    run = opened(run)
    seed = run.seeds[0] if seed is None else seed
    policy, settings = agent_policy(run, run.policy_state(seed)).distribution, ControlSettings(resamples)
    _, key = _keys(seed, random_seed)
    values = frozen_values(run, seed, random_seed)
    return {name: controlled_rollouts(run.world, policy, v, key, rollouts, settings) for name, v in values.items()}


def frozen_values(run: Run, seed: int, random_seed: int = 0) -> dict[str, Value]:
    """V̂ of the critic and, if the run has one that was fitted, of the evaluator after one assessment of the policy."""
    critic: dict[str, Value] = {CRITIC: Partial(opened(run).critic, run.policy_state(seed))}
    learnt = None if run.assessment is None else run.evaluator_state(seed)
    if learnt is None or not_fitted(learnt, run.config, seed) is not None:
        return critic
    predictor, (key, _) = BehaviourPredictor(run), _keys(seed, random_seed)
    return {EVALUATOR: predictor.value(learnt.state, predictor.assess_seed(seed, key).behaviour)} | critic


def _keys(seed: int, random_seed: int) -> tuple[Key, Key]:
    """Keys of the assessment and of the rollouts."""
    assessment, rollouts = jax.random.split(jax.random.fold_in(root_key(random_seed), seed))
    return assessment, rollouts
