"""Policies that act in worlds on the host: one compiled program for each step, called with plain arrays."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Shaped, UInt32

from evarl.agents.distributions import world_action
from evarl.agents.perturbation import Acted
from evarl.errors import InputError
from evarl.simulation.rollouts import Act, Mapping, Noise, PerturbedAct, as_data, unchanged
from evarl.worlds.spaces import Discrete, Space
from evarl.worlds.world import Key

KEYS_AT_ONCE = 64
"""Keys of steps that one call makes where the number of steps is not known beforehand."""


class HostActions(NamedTuple):
    """What a policy did in N environments."""

    action: np.ndarray
    """[N, ...] in the policy's units."""
    log_prob: Float[np.ndarray, " N"]
    taken: np.ndarray
    """[N, ...] in the world's units."""


class HostPolicy:
    """A policy as a compiled program and the arrays that it is called with.

    Policies of one agent share the program. Its arguments are the bare leaves of the policy: to take a pytree of Python classes
    apart at every step would take longer than the network.
    """

    def __init__(self, act: Act, world: str, space: Space, map_action: Callable[[Array], Array] = unchanged):
        self._leaves, structure = jax.tree.flatten(as_data(act))
        self._program = _program(structure, space, map_action)
        self._world, self._space = world, space
        self._count = space.n if isinstance(space, Discrete) else 0

    def __call__(self, noise: Any, observation: np.ndarray) -> HostActions:
        """Act at observations [N, ...]; `noise` is what the policy draws its actions with, a key or numbers."""
        found = self._program(self._leaves, noise, observation)
        if isinstance(found, tuple):
            acted = HostActions(*map(np.asarray, found))
        else:
            action, bits = np.asarray(found)
            acted = HostActions(action, bits.view(np.float32), action)
        if (
            self._count and np.count_nonzero(acted.action.astype(np.uint32) < self._count) < acted.action.size
        ):  # the environment might take any number
            check_actions(self._world, self._space, acted.action)
        return acted


@functools.lru_cache(maxsize=64)
def _program(
    structure: Any, space: Space, map_action: Callable[[Array], Array]
) -> Callable[..., tuple[Array, ...] | Int32[Array, "2 N"]]:
    """Compiled: from the leaves of a policy, noise and observations to actions, log-probabilities and actions in the world.

    Discrete actions that the world takes as they are come with the bits of their log-probabilities in one array: to fetch each
    on its own would take as long as a layer of a small network.
    """
    alike = isinstance(space, Discrete) and map_action is unchanged

    def act(leaves: list[Array], noise: Any, observation: Array) -> tuple[Array, ...] | Int32[Array, "2 N"]:
        action, log_prob = jax.tree.unflatten(structure, leaves)(noise, observation)[:2]
        if alike:
            bits = jax.lax.bitcast_convert_type(log_prob.astype(jnp.float32), jnp.int32)
            return jnp.stack([action.astype(jnp.int32), bits])
        return action, log_prob, jax.vmap(map_action)(world_action(space, action))

    return jax.jit(act)


@functools.partial(jax.jit, static_argnames=("noise", "steps"))
def drawn(noise: Noise, key: Key, steps: int) -> Any:
    """The noise of every step of a batch, drawn by one program; the numbers are those of drawing it step by step."""
    return jax.vmap(noise)(jax.random.split(key, steps))


@jax.jit
def following_keys(key: Key) -> tuple[Key, UInt32[Array, "64 2"]]:
    """The keys of the next steps, where each step splits the key of the one before, and the key to go on from."""

    def one(key: Array, _: None) -> tuple[Array, Array]:
        key, own = jax.random.split(key)
        return key, own

    return jax.lax.scan(one, key, None, KEYS_AT_ONCE)


@functools.partial(jax.jit, static_argnames=("space", "map_action"))
def act_each(
    acts: PerturbedAct,
    space: Space,
    map_action: Callable[[Array], Array],
    keys: UInt32[Array | np.ndarray, "P 2"],
    observation: Shaped[Array | np.ndarray, "P M ..."],
    last: Acted | None,
    first: Bool[Array | np.ndarray, ""] | None,
) -> tuple[Acted, Shaped[Array, "PM ..."]]:
    """Actions [P, M, ...] of P perturbed policies in M environments each, and those taken in the world's units, in a row."""
    one = lambda act, key, observation, last: act(key, observation, last, first)  # noqa: E731
    acted = jax.vmap(one)(acts, keys, observation, last)
    taken = acted.taken.reshape(-1, *acted.taken.shape[2:])
    return acted, jax.vmap(map_action)(world_action(space, taken))


@functools.partial(jax.jit, static_argnames="steps")
def step_keys(keys: UInt32[Array, "P 2"], steps: int) -> UInt32[Array, "steps P 2"]:
    """A key for each step of each policy."""
    return jax.vmap(lambda key: jax.random.split(key, steps), out_axes=1)(keys)


def mapped(mapping: Mapping, observation: np.ndarray) -> np.ndarray:
    """Observations [N, ...] of the assessment's world as those of the policy's."""
    if mapping.observation is unchanged:
        return observation
    return np.asarray(jax.vmap(mapping.observation)(jnp.asarray(observation)))


class ActionError(InputError):
    """A policy took an action that its world does not have."""

    def __init__(self, told: str, who: str = "the policy"):
        super().__init__(f"{who} {told}")
        self.told = told


def check_actions(world: str, space: Space, actions: np.ndarray) -> None:
    """Refuse actions [M, ...] in the policy's units that a world does not have; coordinates with two bounds are clipped."""
    if isinstance(space, Discrete):
        wrong, expected = (actions < 0) | (actions >= space.n), f"a whole number from 0 to {space.n - 1}"
    else:
        low, high = (bound.reshape(1, -1) for bound in space.bounds())
        clipped = np.isfinite(low) & np.isfinite(high)
        inside = np.isfinite(actions) & (clipped | ((actions >= low) & (actions <= high)))
        wrong, expected = ~inside.all(axis=1), f"finite numbers that {space} has room for"
    if wrong.any():
        raise ActionError(f"takes the action {actions[wrong][0]} in {world}; must be {expected}")
