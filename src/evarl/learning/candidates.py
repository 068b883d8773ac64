"""Start states of an assessment chosen for what they tell about policies: rollouts of base policies, and the choice by them.

Samples are policies, in a family of worlds policies in contexts. Each is rolled out from every candidate for the horizon of the
assessment, and its values at some queries are measured; `evarl.assessment.design` chooses.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.agents.actor_critic import PolicyState
from evarl.agents.agent import Agent
from evarl.assessment.assessment import Assessment
from evarl.assessment.design import TIE, Choice, choose_from_rollouts
from evarl.learning.configuration import TrainConfig
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.registry import make_world
from evarl.worlds.world import Key, World

QUERIES = 8
"""States at which values are measured."""
ROLLOUTS = 8
"""Rollouts from each candidate, and from each query, by each policy in each context."""
CONTEXTS = 16
"""Contexts in a family of worlds."""


def choose_start_states(
    config: TrainConfig, agent: Agent, policies: list[PolicyState], key: Key, notify: Callable[[str], None]
) -> Any:
    """Physics of k of the states that the policies visit, [k, ...], chosen greedily; `notify` is told what they are good for."""
    # worlds on the host have no visited states to begin at, and are refused with the settings
    world = cast(World, make_world(config.world, config.horizon, config.discount, config.context))
    acts = [Partial(agent.act, policy) for policy in policies]
    candidate_key, query_key, context_key, return_key, value_key = jax.random.split(key, 5)
    candidates = visited_by_all(world, acts, candidate_key, config.assessment.candidates)
    if config.queries == "start":
        queries = simulator_for(world).start_states(query_key, QUERIES)
    else:
        queries = visited_by_all(world, acts, query_key, QUERIES)
    contexts = draw_contexts(world.contexts, context_key, CONTEXTS) if world.contexts else None
    wanted = config.assessment
    shown = Assessment(world, candidates.state.physics, wanted.horizon, wanted.discount)
    returns = assessment_returns(shown, acts, return_key, max(ROLLOUTS, wanted.replicates), contexts)
    values = values_at(world, acts, value_key, queries, contexts)
    choice = choose_from_rollouts(returns, values, wanted.scenarios, wanted.replicates)
    notify(_told(choice, len(returns)))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[choice.chosen], candidates.state.physics)


def visited_by_all(world: World, acts: Sequence[Act], key: Key, count: int) -> StartStates:
    """States that some policies visit, equally many of each, clocks included."""
    each = -(-count // len(acts))
    simulator, keys = simulator_for(world), jax.random.split(key, len(acts))
    found = [simulator.visited_states(act, own, each) for act, own in zip(acts, keys, strict=True)]
    rows = np.linspace(0, each * len(acts) - 1, count).astype(int)  # of every policy, where there are too many
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[rows], *found)


def assessment_returns(
    assessment: Assessment, acts: Sequence[Act], key: Key, rollouts: int, contexts: Float[Array, "C P"] | None
) -> Float[np.ndarray, "samples n R"]:
    """Returns of each policy in each context from every start state of an assessment."""

    @jax.jit
    def returns(act: Act, key: Key) -> Array:
        rollout = assessment.take(act, key, rollouts, contexts=contexts)
        return rollout.rewards_to_go(assessment.discount)[0]

    keys = jax.random.split(key, len(acts))
    found = np.stack([np.asarray(returns(act, own)) for act, own in zip(acts, keys, strict=True)])
    return found.reshape(-1, assessment.scenarios, rollouts).astype(np.float64)


def values_at(
    world: World, acts: Sequence[Act], key: Key, queries: StartStates, contexts: Float[Array, "C P"] | None
) -> Float[np.ndarray, "samples q"]:
    """Mean deployment returns of each policy in each context from every query."""
    simulator, keys = simulator_for(world), jax.random.split(key, len(acts))
    starts = queries if contexts is None else _in_contexts(world, queries, contexts)
    found = [
        simulator.returns(act, starts, own, ROLLOUTS).discounted.mean(axis=1)
        for act, own in zip(acts, keys, strict=True)
    ]
    return np.stack(found).reshape(-1, queries.drawn)


def _in_contexts(world: World, states: StartStates, contexts: Float[Array, "C P"]) -> StartStates:
    """The same Q states in each of C contexts, [C·Q], context by context."""
    places, count = len(contexts), states.drawn
    physics = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * places), states.state.physics)
    elapsed = jnp.concatenate([jnp.asarray(states.elapsed)] * places)
    state, observation = jax.vmap(world.begin)(physics, jnp.repeat(contexts, count, axis=0))
    return StartStates(state.replace(elapsed=elapsed), observation, elapsed, physics)


def _told(choice: Choice, samples: int) -> str:
    """What was chosen, in one line."""
    before, after = choice.error[0], choice.error[-1]
    idle = np.sum(-np.diff(choice.error) <= TIE * before)
    nothing = f"; the last {idle} of them add nothing" if idle else ""
    return (
        f"chose {len(choice.chosen)} start states by {samples} samples of policies and contexts: "
        f"they explain {1 - after / before:.0%} of the variance of values{nothing}"
    )
