"""What both commands need of a run: its policies let loose in the assessment, and start states drawn from μ_D."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.agents.distributions import world_action
from evarl.assessment.assessment import Assessment
from evarl.errors import InputError
from evarl.evaluators.evaluator import Evaluator, EvaluatorState
from evarl.ranges import MOST, whole
from evarl.runs.run import Run
from evarl.simulation.collect import Act
from evarl.sizes import check_assessment
from evarl.truth.monte_carlo import start_states
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import HostWorld, Key, World, WorldState

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
    if isinstance(assessment, Assessment):
        in_jax = assessment

        @jax.jit
        def show(act: Act, key: Key) -> tuple[Array, Array, Array]:
            showing = in_jax.take(act, key, replicates, world)
            return showing.rewards_to_go(in_jax.discount)[0], showing.action, showing.alive

        def returns(act: Act, key: Key) -> Float[np.ndarray, "k R"]:
            found, action, alive = jax.device_get(show(act, key))
            check_actions(world, action[alive], who)
            return np.asarray(found, np.float64)

        return returns
    on_host = assessment

    @jax.jit
    def in_world(act: Act, key: Key, observation: Array) -> tuple[Array, Array, Array]:
        action, log_prob = act(key, observation)
        return action, log_prob, world_action(space, action)

    def returns_on_host(act: Act, key: Key) -> Float[np.ndarray, "k R"]:
        keys = iter(jax.random.split(key, on_host.horizon))

        def checked(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            action, log_prob, taken = jax.device_get(in_world(act, next(keys), seen))
            check_actions(world, action, who)
            return action, log_prob, taken

        showing = on_host.take(checked, replicates)
        return np.asarray(showing.rewards_to_go(on_host.discount)[0], np.float64)

    return returns_on_host


def check_actions(world: World | HostWorld, actions: np.ndarray, who: str) -> None:
    """Refuse actions [M, ...] that the world does not have; those that it clips to its bounds are none of them."""
    space = world.action_space
    if isinstance(space, Discrete):
        wrong, want = (actions < 0) | (actions >= space.n), f"a whole number from 0 to {space.n - 1}"
    else:
        low, high = (bound.reshape(1, -1) for bound in space.bounds())
        taken = np.asarray(world_action(space, jnp.asarray(actions))).reshape(len(actions), -1)
        wrong = ~(np.isfinite(actions) & (taken >= low) & (taken <= high)).all(axis=1)
        want = f"finite numbers that {space} has room for"
    if wrong.any():
        raise InputError(f"{who} takes the action {actions[wrong][0]} in {world.name}; want {want}")


@dataclass(frozen=True)
class Starts:
    """Start states drawn from μ_D."""

    states: WorldState | None
    """Stacked; None on the host, where a start state is a reset seed."""
    seeds: np.ndarray | None
    """[Q] reset seeds, on the host."""
    observation: Array | np.ndarray
    """[Q, ...]"""
    distinct: int

    @property
    def drawn(self) -> int:
        """Q."""
        return int(self.observation.shape[0])

    @property
    def shown(self) -> Array | np.ndarray:
        """Observations at which predictions are asked for: the only one if all are the same, else all that were drawn."""
        return self.observation[:1] if self.distinct == 1 else self.observation


def draw_starts(world: World | HostWorld, key: Key, count: int) -> Starts:
    """Draw from μ_D and count how many are different."""
    if isinstance(world, HostWorld):
        seeds = np.asarray(jax.random.randint(key, (count,), 0, SEED_RANGE - 1))
        environments = world.open(1)
        try:
            observation = np.stack([environments.reset(0, int(seed)) for seed in seeds])
        finally:
            environments.close()
        return Starts(None, seeds, observation, _distinct(observation))
    states, shown = start_states(world, key, count)
    return Starts(states, None, shown, _distinct(states.physics))


def predictor(evaluator: Evaluator) -> Callable[[EvaluatorState, Any, Any], Float[np.ndarray, "J Q"]]:
    """V̂ at Q queries for each of J assessments [J, k], compiled."""
    predict = jax.jit(jax.vmap(evaluator.predict, (None, 0, None)))
    return lambda state, returns, queries: np.asarray(
        predict(state, jnp.asarray(returns, jnp.float32), queries), np.float64
    )


def _distinct(tree: Any) -> int:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return len({b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(len(leaves[0]))})
