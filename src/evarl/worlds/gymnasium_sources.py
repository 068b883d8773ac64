"""How Gymnasium environments are made, by an id or by a function, and what may vary in them."""

import contextlib
import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np

from evarl.errors import InputError, WorldError, unknown_name
from evarl.storage.files import reason
from evarl.storage.modules import import_module
from evarl.worlds import classic
from evarl.worlds.contexts import ContextParameter, around
from evarl.worlds.names import offered, parse_name

LIMIT = 1000
"""Steps after which an episode is cut where a function makes the environments and they have no time limit."""

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

Arguments = tuple[tuple[str, Any], ...]
"""Names and values of arguments of `gymnasium.make`, in alphabetical order."""


@dataclass(frozen=True, eq=False)
class Source:
    """How the environments of a world are made."""

    world: str
    """Name of the world."""
    identifier: str
    """The id in Gymnasium's registry, perhaps after a module, or the function after its module."""
    function: Callable[..., Any] | None
    """What makes an environment; None if `gymnasium.make` does, by the id."""
    fixed: Arguments = ()
    """Arguments that are always given."""
    spec: Any = None
    """Gymnasium's entry for the id, so that another process need not have it."""

    def create(self, arguments: Arguments = ()) -> gymnasium.Env[Any, Any]:
        """One environment; if it cannot be made, the error is one line. Those that are registered have no time limit.

        Gymnasium would import the module before a colon by itself, and only `source_of` does that here.
        """
        given = dict(self.fixed) | dict(arguments)
        with blamed(self.world, f"while it was made with {told(arguments)}" if arguments else "while it was made"):
            try:
                if self.function is not None:
                    return _environment(self.world, self.function(**given))
                return gymnasium.make(self.spec, max_episode_steps=-1, disable_env_checker=True, **given)
            except (ImportError, gymnasium.error.Error) as error:
                said = " ".join(str(error).split())
                if isinstance(error, ModuleNotFoundError) and (extra := self._extra()):
                    said += f"; pip install 'gymnasium[{extra}]'"
                raise InputError(f"world: '{self.world}' cannot be made here: {said}") from error
            except TypeError as error:
                if (refused := self._unknown_argument(error)) is not None:
                    raise refused from error
                if "'render_mode'" not in str(error):
                    raise
                raise InputError(
                    f"world: {self.world} takes no render_mode, and cannot be drawn; give its __init__ this argument"
                ) from error

    def _unknown_argument(self, error: TypeError) -> InputError | None:
        """The refusal of an argument by `--make` or `env_kwargs` that the environment does not take; None for other errors."""
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in dict(self.fixed):
            return None
        known: list[str] = []
        with contextlib.suppress(TypeError, ValueError):  # what is written in C has no signature
            kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
            parameters = inspect.signature(cast(Any, self.maker()[0])).parameters.values()
            known = [one.name for one in parameters if one.kind in kinds and one.name not in ("self", "render_mode")]
        if known:
            return unknown_name("make", found[1], known)
        return InputError(f"make: unknown '{found[1]}'; {self.identifier} takes no such argument")

    def _extra(self) -> str:
        """The extra of Gymnasium that an environment of its own belongs to, as mujoco; "" for those of others."""
        found = re.match(r"gymnasium\.envs\.(\w+)", str(getattr(self.spec, "entry_point", "")))
        return found[1].replace("_", "-") if found else ""

    def horizon(self, probe: gymnasium.Env[Any, Any]) -> int | None:
        """The time limit that is registered, or that of an environment from a function; None if there is none."""
        if self.function is None:
            return self.spec.max_episode_steps
        limits, environment = [], probe
        while isinstance(environment, gymnasium.Wrapper):
            if isinstance(environment, gymnasium.wrappers.TimeLimit):
                limits.append(int(environment._max_episode_steps))
            environment = environment.env
        return min(limits, default=LIMIT)

    def maker(self) -> Any:
        """The function or class behind the environments, and the arguments that are registered with it."""
        if self.function is not None:
            return self.function, {}
        entry = self.spec.entry_point
        make = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
        return make, dict(self.spec.kwargs)


def source_of(world: str) -> Source:
    """How the environments of the world with this name are made; its module is imported, and may register them.

    Names that come from files have passed `check_world` before.
    """
    module, plain, arguments = parse_name(world)
    identifier, fixed = parse_name(world).identifier, tuple(sorted(arguments.items()))
    if (function := offered(world)) is not None:
        return Source(world, identifier, function, fixed)
    if module == "__main__":
        raise InputError(
            f"world: '{world}' was made by a function that cannot be imported; give it again, with env=, as in "
            'evarl.load(path, env=make_env), or move it to a module and train with env="module:make_env"'
        )
    found = None
    try:
        found = import_module(module) if module else None
    except Exception as error:  # whatever the module raises
        raise InputError(f"world: '{world}' cannot be made here: {reason(error)}") from error
    if plain in gymnasium.registry:
        return Source(world, identifier, None, fixed, gymnasium.registry[plain])
    made: Any = found
    for part in plain.split(".") if module else ():
        made = getattr(made, part, None)
    if callable(made):
        return Source(world, identifier, made, fixed)
    here = [one for one, value in vars(found).items() if callable(value)] if module else []
    near = difflib.get_close_matches(plain, [*here, *gymnasium.registry], n=3)
    if not module and not any(_alike(plain, one) for one in near):
        raise InputError(
            f"world: unknown '{world}'; Gymnasium itself has no such id. Where a module registers it, name its module: "
            f"gymnasium/MODULE:{plain}"
        )
    near = [f"{module}:{one}" if one in here else one for one in near]
    raise unknown_name("world", world, dict.fromkeys([f"gymnasium/{one}" for one in near] + names()))


