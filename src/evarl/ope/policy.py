"""The policy to evaluate, as the functions that estimators need."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from evarl.agents.agent import Agent
from evarl.agents.distributions import Categorical
from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.shapes import applied
from evarl.storage.files import reason
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import Key

CHECKED = 256
"""Logged observations at which a policy is checked."""
ROWS = 16_384
"""Observations, repeated for every action, that it is checked at in one call."""
CLOSE = 1e-3
"""Greatest error of probabilities that is taken for rounding."""


class TargetPolicy(NamedTuple):
    """A policy as functions of a batch [B, ...] of observations.

    They may be written in JAX, NumPy or PyTorch. What JAX can trace is compiled where that helps; anything else is called on the
    host with arrays of NumPy, in blocks.
    """

    log_prob: Callable[[Any, Any], Float[Any, " B"]]
    """Observations and logged actions → log-probabilities (densities) of these actions."""
    probabilities: Callable[[Any], Float[Any, "B A"]] | None
    """All action probabilities; None when actions are continuous."""
    sample: Callable[[Key, Any], Any]
    """A key and observations → one action for each."""
    mode: Callable[[Any], Any]
    """The most probable action for each observation."""

    @classmethod
    def from_probabilities(cls, probabilities: Callable[[Any], Float[Any, "B A"]]) -> "TargetPolicy":
        """A policy of discrete actions from a function of observations [B, ...] to action probabilities [B, A].

        >>> policy = TargetPolicy.from_probabilities(lambda seen: np.full((len(seen), 2), 0.5))
        >>> np.exp(policy.log_prob(np.zeros((3, 1)), np.array([0, 1, 1]))).tolist()
        [0.5, 0.5, 0.5]
        """

        def log_prob(observation: Any, action: Any) -> Any:
            chance = probabilities(observation)
            if isinstance(chance, jax.Array):
                return jnp.log(jnp.take_along_axis(chance, jnp.asarray(action)[:, None], axis=1)[:, 0])
            with np.errstate(divide="ignore"):
                return np.log(np.take_along_axis(np.asarray(chance), np.asarray(action)[:, None], axis=1)[:, 0])

        def sample(key: Key, observation: Any) -> Any:
            return jax.random.categorical(key, jnp.log(jnp.asarray(probabilities(observation))))

        return cls(log_prob, probabilities, sample, lambda observation: probabilities(observation).argmax(axis=1))


def on_host(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """The result of a policy's function of NumPy arrays, in float64; the function may be written in NumPy or in JAX."""
    try:
        found = function(*arrays)
    except (TypeError, AttributeError):  # such as x.at[i], which arrays of JAX have alone
        found = function(*map(jnp.asarray, arrays))
    return np.asarray(found, np.float64)


