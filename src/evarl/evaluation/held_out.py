"""Errors of evaluators on policies of seeds that they were not fitted to, with and without the assessment."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.evaluation.scores import Score, score
from evarl.evaluators.evaluator import Evaluator, EvaluatorState
from evarl.evaluators.memory import PolicyRecord
from evarl.learning.configuration import TrainConfig
from evarl.learning.pretraining import Past, fit_to
from evarl.truth.monte_carlo import Truth


def held_out_scores(past: Past, config: TrainConfig, held_out: Sequence[int], steps: int) -> dict[str, Score]:
    """Scores by predictor: the value of each held-out policy, averaged over the states that it visited, is predicted.

    `held_out` are rows of `past`, seeds whose policies are predicted; the evaluators are fitted to the others. `BLIND` is
    the same network fitted and tested with all behaviours at zero: the best that it can do without Ξ. `SHUFFLED` is the
    fitted network shown the Ξ of another policy, `CONSTANT` the mean return-to-go of the policies that were fitted.
    """
    fitted_to = [row for row in range(len(past.policies.target)) if row not in held_out]
    tested = jax.tree.map(lambda leaf: leaf[list(held_out)].reshape(-1, *leaf.shape[2:]), past.policies)
    blind_past = dataclasses.replace(past, policies=_without_assessment(past.policies))
    order = np.random.default_rng(0).permutation(len(tested.target))
    evaluator = fit_to(past, config, fitted_to, steps, 0)
    blind = fit_to(blind_past, config, fitted_to, steps, 0)
    values = {
        EVALUATOR: _predict(*evaluator, tested),
        SHUFFLED: _predict(*evaluator, tested.replace(behaviour=jax.tree.map(lambda x: x[order], tested.behaviour))),
        BLIND: _predict(*blind, _without_assessment(tested)),
        CONSTANT: np.full_like(tested.target, past.policies.target[fitted_to].mean()),
    }
    mean = np.asarray(tested.target, np.float64).mean(axis=1)
    truth = Truth(mean, np.zeros_like(mean), mean, tested.target.shape[1])
    return {name: score(truth, said.mean(axis=1, dtype=np.float64)[None]) for name, said in values.items()}


def _without_assessment(policies: PolicyRecord) -> PolicyRecord:
    return policies.replace(behaviour=jax.tree.map(np.zeros_like, policies.behaviour))


def _predict(evaluator: Evaluator, state: EvaluatorState, policies: PolicyRecord) -> Float[np.ndarray, "M S"]:
    """Values at the remembered states of every policy."""
    one = jax.jit(lambda state, policy: evaluator.predict(state, policy.behaviour, policy.observation))
    return np.stack(
        [one(state, jax.tree.map(lambda leaf, i=i: leaf[i], policies)) for i in range(len(policies.target))]
    )
