"""Final policies in the environment's own spaces: NumPy in, NumPy out, compiled once for each power of two of observations."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from evarl.agents.agent import Agent
from evarl.agents.distributions import world_action
from evarl.errors import InputError
from evarl.worlds.spaces import OwnSpaces
from evarl.worlds.world import AnyWorld, Key

MOST = 8192
"""Observations in one call of a compiled program; more are given to it one part after the other."""

Source = tuple[Any, np.int32]
"""Of random numbers: a key, and the number of the call that draws from it."""


class Acting:
    """An agent's policies in the own spaces of a world."""

    def __init__(self, agent: Agent, world: AnyWorld):
        self.agent, self.world = agent, world
        self.own = world.own_spaces or OwnSpaces.of(world.observation_space, world.action_space)
        self._likeliest, self._drawn = jax.jit(self.likeliest), jax.jit(self.drawn)

    def likeliest(self, policy: Any, observation: Array) -> Array:
        """The mode of the policy for a batch of observations [N, ...] in the environment's own space; to be traced."""
        return self._taken(self.agent.distribution(policy, self._seen(observation)).mode())

    def drawn(self, policy: Any, observation: Array, key: Key, call: Int[Array, ""], first: Int[Array, ""]) -> Array:
        """Draws from the policy; each row of each call has its own key, by its number from `first` on. To be traced."""
        key = jax.random.fold_in(key, call)
        rows = first + jnp.arange(observation.shape[0], dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
        act = lambda key, one: self.agent.act(policy, key, one)[0]  # noqa: E731
        return self._taken(jax.vmap(act)(keys, self._seen(observation)))

    def __call__(self, policy: Any, observation: Any, source: Source | None = None) -> np.ndarray:
        """Actions for one observation, or for each of a batch: the likeliest, or drawn."""
        rows, alone = self._checked(observation)
        parts = [self._part(policy, rows[i : i + MOST], source, i) for i in range(0, max(1, len(rows)), MOST)]
        actions = parts[0] if len(parts) == 1 else np.concatenate(parts)
        actions = actions.astype(self.own.action_dtype, copy=False)
        return actions[0] if alone else actions

    def _part(self, policy: Any, rows: np.ndarray, source: Source | None, first: int) -> np.ndarray:
        """Actions for at most MOST observations, padded to the next power of two so that other sizes compile nothing new."""
        count = len(rows)
        size = 1 << max(0, count - 1).bit_length()
        if size > count:
            rows = np.concatenate([rows, np.zeros((size - count, *rows.shape[1:]), rows.dtype)])
        if source is None:
            return np.asarray(self._likeliest(policy, rows))[:count]
        return np.asarray(self._drawn(policy, rows, *source, np.int32(first)))[:count]

    @functools.cached_property
    def input_dtype(self) -> np.dtype:
        """Dtype in which compiled programs are given observations."""
        return np.dtype("int32" if self.own.first_observation is not None else self.world.observation_space.dtype)

    def _seen(self, observation: Array) -> Array:
        """What the policy is given for observations in the environment's own space."""
        space = self.world.observation_space
        if self.own.first_observation is None:
            return observation
        numbers = jnp.arange(space.shape[0], dtype=jnp.int32) + self.own.first_observation
        return (observation[:, None] == numbers[None]).astype(space.dtype)

    def _taken(self, action: Array) -> Array:
        """What the environment takes for actions of the policy, in 32 bits."""
        if self.own.first_action is not None:
            return (action + self.own.first_action).astype(jnp.int32)
        assert self.own.low is not None
        assert self.own.high is not None
        scaled = world_action(self.world.action_space, action)
        low, high = _inside(self.own.low, self.own.high)
        lead = (1,) * (scaled.ndim - low.ndim)
        bounded = jnp.clip(
            scaled, jnp.asarray(low.reshape(*lead, *low.shape)), jnp.asarray(high.reshape(*lead, *high.shape))
        )
        return bounded if np.issubdtype(self.own.action_dtype, np.floating) else bounded.astype(jnp.int32)

    def _checked(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations as a batch [N, ...], and whether there was one without this axis; InputError if they are no such."""
        shape = self.own.observation_shape
        try:
            given = np.asarray(observation)
        except ValueError:
            raise InputError(f"observation: {observation!r:.60} is not allowed; must be {self._wanted()}") from None
        alone = given.shape == shape
        if not alone and (given.ndim != len(shape) + 1 or given.shape[1:] != shape):
            raise InputError(
                f"observation: an array of shape {list(given.shape)} is not allowed; must be {self._wanted()}"
            )
        return self._as_input(given[None] if alone else given), alone

    def _as_input(self, rows: np.ndarray) -> np.ndarray:
        """A batch in the dtype of compiled programs, if that changes nothing but the precision of floats."""
        wanted, kind = self.input_dtype, rows.dtype.kind
        if kind not in {"f": "fiub", "i": "iu", "u": "iu", "b": "b"}[wanted.kind]:
            raise InputError(f"observation: the dtype {rows.dtype} is not allowed; must be {self._wanted()}")
        if wanted.kind == "f":
            with np.errstate(over="ignore"):
                converted = rows.astype(wanted, copy=False)
            if not np.isfinite(converted).all():
                where = np.argwhere(~np.isfinite(converted))[0].tolist()
                raise InputError(
                    f"observation: holds {rows[tuple(where)]} at {where[-1]} of row {where[0]}; must be finite numbers in 32 bits"
                )
            return converted
        low, high = self._whole_range()
        if rows.size and not (rows.min() >= low and rows.max() <= high):
            odd = rows.min() if rows.min() < low else rows.max()
            raise InputError(f"observation: holds {odd}; must be whole numbers from {low} to {high}")
        return rows.astype(wanted, copy=False)

    def _whole_range(self) -> tuple[int, int]:
        """The least and the greatest entry of observations that are whole numbers."""
        first = self.own.first_observation
        if first is not None:
            return first, first + self.world.observation_space.shape[0] - 1
        return (0, 1) if self.input_dtype.kind == "b" else (0, int(np.iinfo(self.input_dtype).max))

    def _wanted(self) -> str:
        """The allowed observations in words."""
        if self.own.first_observation is not None:
            low, high = self._whole_range()
            return f"a whole number from {low} to {high}, or [N] of them"
        shape = list(self.own.observation_shape)
        batch = ", ".join(map(str, ["N", *shape]))
        return f"{self.input_dtype}{shape}, or [{batch}] for a batch"


def _inside(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest numbers in 32 bits between bounds that may have 64."""
    with np.errstate(over="ignore"):
        least, most = low.astype(np.float32), high.astype(np.float32)
    least = np.where(least.astype(np.float64) < low, np.nextafter(least, np.float32(np.inf)), least)
    most = np.where(most.astype(np.float64) > high, np.nextafter(most, np.float32(-np.inf)), most)
    return least, most
