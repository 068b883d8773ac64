"""Values of a policy on the sites of a family of worlds: V_c, its mean return over the start states of one context.

By dynamic programming where the world is finite and says which table a context is (`at`), else by Monte Carlo.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from evarl.agents.distributions import Categorical, Policy
from evarl.errors import InputError
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.truth.exact import policy_values
from evarl.truth.monte_carlo import Truth
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import AnyWorld, Key

Contexts = Float[np.ndarray, "C P"]


def is_finite(world: AnyWorld) -> bool:
    """Whether the values of a site are exact: the world has states 0, 1, …, and a table for every context."""
    return callable(getattr(world, "at", None)) and bool(getattr(world, "state_count", None))


def action_probabilities(world: Any, policy: Policy) -> Float[np.ndarray, "S A"]:
    """Probabilities of the actions in every state of a finite world."""
    if not isinstance(world.action_space, Discrete):
        raise InputError(f"{world.name}: has actions {world.action_space}; must be discrete")
    shown = jax.vmap(world.observation)(jnp.arange(world.state_count, dtype=jnp.int32))
    chosen = policy(shown)
    assert isinstance(chosen, Categorical)
    table = np.asarray(jax.nn.softmax(chosen.logits), np.float64)
    return table / table.sum(axis=1, keepdims=True)


def exact_values(world: Any, policy: Float[np.ndarray, "S A"], contexts: Contexts) -> Truth:
    """V_c = Σ_s μ_c(s) V_c(s) of a policy in each context; the standard errors are 0."""
    known: dict[bytes, tuple[float, float]] = {}
    for context in contexts:
        if context.tobytes() not in known:
            table = world.at(context)
            both = (table, dataclasses.replace(table, discount=1.0))
            mean, total = (float(one.start @ policy_values(one, policy, world.horizon)) for one in both)
            known[context.tobytes()] = mean, total
    values, totals = np.asarray([known[context.tobytes()] for context in contexts]).T
    return Truth(values, np.zeros_like(values), totals, rollouts=0)


def start_weights(world: Any, contexts: Contexts) -> tuple[Shaped[Array, "S *observation"], Float[np.ndarray, "C S"]]:
    """Observations at all start states of a finite world, and their probability in each context."""
    weights = np.stack([world.at(context).start for context in contexts])
    states = np.flatnonzero(weights.any(axis=0))
    return jax.vmap(world.observation)(jnp.asarray(states, jnp.int32)), weights[:, states]


def site_starts(world: AnyWorld, key: Key, contexts: Contexts, each: int) -> StartStates:
    """`each` start states on each of C sites, site by site."""
    return simulator_for(world).start_states(key, len(contexts) * each, jnp.asarray(np.repeat(contexts, each, axis=0)))


def measured_values(world: AnyWorld, act: Act, starts: StartStates, key: Key, sites: int) -> Truth:
    """V_c by Monte Carlo: the mean of one episode from each start state of a site, with its standard error."""
    discounted, undiscounted = (x.reshape(sites, -1) for x in simulator_for(world).returns(act, starts, key, 1))
    rollouts = discounted.shape[1]
    error = discounted.std(axis=1, ddof=1) / rollouts**0.5
    return Truth(discounted.mean(axis=1), error, undiscounted.mean(axis=1), rollouts)
