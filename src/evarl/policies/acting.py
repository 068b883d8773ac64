"""Outside policies in a world: JAX calls them on the host, and draws their actions from its own keys."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.agents.distributions import Categorical, DiagonalGaussian, Distribution, action_size
from evarl.errors import EvarlError, InputError
from evarl.policies.outside import OutsidePolicy
from evarl.storage.files import reason
from evarl.worlds.spaces import Box, Discrete, Space
from evarl.worlds.world import AnyWorld, Key

NEVER = -1e4
"""Logit of actions that a deterministic policy does not take: their probability is 0 in 32 bits."""


@dataclass(frozen=True, eq=False)
class ActingOutside:
    """An outside policy that acts in a world, with the methods that a policy of this package has.

    Its function is called on the host, once for each batch of observations, from inside compiled programs too. Actions are drawn
    by JAX, so that rollouts are functions of their keys whatever the policy is made of.
    """

    policy: OutsidePolicy
    observation_space: Box
    action_space: Space
    _raised: list[EvarlError] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def create(cls, policy: OutsidePolicy, world: AnyWorld) -> "ActingOutside":
        """The policy in a world, once it was tried there on some observations; InputError if it does not fit."""
        policy.check_spaces(world.name, world.observation_space, world.action_space)
        found = cls(policy, world.observation_space, world.action_space)
        low, high = world.observation_space.bounds()
        inside = np.clip(np.zeros(low.shape), low, high).astype(world.observation_space.dtype)
        found._outputs(np.stack([inside] * 2))
        return found

    def act(self, key: Key, observation: Array) -> tuple[Array, Float[Array, "*batch"]]:
        """Actions in the policy's units, and their log-probabilities; 0 for continuous actions without a density."""
        if self.policy.gives == "squashed":
            before = DiagonalGaussian(*self._called(observation))
            free = before.sample(key)
            correction = 2.0 * (jnp.log(2.0) - free - jax.nn.softplus(-2.0 * free))  # log(1 − tanh²)
            return jnp.tanh(free), before.log_prob(free) - correction.sum(axis=-1)
        if self.policy.deterministic:
            (action,) = self._called(observation)
            if isinstance(self.action_space, Discrete):
                action = action.astype(jnp.int32)
            return action, jnp.zeros(observation.shape[: observation.ndim - len(self.observation_space.shape)])
        distribution = self.distribution(observation)
        action = distribution.sample(key)
        return action, distribution.log_prob(action)

    def distribution(self, observation: Array) -> Distribution:
        """π(· | observations); InputError for deterministic policies of continuous actions, and after tanh."""
        outputs = self._called(observation)
        if isinstance(self.action_space, Discrete):
            if self.policy.deterministic:
                chosen = jax.nn.one_hot(outputs[0].astype(jnp.int32), self.action_space.n, dtype=bool)
                return Categorical(jnp.where(chosen, 0.0, NEVER))
            return Categorical(outputs[0])
        if self.policy.gives == "gaussian":
            return DiagonalGaussian(*outputs)
        raise InputError(
            f"behaviour: this kind requires a density of actions, which {self.policy.description} does not have"
        )

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """What the policy raised on the host, in place of the exception that JAX makes of it."""
        self._raised.clear()
        try:
            yield
        except EvarlError:
            raise
        except Exception as error:
            if self._raised:
                raise self._raised[0] from error
            raise

    def _called(self, observation: Array) -> tuple[Array, ...]:
        """Logits [*batch, A], numbers in the policy's units [*batch, D], or discrete actions [*batch]; traced or not."""
        batch = observation.shape[: observation.ndim - len(self.observation_space.shape)]
        scalar = self.policy.deterministic and isinstance(self.action_space, Discrete)
        shape = batch if scalar else (*batch, action_size(self.action_space))
        one = jax.ShapeDtypeStruct(shape, jnp.float32)
        shapes = (one, one) if self.policy.gives in ("gaussian", "squashed") else (one,)
        found: tuple[Array, ...] = jax.pure_callback(self._outputs, shapes, observation, vmap_method="broadcast_all")
        return found

    def _outputs(self, observation: Any) -> tuple[np.ndarray, ...]:
        """What the policy gives, in 32 bits and in the units of policies; whatever it raises is an InputError."""
        seen = np.asarray(observation)
        own = self.observation_space.shape
        batch = seen.shape[: seen.ndim - len(own)]
        try:
            outputs = self.policy(seen.reshape(-1, *own), self.action_space)
        except Exception as error:  # whatever the user's function raises
            if not isinstance(error, EvarlError):
                told = f"raises {type(error).__name__} at observations {seen.dtype}{list(seen.shape)} ({reason(error)})"
                wanted = f"must take a batch of observations, and return {self.policy.gives} for each"
                error = InputError(f"{self.policy.description}: {told}; {wanted}")
            self._raised.append(error)
            raise error
        if self.policy.gives == "probabilities":
            with np.errstate(divide="ignore"):
                outputs = (np.maximum(np.log(outputs[0]), NEVER),)
        elif self.policy.gives == "logits":
            outputs = (np.maximum(outputs[0], NEVER),)
        elif isinstance(self.action_space, Box) and self.policy.gives != "squashed":
            outputs = policy_units(self.action_space, *outputs)
        return tuple(one.astype(np.float32).reshape(*batch, *one.shape[1:]) for one in outputs)


def policy_units(space: Box, action: np.ndarray, log_deviation: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Actions [B, D], and log-deviations, in units in which bounds are −1 and 1; where there are none, they are the world's.

    >>> policy_units(Box((1,), 0.0, 4.0), np.array([[3.0]]), np.array([[0.0]]))
    (array([[0.5]]), array([[-0.69314718]]))
    """
    low, high = (bound.reshape(1, -1).astype(np.float64) for bound in space.bounds())
    bounded = np.isfinite(low) & np.isfinite(high)
    centre, reach = np.where(bounded, (high + low) / 2, 0.0), np.where(bounded, (high - low) / 2, 1.0)
    scaled = (action - centre) / reach
    return (scaled,) if log_deviation is None else (scaled, log_deviation - np.log(reach))
