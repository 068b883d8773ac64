"""Worlds from Gymnasium, which run in Python on the host: `gymnasium/CartPole-v1`, `gymnasium/module:Name-v0`."""

import contextlib
import difflib
import importlib
import inspect
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
from evarl.worlds.spaces import Box, OwnSpaces, Space, as_space
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

NOTHING = ("Taxi-v4",)
"""Ids whose numbers change nothing: the transitions of Taxi are a table, and its probabilities need other settings."""

_LAKE = (ContextParameter("success_rate", 1 / 3, 0.0, 1.0, "probability that a step goes where it should"),)
_LANDER = (
    ContextParameter("gravity", -10.0, -11.9, -1.0, "gravity, in m/s²"),
    ContextParameter("wind_power", 0.0, 0.0, 20.0, "greatest force of the wind"),
    ContextParameter("turbulence_power", 0.0, 0.0, 2.0, "greatest torque of the wind"),
)

ARGUMENTS = {
    "FrozenLake-v1": _LAKE,
    "FrozenLake8x8-v1": _LAKE,
    "LunarLander-v3": _LANDER,
    "LunarLanderContinuous-v3": _LANDER,
}
"""What may vary, by id, where more is known of the arguments of `gymnasium.make` than their defaults."""

SETTINGS = {"LunarLander-v3": {"enable_wind": True}, "LunarLanderContinuous-v3": {"enable_wind": True}}
"""Arguments without which what varies would have no effect."""

KEPT = 4
"""Environments that a slot keeps, each made with other arguments."""

BEGIN_SEED = 0
"""Reset seed of episodes that begin at a given state. The tasks that can are deterministic from there on."""


