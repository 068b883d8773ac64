"""Gymnasium's environments as EnvPool steps them: in C++, in threads of this process.

EnvPool seeds its environments once, when they are made, and has dynamics of its own, equal to Gymnasium's up to rounding at best.
So episodes cannot begin at given start states, and training that is resumed is not the same as training in one piece.
"""

import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from evarl.errors import InputError
from evarl.worlds.gymnasium import GymnasiumWorld
from evarl.worlds.gymnasium_sources import blamed
from evarl.worlds.gymnasium_spaces import both_spaces, check_finite, shown_as
from evarl.worlds.spaces import Discrete, Space
from evarl.worlds.world import AnyWorld, HostEnvironments, HostStep, HostWorld

SEEDS = 2**31 - 1
"""Seeds of EnvPool are from 0 to one less."""


class PoolEnvironments(HostEnvironments):
    """Environments of one pool; their seeds are derived from the seed of the first reset, and later ones are not used."""

    def __init__(self, world: HostWorld, count: int) -> None:
        self._world, self._count = check_pool(world), count
        self._pool: Any = None
        self._space: Any = None

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode, at a start state that EnvPool draws."""
        with blamed(self._world.name, f"environment {index} of EnvPool, while it was reset"):
            if self._pool is None:
                self._pool = self._made(seed)
            observation, _ = self._pool.reset(np.array([index], np.int32))
            return self._shown(observation)[0]

    def step(self, action: np.ndarray) -> HostStep:
        """Move every environment by one step. EnvPool would reset ended episodes in the next step; they are reset before."""
        with blamed(self._world.name, "a step of EnvPool"):
            first = int(getattr(self._pool.action_space, "start", 0))
            observation, reward, terminated, truncated, _ = self._pool.step(
                np.asarray(action) + np.asarray(first, action.dtype)
            )
            paid, shown = np.array(reward, np.float32), self._shown(observation)
            if not np.isfinite(paid).all():
                raise ValueError("a reward is not finite; must be finite numbers in 32 bits")
            return HostStep(shown, paid, np.array(terminated, bool), np.array(truncated, bool))

    def close(self) -> None:
        """Let the pool go, which ends its threads."""
        self._pool = None

    def _made(self, seed: int) -> Any:
        """A pool with a seed of its own for each environment."""
        name, pools = self._world.identifier, _envpool()
        seeds = (np.random.SeedSequence(seed).generate_state(self._count) % SEEDS).tolist()
        with warnings.catch_warnings():  # about bounds of spaces in 32 bits
            warnings.simplefilter("ignore")
            pool = pools.make_gymnasium(name, num_envs=self._count, seed=seeds, max_episode_steps=self._world.horizon)
            found, own = both_spaces(self._world.name, pool), (self._world.observation_space, self._world.action_space)
        if list(map(_size, found)) != list(map(_size, own)):
            raise InputError(
                f"vectorise: {self._world.name} has the spaces {own[0]} and {own[1]}, in EnvPool {found[0]} and {found[1]}; must "
                "be sync or processes"
            )
        self._space = pool.observation_space
        return pool

    def _shown(self, observation: np.ndarray) -> np.ndarray:
        """Observations [N, ...] in evarl's form."""
        if isinstance(self._space, spaces.Discrete):
            return np.stack([shown_as(self._space, one) for one in observation])
        with np.errstate(over="ignore"):
            shown = np.array(observation, self._world.observation_space.dtype)
        check_finite(shown)
        return shown


def _size(space: Space) -> tuple[int, ...]:
    """The number of actions, or the shape of rows."""
    return (space.n,) if isinstance(space, Discrete) else space.shape


def check_pool(world: AnyWorld, rollouts_per_start: int = 1) -> GymnasiumWorld:
    """The world, if EnvPool has it as it is and no start states are needed."""
    if not isinstance(world, GymnasiumWorld) or world.source.function is not None or world.source.fixed:
        raise InputError(
            f"vectorise: envpool is not allowed for {world.name}; must be an id of Gymnasium without arguments, or sync or "
            "processes"
        )
    if world.contexts:
        raise InputError(
            f"vectorise: envpool is not allowed in a family of worlds, since {world.name} cannot vary there"
        )
    if rollouts_per_start > 1:
        raise InputError(
            f"vectorise: envpool is not allowed with {rollouts_per_start} rollouts from each start state, since EnvPool draws "
            "start states itself; must be sync or processes, or --rollouts-per-start 1"
        )
    if world.identifier not in _envpool().list_all_envs():
        raise InputError(f"vectorise: EnvPool does not have {world.identifier}; must be sync or processes")
    return world


def _envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise InputError("vectorise: envpool is not installed; must be, with pip install evarl[envpool]") from error
    return envpool
