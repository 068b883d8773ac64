"""Errors of evaluators on policies of seeds that they were not fitted to, with and without the assessment."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from evarl.assessment.behaviour import part_of
from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.evaluators.evaluator import Evaluator, EvaluatorState
from evarl.evaluators.memory import PolicyRecord
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.played import HALVES, Played
from evarl.learning.pretraining import fit_to

STATES = ("start", "visited")
"""Kinds of states at which values are predicted, and averaged for each policy."""
Errors = dict[str, dict[str, Float[np.ndarray, "H M"]]]
"""By kind of states and predictor: squared errors of the M policies of each of H held-out seeds."""


def folds(seeds: int, count: int) -> list[list[int]]:
    """The seeds in `count` groups of neighbours: each seed is held out once.

    >>> folds(5, 2)
    [[0, 1, 2], [3, 4]]
    """
    return [part.tolist() for part in np.array_split(np.arange(seeds), count)]


def held_out_errors(played: Played, config: TrainConfig, held_out: Sequence[int], steps: int) -> Errors:
    """Squared errors of predictions of each held-out policy's value, averaged over its states, without the noise of returns.

    `held_out` are positions of seeds whose policies are predicted; evaluators are fitted to the others, with a step size that
    falls to 0. They are given the kinds of behaviour that `config` names, of those that were recorded. `BLIND` is the same
    network fitted and tested with all behaviours at zero: the best that it can do without Ξ. `SHUFFLED` is the fitted network
    shown the Ξ of another policy, `CONSTANT` the mean return of the policies that were fitted.
    """
    shown = _shown(played, config.assessment.behaviour)
    fitted_to = [row for row in range(len(played.start.target)) if row not in held_out]
    blind = dataclasses.replace(shown.visited, policies=_zeroed(shown.visited.policies))
    unprobed = with_settings(config, {"assessment.probes": "start"})
    fits = {
        name: fit_to(past, settings, fitted_to, steps, 0, decay=True)
        for name, (past, settings) in {EVALUATOR: (shown.visited, config), BLIND: (blind, unprobed)}.items()
    }
    errors: Errors = {}
    for kind, policies in by_states(shown).items():
        tested = jax.tree.map(lambda leaf: leaf[list(held_out)].reshape(-1, *leaf.shape[2:]), policies)
        order = np.random.default_rng(0).permutation(len(tested.target))
        behaviour, policy = jax.tree.map(lambda leaf: leaf[order], (tested.behaviour, tested.policy))  # noqa: B023
        shuffled = tested.replace(behaviour=behaviour, policy=policy)
        values = {
            EVALUATOR: _predict(*fits[EVALUATOR], tested),
            SHUFFLED: _predict(*fits[EVALUATOR], shuffled),
            BLIND: _predict(*fits[BLIND], _zeroed(tested)),
            CONSTANT: np.full_like(tested.target, policies.target[fitted_to].mean()),
        }
        target = np.asarray(tested.target, np.float64)
        errors[kind] = {name: squared_error(target - said).reshape(len(held_out), -1) for name, said in values.items()}
    return errors


def squared_error(error: Float[np.ndarray, "M S"]) -> Float[np.ndarray, " M"]:
    """The square of each policy's mean error, unbiased: the product of the means over two halves of independent episodes.

    The errors G − V̂ of single returns G contain the noise of G. In the square of a mean it adds up to the variance of the
    mean; in the product of two independent means it averages out, so that single products can be negative.

    >>> squared_error(np.array([[0.0, 2.0, 4.0, 2.0]]))
    array([3.])
    """
    halves = error.reshape(len(error), HALVES, -1).mean(axis=2)
    return halves[:, 0] * halves[:, 1]


def truth_noise(played: Played) -> dict[str, Float[np.ndarray, " H"]]:
    """By kind of states: the mean squared standard error of the policies' mean returns, seed by seed, from their two halves."""
    found = {}
    for kind, policies in by_states(played).items():
        target = np.asarray(policies.target, np.float64)
        halves = target.reshape(*target.shape[:2], HALVES, -1).mean(axis=3)
        found[kind] = (np.diff(halves, axis=2)[..., 0] ** 2 / 4).mean(axis=1)
    return found


def by_states(played: Played) -> dict[str, PolicyRecord]:
    """The records by kind of states."""
    return dict(zip(STATES, (played.start, played.visited.policies), strict=True))


def _shown(played: Played, behaviour: str) -> Played:
    """The records with some kinds of behaviour only."""

    def chosen(policies: PolicyRecord) -> PolicyRecord:
        return policies.replace(behaviour=part_of(policies.behaviour, behaviour))

    visited = dataclasses.replace(played.visited, policies=chosen(played.visited.policies))
    return Played(visited, chosen(played.start))


def _zeroed(policies: PolicyRecord) -> PolicyRecord:
    return policies.replace(behaviour=jax.tree.map(np.zeros_like, policies.behaviour), policy=None)


def _predict(evaluator: Evaluator, state: EvaluatorState, policies: PolicyRecord) -> Float[np.ndarray, "M S"]:
    """Values at the recorded states of every policy."""
    policies = evaluator.present(state, policies)
    one = jax.jit(lambda state, policy: evaluator.predict(state, policy.behaviour, policy.observation))
    rows = [one(state, jax.tree.map(lambda leaf, i=i: leaf[i], policies)) for i in range(len(policies.target))]
    return np.stack(rows).astype(np.float64)
