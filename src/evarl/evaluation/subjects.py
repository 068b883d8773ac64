"""What both commands need of a run: its policies let loose in the assessment, and start states drawn from μ_D."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.evaluators.fitting import Evaluator, EvaluatorState
from evarl.ranges import MOST, whole
from evarl.runs.run import Run
from evarl.simulation.rollouts import Act, ActionError, check_actions
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_assessment
from evarl.worlds.world import Key

Take = Callable[[Act, Key], Float[np.ndarray, "k R"]]
"""Rolls a policy through the assessment and gives its returns; policies given as `Partial` share one compilation."""

SEED_RANGE = 2**31


def root_key(random_seed: int) -> Key:
    """The key of all that is drawn for a report; none of the keys of training follows from it."""
    whole("random-seed", random_seed, least=-MOST)
    return jax.random.fold_in(jax.random.PRNGKey(random_seed), SEED_RANGE - 1)


def taker(run: Run, replicates: int | None, who: str = "the policy") -> Take:
    """The run's assessment, by default with its own number of replicates; errors name `who` takes it."""
    replicates = run.config.assessment.replicates if replicates is None else replicates
    assessment, world, space = run.assessment, run.world, run.world.action_space
    assert assessment is not None
    check_assessment(world, assessment.scenarios, assessment.horizon, replicates)

    @simulator_for(assessment.world).compile
    def show(act: Act, key: Key) -> tuple[Array, Array, Array]:
        rollout = assessment.take(act, key, replicates, space)
        return rollout.rewards_to_go(assessment.discount)[0], rollout.action, rollout.alive

    def returns(act: Act, key: Key) -> Float[np.ndarray, "k R"]:
        try:
            found, action, alive = jax.device_get(show(act, key))
            check_actions(world.name, space, action[alive])
        except ActionError as error:
            raise ActionError(error.told, who) from error
        return np.asarray(found, np.float64)

    return returns


def predictor(evaluator: Evaluator) -> Callable[[EvaluatorState, Any, Any], Float[np.ndarray, "J Q"]]:
    """V̂ at Q queries for each of J assessments [J, k], compiled."""
    predict = jax.jit(jax.vmap(evaluator.predict, (None, 0, None)))
    return lambda state, returns, queries: np.asarray(
        predict(state, jnp.asarray(returns, jnp.float32), queries), np.float64
    )