Arguments = tuple[tuple[str, Any], ...]
"""Names and values of arguments of `gymnasium.make`, in alphabetical order."""


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
    arguments: tuple[str, ...] = ()
    """Names of the parameters that are arguments of `gymnasium.make`; the others are attributes of the environment."""
    own_spaces: OwnSpaces | None = None
    pictures: bool = False
    """Whether open environments can be asked for pictures."""

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
        self._drawn: Arguments = (("render_mode", "rgb_array"),) if world.pictures else ()
        self._environments = [_create(world.name, world.identifier, self._drawn) for _ in range(count)]
        self._elapsed: list[int | None] = [None] * count  # None: no episode is under way
        self._placed: list[dict[str, float]] = [{} for _ in range(count)]  # attributes of the site of each
        self._made: list[Arguments] = [() for _ in range(count)]  # arguments of the site of each
        self._kept: list[dict[Arguments, gymnasium.Env[Any, Any]]] = [{(): one} for one in self._environments]

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode; its course is a function of the seed, the options and the actions."""
        environment = self._environments[index] = self._made_for_site(index)
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
        values = {one.name: found.get(one.name, one.default) for one in world.parameters}
        values |= {one.name: round(values[one.name]) for one in world.parameters if one.whole}
        attributes = {name: value for name, value in values.items() if name not in world.arguments}
        self._placed[index] = classic.with_derived(world.identifier, attributes)
        if world.arguments:
            given = {name: values[name] for name in world.arguments} | SETTINGS.get(world.identifier, {})
            self._made[index] = tuple(sorted(given.items()))

    def picture(self, index: int) -> np.ndarray:
        """Pixels [height, width, 3] of one environment as it draws itself; the world must have `pictures`."""
        with _blamed(self._world.name, f"environment {index}, while it was drawn"):
            try:
                drawn = self._environments[index].render()
            except (ImportError, gymnasium.error.Error) as error:
                raise InputError(f"world: {self._world.name} cannot be drawn here: {reason(error)}") from error
        pixels = np.asarray(drawn)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            raise InputError(f"world: {self._world.name} cannot be drawn; it has no picture in colours (rgb_array)")
        return pixels

    def close(self) -> None:
        """Close every environment; errors are ignored."""
        for environment in (one for kept in self._kept for one in kept.values()):
            _close(environment)

    def _made_for_site(self, index: int) -> gymnasium.Env[Any, Any]:
        """The environment that is made with the arguments of its site; of those kept, the one used longest ago is closed."""
        arguments, kept = self._made[index], self._kept[index]
        environment = kept.pop(arguments, None)
        if environment is None:
            environment = _create(self._world.name, self._world.identifier, (*arguments, *self._drawn))
            _check_spaces(self._world, environment, arguments)
        kept[arguments] = environment
        if len(kept) > KEPT:
            _close(kept.pop(next(iter(kept))))
        return environment

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
    arguments = _arguments(identifier)
    attributes = _attributes(identifier, probe.unwrapped)
    given["arguments"] = tuple(one.name for one in arguments)
    given["parameters"] = (*arguments, *(one for one in attributes if one.name not in given["arguments"]))
    shown_and_taken = _spaces(name, probe)
    given["own_spaces"] = _own_spaces(probe)
    return GymnasiumWorld(name, identifier, *shown_and_taken, **given)


def _spaces(name: str, environment: gymnasium.Env[Any, Any]) -> tuple[Box, Space]:
    """Observation and action space of an environment."""
    shown, taken = environment.observation_space, environment.action_space
    return cast(Box, as_space(name, "observation", shown, spaces, _dtype(shown))), as_space(
        name, "action", taken, spaces
    )


def _own_spaces(environment: gymnasium.Env[Any, Any]) -> OwnSpaces:
    """Observations and actions as the environment has them, with numbers that need not begin at 0."""
    shown, taken = environment.observation_space, environment.action_space
    counted = isinstance(shown, spaces.Discrete)
    return OwnSpaces(
        first_observation=int(shown.start) if isinstance(shown, spaces.Discrete) else None,
        observation_shape=() if counted else tuple(shown.shape or ()),
        first_action=int(taken.start) if isinstance(taken, spaces.Discrete) else None,
        action_dtype=str(taken.dtype),
        low=taken.low if isinstance(taken, spaces.Box) else None,
        high=taken.high if isinstance(taken, spaces.Box) else None,
    )


def _check_spaces(world: GymnasiumWorld, environment: gymnasium.Env[Any, Any], arguments: Arguments) -> None:
    """Refuse arguments that make an environment with other spaces, and close it."""
    shown, taken = _spaces(world.name, environment)
    if (shown, taken) != (world.observation_space, world.action_space):
        _close(environment)
        raise InputError(
            f"context: {_told(arguments)} gives {world.name} the spaces {shown} and {taken}; what varies must leave them as "
            f"they are, {world.observation_space} and {world.action_space}"
        )


def _attributes(identifier: str, environment: gymnasium.Env[Any, Any]) -> tuple[ContextParameter, ...]:
    """Attributes that may vary: the numbers of `classic` where the task is known, else every public one that is a float."""
    if identifier in NOTHING or identifier in ARGUMENTS:
        return ()
    if (listed := classic.PARAMETERS.get(identifier)) is not None:
        return tuple(parameter for parameter in listed if _attribute(environment, parameter.name) is not None)
    attributes = dict(pair for kind in reversed(type(environment).__mro__) for pair in vars(kind).items())
    attributes |= vars(environment)
    found = {name: float(value) for name, value in attributes.items() if isinstance(value, float)}
    return tuple(around(name, value) for name, value in found.items() if _may_vary(name, value))


def _arguments(identifier: str) -> tuple[ContextParameter, ...]:
    """Arguments of `gymnasium.make` that may vary: numbers with a default that the environment's constructor takes.

    An attribute of the same name would be set too late for what the constructor computes from it.
    """
    if identifier in NOTHING or identifier in classic.PARAMETERS:
        return ()
    if identifier in ARGUMENTS:
        return ARGUMENTS[identifier]
    spec = gymnasium.registry[identifier.rpartition(":")[2]]
    entry = spec.entry_point
    make = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    found = dict(spec.kwargs)
    with contextlib.suppress(TypeError, ValueError):  # what is written in C has no signature
        found = {one.name: one.default for one in inspect.signature(cast(Any, make)).parameters.values()} | found
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return tuple(around(name, value) for name, value in numbers.items() if _may_vary(name, value))


def _may_vary(name: str, value: float) -> bool:
    """Whether a number has a name for everyone and a size to be varied around."""
    return not name.startswith("_") and not isinstance(value, bool) and bool(value) and bool(np.isfinite(value))


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


def _create(name: str, identifier: str, arguments: Arguments = ()) -> gymnasium.Env[Any, Any]:
    """One environment without a time limit; if it cannot be made, the error is one line.

    Gymnasium would import the module before a colon by itself, and only `_registered` does that here.
    """
    plain, given = identifier.rpartition(":")[2], dict(arguments)
    with _blamed(name, f"while it was made with {_told(arguments)}" if arguments else "while it was made"):
        try:
            return gymnasium.make(plain, max_episode_steps=-1, disable_env_checker=True, **given)
        except (ImportError, gymnasium.error.Error) as error:
            raise InputError(f"world: '{name}' cannot be made here: {' '.join(str(error).split())}") from error


def _told(arguments: Arguments) -> str:
    return ", ".join(f"{name}={value if isinstance(value, str) else f'{value:.6g}'}" for name, value in arguments)


def _close(environment: gymnasium.Env[Any, Any]) -> None:
    """Close an environment; errors are ignored."""
    with contextlib.suppress(Exception, SystemExit):
        environment.close()


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
