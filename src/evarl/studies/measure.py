"""How well the evaluator of a finished run predicts its own final policy, seed by seed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evarl.runs.run import Run
from evarl.simulation.simulator import Simulator, simulator_for
from evarl.truth.monte_carlo import Truth, mean_squared_error, true_values


@dataclasses.dataclass(frozen=True)
class Measured:
    """One seed. Errors are in units of discounted return; skill is over the best predictor without Ξ."""

    seed: int
    true_return: float
    """Undiscounted, over μ_D."""
    start_mae: float
    start_bias: float
    visited_mae: float
    visited_rmse: float
    critic_start_mae: float
    critic_visited_mae: float
    mean_visited_mae: float
    """Of the last batch's mean return-to-go."""
    zeroed_start_mae: float
    zeroed_visited_mae: float
    skill: float


def measure(run: Run, seed: int, rollouts: int = 256, states: int = 64, assessments: int = 16) -> Measured:
    """Ground truth by Monte Carlo at start and visited states; errors averaged over independent single assessments."""
    world, agent, examiner = run.world, run.learner.agent, run.learner.examiner
    simulator = simulator_for(world)
    assert examiner is not None
    policy, learnt = run.policy_state(seed), run.fitted_evaluator(seed)
    act = Partial(agent.act, policy)
    keys = jax.random.split(jax.random.PRNGKey(seed + 77_777), 5)
    queries = {
        "start": simulator.start_states(keys[0], 1 if _single_start(simulator) else states),
        "visited": simulator.visited_states(act, keys[1], states),
    }
    shown = _showings(run, act, keys[2], assessments)
    truths: dict[str, Truth] = {}
    errors: dict[str, dict[str, np.ndarray]] = {}
    squares: dict[str, float] = {}
    for name, where in queries.items():
        observation = jnp.asarray(where.observation)
        truth = truths[name] = true_values(world, act, where, keys[3], rollouts)
        predictions = {
            "evaluator": np.stack([examiner.evaluator.predict(learnt.state, xi, observation) for xi in shown]),
            "zeroed": np.asarray(
                examiner.evaluator.predict(
                    learnt.state, jnp.full(len(shown[0]), learnt.state.returns.mean), observation
                )
            )[None],
            "critic": np.asarray(agent.value(policy, observation))[None],
            "mean": np.full((1, len(observation)), float(learnt.batch_mean)),
        }
        errors[name] = {label: values - truth.value[None] for label, values in predictions.items()}
        if name == "visited":
            squares = {
                label: float(np.mean([mean_squared_error(truth, row) for row in values]))
                for label, values in predictions.items()
            }
    without = max(min(squares["critic"], squares["mean"], squares["zeroed"]), 1e-9)
    mae = {name: {label: float(np.abs(e).mean()) for label, e in by.items()} for name, by in errors.items()}
    return Measured(
        seed=seed,
        true_return=float(truths["start"].undiscounted.mean()),
        start_mae=mae["start"]["evaluator"],
        start_bias=float(errors["start"]["evaluator"].mean()),
        visited_mae=mae["visited"]["evaluator"],
        visited_rmse=float(np.sqrt(max(0.0, squares["evaluator"]))),
        critic_start_mae=mae["start"]["critic"],
        critic_visited_mae=mae["visited"]["critic"],
        mean_visited_mae=mae["visited"]["mean"],
        zeroed_start_mae=mae["start"]["zeroed"],
        zeroed_visited_mae=mae["visited"]["zeroed"],
        skill=1.0 - squares["evaluator"] / without,
    )


def summarise(rows: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Mean and standard error over seeds of every measured quantity."""
    names = [name for name in rows[0] if name != "seed"]
    columns = {name: np.array([row[name] for row in rows], float) for name in names}
    return {name: (float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))) for name, x in columns.items()}


def _single_start(simulator: Simulator) -> bool:
    observation = simulator.start_states(jax.random.PRNGKey(0), 8).observation
    return bool((np.asarray(observation) == np.asarray(observation)[:1]).all())


def _showings(run: Run, act: Any, key: jax.Array, count: int) -> np.ndarray:
    """Ξ of `count` independent assessments, [count, k]."""
    examiner = run.learner.examiner
    assert examiner is not None
    assessment = examiner.assessment
    replicates, space = run.config.assessment.replicates, run.world.action_space
    take = assessment.simulator.compile(lambda act, key: assessment.take(act, key, replicates, space))
    showings = [
        take(act, one).rewards_to_go(assessment.discount)[0].mean(axis=1) for one in jax.random.split(key, count)
    ]
    return np.stack([np.asarray(xi) for xi in showings])
