"""The policy to evaluate, as the functions that estimators need."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.agents.agent import Agent
from evarl.agents.distributions import Categorical
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import Key


class TargetPolicy(NamedTuple):
    """A policy as functions of a batch [B, ...] of observations."""

    log_prob: Callable[[Array, Array], Float[Array, " B"]]
    """Observations and logged actions → log-probabilities (densities) of these actions."""
    probabilities: Callable[[Array], Float[Array, "B A"]] | None
    """All action probabilities; None when actions are continuous."""
    sample: Callable[[Key, Array], Array]
    """A key and observations → one action for each."""
    mode: Callable[[Array], Array]
    """The most probable action for each observation."""


def on_host(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """The result of a policy's function of NumPy arrays, in float64; the function may be written in NumPy or in JAX."""
    try:
        found = function(*arrays)
    except (TypeError, AttributeError):  # such as x.at[i], which arrays of JAX have alone
        found = function(*map(jnp.asarray, arrays))
    return np.asarray(found, np.float64)


def of_agent(agent: Agent, policy: Any) -> TargetPolicy:
    """A trained policy as a target policy."""

    def probabilities(observation: Array) -> Float[Array, "B A"]:
        distribution = agent.distribution(policy, observation)
        assert isinstance(distribution, Categorical)
        return jax.nn.softmax(distribution.logits)

    return TargetPolicy(
        log_prob=jax.jit(lambda observation, action: agent.distribution(policy, observation).log_prob(action)),
        probabilities=jax.jit(probabilities) if isinstance(agent.action_space, Discrete) else None,
        sample=lambda key, observation: agent.distribution(policy, observation).sample(key),
        mode=lambda observation: agent.distribution(policy, observation).mode(),
    )
