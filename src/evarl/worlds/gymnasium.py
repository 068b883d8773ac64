"""Worlds from Gymnasium, which run in Python on the host: `gymnasium/CartPole-v1`, `gymnasium/module:Name-v0`."""

import contextlib
import difflib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from evarl.errors import InputError, WorldError, unknown_name
from evarl.storage.files import reason
from evarl.worlds.spaces import Box, Space, as_space
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld

LISTED = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
)
"""Ids that come with Gymnasium, need no other package and have a time limit. Any other id can be named as well."""


@dataclass(frozen=True, eq=False)
class GymnasiumWorld(HostWorld):
    """A Gymnasium environment with Box or Discrete spaces. Discrete observations are one-hot, floats are float32."""

    name: str
    identifier: str
    """The id in Gymnasium's registry."""
    observation_space: Box
    action_space: Space
    horizon: int
    discount: float = 0.99

    def open(self, count: int) -> "GymnasiumEnvironments":
        """Create `count` environments."""
        return GymnasiumEnvironments(self, count)


class GymnasiumEnvironments(HostEnvironments):
    """Open Gymnasium environments. Each has its own clock instead of Gymnasium's time limit, and none resets itself."""

    def __init__(self, world: GymnasiumWorld, count: int) -> None:
        self._world = world
        self._environments = [_create(world.name, world.identifier) for _ in range(count)]
        self._elapsed: list[int | None] = [None] * count  # None: no episode is under way

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode; its course is a function of the seed, the options and the actions."""
        environment = self._environments[index]
        with _blamed(self._world.name, f"environment {index}, reset with seed {seed}"):
            observation, _ = environment.reset(seed=int(seed), options=options)
            shown = _shown(environment.observation_space, observation)
        self._elapsed[index] = 0
        return shown

    def step(self, action: np.ndarray) -> HostStep:
        """Move every environment by one step. With no episode under way, Gymnasium would return numbers that belong to none."""
        if None in self._elapsed:
            raise InputError(
                f"{self._world.name}: environment {self._elapsed.index(None)} has no episode under way; it must be "
                "reset before the next step"
            )
        steps = [self._step_one(index, action[index]) for index in range(len(self._environments))]
        observation, reward, terminated, truncated = zip(*steps, strict=True)
        return HostStep(
            np.stack(observation), np.array(reward, np.float32), np.array(terminated, bool), np.array(truncated, bool)
        )

    def close(self) -> None:
        """Close every environment; errors are ignored."""
        for environment in self._environments:
            with contextlib.suppress(Exception, SystemExit):
                environment.close()

    def _step_one(self, index: int, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Step one environment; `truncated` means the horizon, or a limit of the environment's own."""
        environment = self._environments[index]
        taken = _taken(environment.action_space, action)
        elapsed = (self._elapsed[index] or 0) + 1
        with _blamed(self._world.name, f"environment {index}, step {elapsed} of its episode"):
            observation, reward, terminated, stopped, _ = environment.step(taken)
            shown = _shown(environment.observation_space, observation)
            reward, terminated = float(reward), bool(terminated)
            if not np.abs(reward) <= np.finfo(np.float32).max:
                raise ValueError(f"the reward is {reward}; must be a finite number in 32 bits")
        truncated = (bool(stopped) or elapsed >= self._world.horizon) and not terminated
        self._elapsed[index] = None if terminated or truncated else elapsed
        return shown, reward, terminated, truncated


def names() -> list[str]:
    """Names of the worlds of this family that need no other package."""
    return [f"gymnasium/{identifier}" for identifier in LISTED if identifier in gymnasium.registry]


def make(name: str, **given: Any) -> GymnasiumWorld:
    """Build the world called `name`; the horizon is its registered time limit unless given."""
    identifier = name.removeprefix("gymnasium/")
    given = {"horizon": _registered(name, identifier).max_episode_steps} | given
    if given["horizon"] is None:
        raise InputError(f"world: '{name}' has no time limit of its own; a --horizon must be given")
    probe = _create(name, identifier)
    probe.close()
    shown, taken = probe.observation_space, probe.action_space
    observation_space = cast(Box, as_space(name, "observation", shown, spaces, _dtype(shown)))
    return GymnasiumWorld(name, identifier, observation_space, as_space(name, "action", taken, spaces), **given)


def _registered(name: str, identifier: str) -> gymnasium.envs.registration.EnvSpec:
    """Gymnasium's entry for an id; the module before a colon is imported first, so that it can register itself.

    Names that come from files have passed `check_world` before.
    """
    module, _, plain = identifier.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
    except Exception as error:  # whatever the module raises
        raise InputError(f"world: '{name}' cannot be made here: {reason(error)}") from error
    if plain not in gymnasium.registry:
        near = difflib.get_close_matches(plain, gymnasium.registry, n=3)
        raise unknown_name("world", name, dict.fromkeys([f"gymnasium/{found}" for found in near] + names()))
    return gymnasium.registry[plain]


def _create(name: str, identifier: str) -> gymnasium.Env[Any, Any]:
    """One environment without a time limit; if it cannot be made, the error is one line.

    Gymnasium would import the module before a colon by itself, and only `_registered` does that here.
    """
    with _blamed(name, "while it was made"):
        try:
            return gymnasium.make(identifier.rpartition(":")[2], max_episode_steps=-1, disable_env_checker=True)
        except (ImportError, gymnasium.error.Error) as error:
            raise InputError(f"world: '{name}' cannot be made here: {' '.join(str(error).split())}") from error


@contextmanager
def _blamed(name: str, where: str) -> Iterator[None]:
    """Turn any exception of an environment's code into an error of one line that names the world and the place.

    So does a request to exit: otherwise an environment could end a run as if it were finished.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise WorldError(f"world: {name} failed ({where}): {type(error).__name__}: {reason(error)}") from error


def _dtype(space: spaces.Space[Any]) -> str:
    """Dtype of observations: pixels and flags keep theirs, every other number is float32."""
    return str(space.dtype) if space.dtype in (np.uint8, np.bool_) else "float32"


def _shown(space: spaces.Space[Any], observation: Any) -> np.ndarray:
    """A copy of Gymnasium's observation in evarl's form; ValueError if it does not fit its space."""
    given = np.asarray(observation)
    if given.shape != space.shape or not np.can_cast(given.dtype, space.dtype or given.dtype, "same_kind"):
        have = f"{given.dtype}{list(given.shape)}"
        raise ValueError(f"the observation is {have}; must be {space.dtype}{list(space.shape or ())} as in the space")
    if isinstance(space, spaces.Discrete):
        index, count = int(given) - int(space.start), int(space.n)
        if not 0 <= index < count:
            raise ValueError(f"the observation is {given}; must be one of {count} numbers from {space.start} on")
        return (np.arange(count) == index).astype(np.float32)
    with np.errstate(over="ignore"):
        shown = np.array(given, _dtype(space))
    if shown.dtype == np.float32 and not np.isfinite(shown).all():
        raise ValueError("the observation holds NaN or infinity; must be finite numbers in 32 bits")
    return shown


def _taken(space: spaces.Space[Any], action: np.ndarray) -> Any:
    """An action in Gymnasium's form, whose integers need not begin at 0."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + int(action)
    return np.asarray(action, space.dtype).reshape(space.shape)
