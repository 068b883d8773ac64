"""Target policies from policies of other packages and from functions, for logs in the units of their world."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.policy import TargetPolicy, action_count
from evarl.policies.acting import policy_units
from evarl.policies.outside import OutsidePolicy, required_parameters
from evarl.policies.wrap import wrap_policy
from evarl.settings import conforming
from evarl.worlds.spaces import Box, Discrete, Space
from evarl.worlds.world import Key

LOG_2PI = float(np.log(2 * np.pi))


def target_policy(policy: Any, data: LoggedData) -> TargetPolicy:
    """A target policy for a log, from whatever can be one.

    That is a TargetPolicy; an outside policy, or what `evarl.wrap_policy` recognises as one; or a function of NumPy or JAX: of
    observations [B, ...], which returns probabilities [B, A], or of observations and actions, which returns log-probabilities
    [B]. From log-probabilities of continuous actions nothing can be drawn, so that fitted Q evaluation is not possible.
    Continuous actions are in the units of the log.
    """
    conforming("data", data, LoggedData)
    if isinstance(policy, TargetPolicy):
        return policy
    if hasattr(policy, "target_policy"):
        raise InputError(
            "policy: is a run; must be one of its policies, run.target_policy(), or run.target_policy(seed)"
        )
    if isinstance(policy, OutsidePolicy) or hasattr(policy, "predict") or not _is_function(policy):
        return of_outside(wrap_policy(policy), data)
    needed = required_parameters(policy)
    if needed == 1:
        if not data.discrete:
            raise InputError("policy: is a function of observations; must be one of observations and actions here")
        return TargetPolicy.from_probabilities(policy)
    if needed != 2:
        raise InputError(f"policy: is a function of {needed} arguments; must be one of observations, or of actions too")
    return from_log_prob(policy, action_count(data) if data.discrete else None)


def uniform_policy(data: LoggedData, actions: int | None = None) -> TargetPolicy:
    """The policy that takes each of so many discrete actions equally often; as many as the log shows unless given."""
    if not data.discrete:
        raise InputError(
            "policy: uniform is for discrete actions, and the log has continuous ones; give a policy of your own"
        )
    least = action_count(data)
    count = least if actions is None else actions
    if count < least:
        raise InputError(
            f"actions: {count} is not allowed; must be at least {least}, since the log has action {least - 1}"
        )
    return TargetPolicy.from_probabilities(lambda observation: np.full((len(observation), count), 1.0 / count))


def from_log_prob(log_prob: Callable[[Any, Any], Any], actions: int | None = None) -> TargetPolicy:
    """A target policy from log-probabilities alone; with so many discrete `actions`, their probabilities follow."""
    if actions is None:
        return TargetPolicy(log_prob, None, _no_actions, _no_actions)

    def probabilities(observation: Any) -> Float[np.ndarray, "B A"]:
        seen = np.asarray(observation)
        done = np.tile(np.arange(actions, dtype=np.int32), len(seen))
        return np.exp(np.asarray(log_prob(np.repeat(seen, actions, axis=0), done), np.float64)).reshape(-1, actions)

    return TargetPolicy.from_probabilities(probabilities)._replace(log_prob=log_prob)


def of_outside(policy: OutsidePolicy, data: LoggedData) -> TargetPolicy:
    """A policy of another package as a target policy for a log, whose actions are in the world's units."""
    space = policy.action_space or _space(data)
    if isinstance(space, Box) == data.discrete:
        kind = "discrete" if data.discrete else "continuous"
        raise InputError(f"policy: {policy.description} has actions {space}; those of the log are {kind}")
    if isinstance(space, Discrete):
        return TargetPolicy.from_probabilities(lambda observation: _chances(policy, space, observation))
    return _continuous(policy, space)


def possible_methods(policy: TargetPolicy) -> tuple[str, ...] | None:
    """Names of the usual methods that such a policy allows; None for all of them."""
    if policy.log_prob is _no_density:
        return ("fqe", "fqe-greedy-huber")
    return ("tis", "pdis", "wis", "wpdis") if policy.sample is _no_actions else None


