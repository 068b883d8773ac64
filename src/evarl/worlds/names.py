"""Names of worlds, above all of Gymnasium's: ids, functions and classes, with the arguments that they are made with. No JAX.

A name says everything that is needed to make the environment again, `gymnasium/MODULE:NAME?ARGUMENT=VALUE&…`. A function that
cannot be imported, such as one of a script or a notebook, is kept in this process under its name.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from evarl.errors import InputError

FAMILIES = ("navigation", "crossing", "tabular", "gymnax", "brax", "gymnasium")
"""First parts of names. Each is a module of this folder with `names()` and `make(name, **given)`, which is given a horizon and a
discount only where they were asked for."""
FAMILY = "gymnasium/"
READABLE = "-_.:/,[]{}\"' ()+*"
"""Characters of values that are written as they are."""

_offered: dict[str, Callable[..., Any]] = {}


class NamedEnvironment(NamedTuple):
    """The parts of a name."""

    module: str
    """Imported first; empty if there is none."""
    plain: str
    """An id in Gymnasium's registry, or a function or class of the module."""
    arguments: dict[str, Any]

    @property
    def identifier(self) -> str:
        """What stands before the arguments."""
        return f"{self.module}:{self.plain}" if self.module else self.plain


def parse_name(world: str) -> NamedEnvironment:
    """The parts of the name of a world.

    >>> parse_name("gymnasium/my.envs:Maze-v0?size=3&kind=round")
    NamedEnvironment(module='my.envs', plain='Maze-v0', arguments={'size': 3, 'kind': 'round'})
    """
    identifier, _, query = world.removeprefix(FAMILY).partition("?")
    module, _, plain = identifier.rpartition(":")
    return NamedEnvironment(module, plain, parse_arguments([unquote(text) for text in query.split("&") if text]))


def parse_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Arguments written as "NAME=VALUE"; a value is JSON, or else text.

    >>> parse_arguments(["goal=3", "slippery=false", "map=8x8"])
    {'goal': 3, 'slippery': False, 'map': '8x8'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"make: {text!r:.100} is not allowed; must be NAME=VALUE, an argument of the environment")
        if name in found:
            raise InputError(f"make: {name} is given twice; one value is allowed")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def with_arguments(world: str, arguments: Mapping[str, Any]) -> str:
    """The name of a Gymnasium world that is made with further arguments, in alphabetical order.

    >>> with_arguments("gymnasium/FrozenLake-v1?map_name=8x8", {"is_slippery": False})
    'gymnasium/FrozenLake-v1?is_slippery=false&map_name=8x8'
    """
    if not arguments:
        return world
    if not world.startswith(FAMILY):
        raise InputError(f"make: {world} takes no arguments; must be a world of Gymnasium, {FAMILY}ID")
    found = parse_name(world)
    query = "&".join(_written(*pair) for pair in sorted({**found.arguments, **arguments}.items()))
    return f"{FAMILY}{found.identifier}?{query}"


def _written(name: str, value: Any) -> str:
    """An argument as text; plain text is written without quotation marks where it is read as the same again."""
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"make: {name}={value!r:.60} cannot be written into a configuration; must be a number, text, true, false, null, a "
            "list or an object; give other values inside of a function, env=make_env"
        ) from error
    if isinstance(value, str) and parse_arguments([f"x={value}"])["x"] == value:
        text = value
    return f"{name}={quote(text, safe=READABLE)}"


def name_of(env: Callable[..., Any] | str) -> str:
    """The name of a world whose environments are made by a function or class, or by an id; functions are kept under it.

    >>> name_of("CartPole-v1"), name_of("gymnasium/my_envs:Maze-v0")
    ('gymnasium/CartPole-v1', 'gymnasium/my_envs:Maze-v0')
    """
    if isinstance(env, str):
        return env if env.startswith(FAMILY) else FAMILY + env
    if not callable(env):
        raise InputError(
            f"env: {env!r:.60} is not allowed; must be a function or class that returns a new gymnasium.Env at each call, since "
            'several are opened, or an id such as "CartPole-v1" or "my_envs:MyEnv-v0"'
        )
    module, name = getattr(env, "__module__", None) or "__main__", getattr(env, "__qualname__", type(env).__name__)
    plain = name.replace("<locals>.", "").replace("<lambda>", "lambda")
    world = f"{FAMILY}{module}:{plain}"
    if _importable(module, name) is not env:
        world = f"{FAMILY}__main__:{plain}"
    offer(world, env)
    return world


def offer(world: str, env: Callable[..., Any]) -> None:
    """Let a function or class make the environments of the world with this name, in this process."""
    found = parse_name(world)
    _offered[found.identifier] = env


def offered(world: str) -> Callable[..., Any] | None:
    """What makes the environments of a world in this process, if a function was given."""
    return _offered.get(parse_name(world).identifier)


def _importable(module: str, name: str) -> Any:
    """What an import of this name would give in another process; None if there is nothing."""
    found = sys.modules.get(module) if module != "__main__" else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
