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
from jaxtyping import Float

from evarl.errors import InputError, WorldError, unknown_name
from evarl.storage.files import reason
from evarl.worlds import classic
from evarl.worlds.contexts import Context, ContextParameter, around
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

NOTHING = ("FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4")
"""Ids whose attributes change nothing: their transitions are tables, made once."""

BEGIN_SEED = 0
"""Reset seed of episodes that begin at a given state. The tasks that can are deterministic from there on."""


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
    parameters: tuple[ContextParameter, ...] = ()
    contexts: tuple[Context, ...] = ()

    @property
    def state_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """Numbers of a state in the tasks of classic control; any other environment begins by a reset seed only."""
        return classic.STATES[self.identifier].fields if self.identifier in classic.STATES else ()

    def state_from(self, numbers: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """These numbers themselves, if the task has not ended there."""
        if classic.STATES[self.identifier].ended(*numbers.tolist()):
            raise ValueError(classic.ENDED)
        return np.asarray(numbers, np.float64)

    def open(self, count: int) -> "GymnasiumEnvironments":
        """Create `count` environments."""
        return GymnasiumEnvironments(self, count)


class GymnasiumEnvironments(HostEnvironments):
    """Open Gymnasium environments. Each has its own clock instead of Gymnasium's time limit, and none resets itself."""

    def __init__(self, world: GymnasiumWorld, count: int) -> None:
        self._world = world
        self._environments = [_create(world.name, world.identifier) for _ in range(count)]
        self._elapsed: list[int | None] = [None] * count  # None: no episode is under way
        self._placed: list[dict[str, float]] = [{} for _ in range(count)]  # attributes of the site of each

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode; its course is a function of the seed, the options and the actions."""
        environment = self._environments[index]
        with _blamed(self._world.name, f"environment {index}, reset with seed {seed}"):
            _set_attributes(environment, self._placed[index])
            observation, _ = environment.reset(seed=int(seed), options=options)
            _set_attributes(environment, self._placed[index])  # a reset may write them anew
            shown = _shown(environment.observation_space, observation)
        self._elapsed[index] = 0
        return shown

    def begin(self, index: int, state: Float[np.ndarray, " n"]) -> np.ndarray:
        """Begin an episode at a given state of a task of classic control; a reset clears everything else that there is."""
        kind = classic.STATES.get(self._world.identifier)
        if kind is None or len(state) != len(kind.fields):
            raise InputError(f"{self._world.name}: cannot begin at a state of {len(state)} numbers")
        self.reset(index, BEGIN_SEED)
        environment: Any = self._environments[index]
        with _blamed(self._world.name, f"environment {index}, beginning at {state.tolist()}"):
            environment.unwrapped.state = np.array(state, np.float64)
            return _shown(environment.observation_space, kind.observation(environment.unwrapped.state))

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

    def place(self, index: int, context: Float[np.ndarray, " P"]) -> None:
        """Give one environment a context, which holds from its next reset on."""
        world = self._world
        if len(context) != len(world.contexts):
            raise InputError(f"context: {len(context)} numbers are not allowed; {world.name} has {len(world.contexts)}")
        found = dict(zip((one.name for one in world.contexts), np.asarray(context, np.float64).tolist(), strict=True))
        values = {parameter.name: parameter.default for parameter in world.parameters} | found
        self._placed[index] = classic.with_derived(world.identifier, values)

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
    given["parameters"] = _parameters(identifier, probe.unwrapped)
    shown, taken = probe.observation_space, probe.action_space
    observation_space = cast(Box, as_space(name, "observation", shown, spaces, _dtype(shown)))
    return GymnasiumWorld(name, identifier, observation_space, as_space(name, "action", taken, spaces), **given)


def _parameters(identifier: str, environment: gymnasium.Env[Any, Any]) -> tuple[ContextParameter, ...]:
    """What may vary: the numbers of `classic` where the task is known, else every public attribute that is a float."""
    if identifier in NOTHING:
        return ()
    if (listed := classic.PARAMETERS.get(identifier)) is not None:
        return tuple(parameter for parameter in listed if _attribute(environment, parameter.name) is not None)
    attributes = dict(pair for kind in reversed(type(environment).__mro__) for pair in vars(kind).items())
    attributes |= vars(environment)
    found = {name: value for name, value in attributes.items() if isinstance(value, float) and not name.startswith("_")}
    return tuple(around(name, float(value)) for name, value in found.items() if value and np.isfinite(value))


def _attribute(environment: gymnasium.Env[Any, Any], name: str) -> str | None:
    """The attribute that holds a parameter; Gymnasium writes some of them in capitals. None if there is none."""
    return next((written for written in (name, name.upper()) if hasattr(environment, written)), None)


def _set_attributes(environment: gymnasium.Env[Any, Any], values: dict[str, float]) -> None:
    """Set attributes of the environment behind Gymnasium's wrappers."""
    for name, value in values.items():
        if (written := _attribute(environment.unwrapped, name)) is not None:
            setattr(environment.unwrapped, written, value)


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