def _chances(policy: OutsidePolicy, space: Discrete, observation: Any) -> Float[np.ndarray, "B A"]:
    """Probabilities of discrete actions."""
    (found,) = policy(np.asarray(observation), space)
    if policy.deterministic:
        return np.eye(space.n)[found.astype(int)]
    if policy.gives == "probabilities":
        return found
    weights = np.exp(found - found.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _continuous(policy: OutsidePolicy, space: Box) -> TargetPolicy:
    """A policy of continuous actions: Gaussian, Gaussian before tanh, which takes them to the bounds, or deterministic."""
    if policy.deterministic:
        taken = lambda observation: np.asarray(policy(np.asarray(observation), space)[0], np.float32)  # noqa: E731
        return TargetPolicy(_no_density, None, lambda key, observation: taken(observation), taken)
    squashed = policy.gives == "squashed"
    low, high = (bound.reshape(-1).astype(np.float64) for bound in space.bounds())
    if squashed and not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError(f"policy: {policy.description} needs bounds of actions, and {space} has none")
    reach = (high - low) / 2

    def log_prob(observation: Any, action: Any) -> Float[np.ndarray, " B"]:
        mean, deviation = policy(np.asarray(observation), space)
        at, more = np.asarray(action, np.float64).reshape(len(mean), -1), 0.0
        if squashed:
            (inside,) = policy_units(space, at)
            inside = np.clip(inside, -1 + 1e-6, 1 - 1e-6)  # as Stable-Baselines3 does
            at, more = np.arctanh(inside), np.log1p(-(inside**2)) + np.log(reach)
        density = -0.5 * ((at - mean) * np.exp(-deviation)) ** 2 - deviation - 0.5 * LOG_2PI
        return (density - more).sum(axis=1)

    def placed(free: Any) -> Any:
        if squashed:
            return np.asarray(low + reach * (1 + np.tanh(free)), np.float32)
        return np.clip(free, low, high).astype(np.float32)

    def sample(key: Key, observation: Any) -> Any:
        mean, deviation = policy(np.asarray(observation), space)
        return placed(mean + np.exp(deviation) * np.asarray(jax.random.normal(key, mean.shape), np.float64))

    return TargetPolicy(log_prob, None, sample, lambda observation: placed(policy(np.asarray(observation), space)[0]))


def in_world_units(policy: TargetPolicy, space: Space) -> TargetPolicy:
    """A policy of a run for logs whose actions are in the world's units: bounds of policies' own are −1 and 1."""
    if not isinstance(space, Box):
        return policy
    low, high = (bound.reshape(-1) for bound in space.bounds())
    bounded = np.isfinite(low) & np.isfinite(high)
    centre = jnp.asarray(np.where(bounded, (high + low) / 2, 0.0), jnp.float32)
    reach = jnp.asarray(np.where(bounded, (high - low) / 2, 1.0), jnp.float32)
    limit = jnp.asarray(np.where(bounded, 1.0, np.inf), jnp.float32)

    def log_prob(observation: Any, action: Any) -> Any:
        flat = jnp.asarray(action, jnp.float32).reshape(len(action), -1)
        return policy.log_prob(observation, (flat - centre[None]) / reach[None]) - jnp.log(reach).sum()

    def placed(action: Any) -> Any:
        return centre[None] + reach[None] * jnp.clip(action, -limit[None], limit[None])

    return TargetPolicy(
        log_prob,
        None,
        lambda key, observation: placed(policy.sample(key, observation)),
        lambda observation: placed(policy.mode(observation)),
    )


def _no_actions(*given: Any) -> Any:
    raise InputError(
        "policy: log-probabilities alone were given, and fitted Q evaluation draws actions; use tis, pdis, wis or wpdis"
    )


def _no_density(*given: Any) -> Any:
    raise InputError(
        "policy: is deterministic and its actions are continuous, so that they have no density for importance sampling; use fqe"
    )


def _is_function(policy: Any) -> bool:
    packages = {one.__module__.partition(".")[0] for one in type(policy).__mro__}
    return callable(policy) and "torch" not in packages


def _space(data: LoggedData) -> Space:
    """Discrete or unbounded actions, as many as a log shows."""
    return Discrete(action_count(data)) if data.discrete else Box((int(np.prod(data.action.shape[2:])),))