def _alike(one: str, other: str) -> bool:
    """Whether two ids are alike without their versions.

    >>> _alike("LunarLander-v2", "LunarLander-v3"), _alike("Inventory-v0", "MountainCar-v0")
    (True, False)
    """
    first, second = (text.rpartition("-v")[0] or text for text in (one, other))
    return difflib.SequenceMatcher(None, first, second).ratio() >= 0.6


def names() -> list[str]:
    """Names of the worlds of this family that need no other package."""
    return [f"gymnasium/{identifier}" for identifier in LISTED if identifier in gymnasium.registry]


def _environment(world: str, made: Any) -> gymnasium.Env[Any, Any]:
    """What a function returned, if that is an environment."""
    if not isinstance(made, gymnasium.Env):
        raise InputError(f"world: '{world}' made {made!r:.60}; must return a gymnasium.Env")
    return made


def attributes(identifier: str, environment: gymnasium.Env[Any, Any]) -> tuple[ContextParameter, ...]:
    """Attributes that may vary: the numbers of `classic` where the task is known, else every public one that is a float."""
    if identifier in NOTHING or identifier in ARGUMENTS:
        return ()
    if (listed := classic.PARAMETERS.get(identifier)) is not None:
        return tuple(parameter for parameter in listed if _attribute(environment, parameter.name) is not None)
    members = dict(pair for kind in reversed(type(environment).__mro__) for pair in vars(kind).items())
    members |= vars(environment)
    found = {name: float(value) for name, value in members.items() if isinstance(value, float)}
    return tuple(around(name, value) for name, value in found.items() if _may_vary(name, value))


def arguments(source: Source) -> tuple[ContextParameter, ...]:
    """Arguments of `gymnasium.make` that may vary: numbers with a default that the environment's constructor takes.

    An attribute of the same name would be set too late for what the constructor computes from it.
    """
    identifier = source.identifier
    if identifier in NOTHING or identifier in classic.PARAMETERS:
        return ()
    if identifier in ARGUMENTS:
        return tuple(one for one in ARGUMENTS[identifier] if one.name not in dict(source.fixed))
    make, found = source.maker()
    with contextlib.suppress(TypeError, ValueError):  # what is written in C has no signature
        found = {one.name: one.default for one in inspect.signature(cast(Any, make)).parameters.values()} | found
    found = {name: value for name, value in found.items() if name not in dict(source.fixed)}
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return tuple(around(name, value) for name, value in numbers.items() if _may_vary(name, value))


def _may_vary(name: str, value: float) -> bool:
    """Whether a number has a name for everyone and a size to be varied around."""
    return not name.startswith("_") and not isinstance(value, bool) and bool(value) and bool(np.isfinite(value))


def _attribute(environment: gymnasium.Env[Any, Any], name: str) -> str | None:
    """The attribute that holds a parameter; Gymnasium writes some of them in capitals. None if there is none."""
    return next((written for written in (name, name.upper()) if hasattr(environment, written)), None)


def set_attributes(environment: gymnasium.Env[Any, Any], values: dict[str, float]) -> None:
    """Set attributes of the environment behind Gymnasium's wrappers."""
    for name, value in values.items():
        if (written := _attribute(environment.unwrapped, name)) is not None:
            setattr(environment.unwrapped, written, value)


def bare(environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """An environment without Gymnasium's outer checks of order, which the clocks here make as well."""
    while isinstance(environment, gymnasium.wrappers.OrderEnforcing | gymnasium.wrappers.PassiveEnvChecker):
        environment = environment.env
    return environment


def told(arguments: Arguments) -> str:
    """Arguments as text for messages."""
    return ", ".join(f"{name}={value if isinstance(value, str) else f'{value:.6g}'}" for name, value in arguments)


def close(environment: gymnasium.Env[Any, Any]) -> None:
    """Close an environment; errors are ignored."""
    with contextlib.suppress(Exception, SystemExit):
        environment.close()


@contextmanager
def blamed(name: str, where: str) -> Iterator[None]:
    """Turn any exception of an environment's code into an error of one line that names the world and the place.

    So does a request to exit: otherwise an environment could end a run as if it were finished.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        raise failure(name, where, error) from error


def failure(name: str, where: str, error: BaseException) -> InputError | WorldError:
    """The error of one line for an exception of an environment's code; a refusal stays as it is."""
    if isinstance(error, InputError):
        return error
    return WorldError(f"world: {name} failed ({where}): {type(error).__name__}: {reason(error)}")