def check_log_prob(policy: TargetPolicy, data: LoggedData) -> tuple[str, ...]:
    """Raise InputError if log-probabilities are none at some logged observations; what else there is to say of them.

    Of discrete actions they must sum to 1 over all actions, and agree with `policy.probabilities` where these are given.
    """
    seen, done = _sample(data)
    chance = None
    if data.discrete and policy.probabilities is not None:
        chance = on_host(policy.probabilities, seen)
        check_probabilities(chance, len(seen), data)
    found = on_host(policy.log_prob, seen, done)
    if found.shape != done.shape[:1]:
        raise InputError(f"policy.log_prob: has shape {found.shape} for {len(done)} actions; must be ({len(done)},)")
    if np.isnan(found).any() or np.isposinf(found).any():
        raise InputError("policy.log_prob: is NaN or infinite for some logged actions; must be logarithms")
    if not data.discrete:
        return ()
    if (found > CLOSE).any():
        raise InputError(f"policy.log_prob: {found.max():g} is above 0; must be logarithms of probabilities")
    actions = action_count(data)
    notes: tuple[str, ...] = ()
    if chance is not None:
        own = chance[np.arange(len(seen)), done]
        if (worst := np.abs(np.exp(found) - own).max()) > CLOSE:
            raise InputError(f"policy.log_prob: differs from policy.probabilities by up to {worst:.3g}; must agree")
        actions, logged = chance.shape[1], np.unique(np.asarray(data.action)[np.asarray(data.mask)])
        if (missing := 1.0 - chance[:, logged].sum(axis=1).mean()) > CLOSE:
            notes = (
                f"{missing:.1%} of the policy's actions are never taken in the log, whose estimates leave them out"
                f"{counted_from(data)}",
            )
    some = seen[: max(1, ROWS // actions)]
    every = on_host(
        policy.log_prob, np.repeat(some, actions, axis=0), np.tile(np.arange(actions, dtype=done.dtype), len(some))
    )
    sums = np.exp(every).reshape(len(some), actions).sum(axis=1)
    if (off := np.abs(sums - 1.0)).max() > CLOSE:
        raise InputError(
            f"policy.log_prob: probabilities of actions 0 to {actions - 1} sum to {sums[off.argmax()]:.4g}; must be 1, "
            "with `probabilities` given if there are other actions than those of the log"
        )
    return notes


def chances(policy: TargetPolicy, data: LoggedData, seen: Shaped[np.ndarray, "B ..."]) -> Float[np.ndarray, "B A"]:
    """Probabilities of all discrete actions, from log-probabilities of the log's actions if the policy has no others."""
    if policy.probabilities is not None:
        found = np.asarray(on_host(policy.probabilities, seen))
        check_probabilities(found, len(seen), data)
        return found
    actions, kind = action_count(data), np.asarray(data.action).dtype
    asked = np.repeat(seen, actions, axis=0), np.tile(np.arange(actions, dtype=kind), len(seen))
    return np.exp(on_host(policy.log_prob, *asked)).reshape(-1, actions)


def fingerprint(policy: TargetPolicy, data: LoggedData) -> tuple[bytes | None, ...]:
    """What a policy's functions return at a sample of the log, to the last bit; None for those that cannot be called.

    A policy is often a function of what changes, such as the parameters of an agent that is trained further.
    """
    seen, done = _sample(data)
    some = policy.mode if policy.probabilities is None else policy.probabilities
    asked = (policy.log_prob, (seen, done)), (some, (seen,))
    return tuple(_bits(function, arrays) for function, arrays in asked)


def _bits(function: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> bytes | None:
    try:
        return applied(lambda *blocks: on_host(function, *blocks), *arrays).tobytes()
    except Exception:  # whatever the user's function raises, which is said where it is needed
        return None


def action_count(data: LoggedData) -> int:
    """One more than the greatest discrete action of a log."""
    return 1 + int(np.asarray(data.action)[np.asarray(data.mask)].max())


def counted_from(data: LoggedData) -> str:
    """What to do if the log's actions count from another number than 0; nothing if there is an action 0."""
    least = int(np.asarray(data.action)[np.asarray(data.mask)].min())
    return f"; if its actions count from {least}, set first-action to {least}" if least else ""


def check_probabilities(chance: Float[np.ndarray, "..."], count: int, data: LoggedData) -> None:
    """Raise InputError unless these are probabilities at `count` observations of all actions of a log."""
    actions = action_count(data)
    if chance.ndim != 2 or len(chance) != count or chance.shape[1] < actions:
        raise InputError(
            f"policy.probabilities: have shape {chance.shape}; must be ({count}, A), with A at least {actions}, since the "
            f"log has action {actions - 1}{counted_from(data)}"
        )
    if not ((chance >= 0).all() and np.allclose(chance.sum(axis=1), 1.0, atol=CLOSE)):
        raise InputError("policy.probabilities: are below 0 or do not sum to 1; must be probabilities, not logarithms")


def check_fitted(policy: TargetPolicy, data: LoggedData) -> None:
    """Raise InputError if what fitted Q evaluation uses of a policy raises an exception at logged observations."""
    seen = _sample(data)[0]
    uses: dict[str, Callable[[Any], Any] | None] = {"probabilities": policy.probabilities}
    if not data.discrete:
        uses = {"sample": lambda seen: policy.sample(jax.random.PRNGKey(0), seen), "mode": policy.mode}
    for name, function in uses.items():
        try:
            if function is not None:
                on_host(function, seen)
        except Exception as error:  # whatever the user's function raises
            raise InputError(
                f"policy.{name}: raises {type(error).__name__} at logged observations of shape {seen.shape} "
                f"({reason(error)}); must be a function of a batch of them"
            ) from error


def _sample(data: LoggedData) -> tuple[Shaped[np.ndarray, "B ..."], Shaped[np.ndarray, "B ..."]]:
    """Some logged observations and actions, evenly spaced, and among them the greatest of discrete actions."""
    trajectory, step = np.nonzero(np.asarray(data.mask))
    chosen = np.unique(np.linspace(0, len(step) - 1, CHECKED).astype(int))
    if data.discrete:
        chosen = np.append(chosen, np.asarray(data.action)[trajectory, step].argmax())
    place = trajectory[chosen], step[chosen]
    return np.asarray(data.observation)[place], np.asarray(data.action)[place]


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
