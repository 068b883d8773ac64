"""True and predicted values of one seed's final policy."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from evarl.evaluation.logged import LoggedSeed, estimate_seed
from evarl.evaluation.predictions import EvaluatorPredictions, Predictions
from evarl.evaluation.predictors import CRITIC
from evarl.evaluation.results import START, VISITED, Queries, SeedEvaluation
from evarl.evaluation.scores import average
from evarl.ope.registry import LABELS, LogSettings
from evarl.runs.run import Run
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.truth.monte_carlo import Truth, true_values
from evarl.worlds.world import Key


@dataclass(frozen=True)
class Measurement:
    """What the seeds of one evaluation share: the run, its start states, and how its policies are measured."""

    run: Run
    starts: StartStates
    rollouts: int
    """Rollouts from each state."""
    states: int
    """States of each kind."""
    evaluators: EvaluatorPredictions | None
    ope: LogSettings | None


class _States(NamedTuple):
    """Q states of one kind and their true values."""

    states: StartStates
    truth: Truth


def measure_seed(plan: Measurement, seed: int, key: Key) -> SeedEvaluation:
    """Compare every predictor of a seed with Monte Carlo values at start states and at states that its policy visits."""
    act = Partial(plan.run.learner.agent.act, plan.run.policy_state(seed))
    kinds = _true_values(plan, act, jax.random.fold_in(key, 2))
    logged, values = _from_log(plan, seed, kinds)
    queries = {}
    for (kind, states), off_policy in zip(kinds.items(), values, strict=True):
        truth = _pooled(states.truth) if kind == START and plan.starts.distinct == 1 else states.truth
        predictions = _predictions(plan, seed, states.states.observation) | off_policy
        queries[kind] = Queries(truth, {name: x[:, : len(truth.value)] for name, x in predictions.items()})
    start = kinds[START].truth
    return SeedEvaluation(
        seed=seed,
        discounted=average(start.value, float(start.standard_error[0])),
        undiscounted=average(start.undiscounted),
        assessment=[] if plan.evaluators is None else plan.evaluators.assessed[seed].mean_returns.tolist(),
        queries=queries,
        logged=logged,
    )


def _true_values(plan: Measurement, act: Act, key: Key) -> dict[str, _States]:
    """Start states and visited states with their values; in worlds on the host, visited states cannot be returned to."""
    world, starts = plan.run.world, plan.starts
    start_key, states_key, visited_key = jax.random.split(key, 3)
    found = {START: _States(starts, true_values(world, act, starts, start_key, plan.rollouts))}
    if world.can_restart:
        visited = simulator_for(world).visited_states(act, states_key, plan.states)
        found[VISITED] = _States(visited, true_values(world, act, visited, visited_key, plan.rollouts))
    return found


def _predictions(plan: Measurement, seed: int, observation: Array | np.ndarray) -> Predictions:
    """Predictions of evaluator, controls and critic at states of one kind.

    Start states that are all equal are all predicted, so that one compiled program serves both kinds of states.
    """
    evaluator = {} if plan.evaluators is None else plan.evaluators.predict(seed, observation)
    critic = np.asarray(plan.run.value(jnp.asarray(observation), seed), np.float64)
    return evaluator | {CRITIC: critic[None]}


def _from_log(plan: Measurement, seed: int, kinds: dict[str, _States]) -> tuple[LoggedSeed | None, list[Predictions]]:
    """Off-policy estimates, and their values at each kind of states.

    Values with infinite importance weights are left out; a warning of the estimate reports them.
    """
    if plan.ope is None:
        return None, [{} for _ in kinds]
    everywhere = np.concatenate([np.asarray(kind.states.observation) for kind in kinds.values()])
    elapsed = np.concatenate([np.asarray(kind.states.elapsed) for kind in kinds.values()])
    logged = estimate_seed(plan.run, seed, plan.ope, everywhere, elapsed)
    ends = np.cumsum([kind.states.drawn for kind in kinds.values()])[:-1]
    found: list[Predictions] = [{} for _ in kinds]
    for method, one in logged.estimates.items():
        assert one.state_values is not None
        if np.isfinite(one.state_values).all():
            for predictions, values in zip(found, np.split(one.state_values, ends), strict=True):
                predictions[LABELS[method]] = values[None]
    return logged, found


def _pooled(truth: Truth) -> Truth:
    """Values of one state that was drawn Q times: one value from Q R rollouts."""
    mean = average(truth.value, float(truth.standard_error[0]))
    values = np.array([mean.mean]), np.array([mean.standard_error]), truth.undiscounted.mean(keepdims=True)
    return Truth(*values, truth.rollouts * len(truth.value))
