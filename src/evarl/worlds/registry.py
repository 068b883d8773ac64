"""Worlds by name. A family of worlds is imported only when one of its worlds is requested."""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from evarl.errors import InputError, unknown_name
from evarl.ranges import real, whole
from evarl.registry import Registry
from evarl.settings import checked
from evarl.worlds.contexts import parse_contexts
from evarl.worlds.names import FAMILIES
from evarl.worlds.world import AnyWorld

_own: Registry[Callable[..., AnyWorld]] = Registry("world", {})


@checked
def register_world(name: str, make: Callable[..., AnyWorld]) -> None:
    """Make a world of your own available by name, in this process, wherever a world can be named.

    `make` is a class or function that returns the world. It is called with `horizon` and `discount` as keyword arguments
    where they are given, and the `name` of the world that it returns must be the registered one. A world in JAX is a `World`
    with three pure functions; it must be hashable, as frozen dataclasses are.

    >>> from functools import partial
    >>> from evarl.worlds.navigation import Navigation
    >>> register_world("short-steps", partial(Navigation, "short-steps", step_size=0.1))
    >>> make_world("short-steps", horizon=60).horizon
    60

    After that, `evarl.train("navigation", world="short-steps", …)`, `evarl.evaluate` and `evarl.assess` know it, and so does
    a command line that is run by your own script through `evarl.cli.main.call`.
    """
    family = name.split("/")[0]
    if not name or family in FAMILIES:
        raise InputError(f"world: '{name}' is not allowed; must be a name outside of {', '.join(FAMILIES)}")
    _own.register(name, make)


@checked
def make_world(
    name: str, horizon: int | None = None, discount: float | None = None, context: Sequence[str] = ()
) -> AnyWorld:
    """Build the world called `name`; horizon and discount are the world's own unless given.

    `context` makes it a family of worlds: "NAME=LOW:HIGH" or "NAME=A,B,C" for each number that is hidden and varies.

    >>> make_world("navigation").horizon
    50
    """
    if horizon is not None:
        whole("horizon", horizon)
    if discount is not None:
        real("discount", discount, least=0, most=1)
    given = {"horizon": horizon, "discount": discount}
    given = {key: value for key, value in given.items() if value is not None}
    world = _family(name).make(name, **given) if name not in _own.names() else _own_world(name, given)
    return world.vary(parse_contexts(context, world.parameters, name)) if context else world


def _own_world(name: str, given: dict[str, Any]) -> AnyWorld:
    """A registered world."""
    world = _own.get(name)(**given)
    if not isinstance(world, AnyWorld) or world.name != name:
        raise InputError(f"world: '{name}' was registered with {_own.get(name)!r:.100}, which makes {world!r:.100}")
    return world


def world_names() -> list[str]:
    """Every world that can be named without further files, family by family; families that are not installed are left out.

    >>> "navigation" in world_names()
    True
    """
    names = []
    for family in FAMILIES:
        with contextlib.suppress(InputError):
            names += _family(family).names()
    return [*names, *_own.names()]


def own_names() -> tuple[str, ...]:
    """Names of the worlds that `register_world` has added in this process."""
    return _own.names()


def _family(name: str) -> ModuleType:
    family = name.split("/")[0]
    if family not in FAMILIES:
        raise unknown_name("world", name, [*FAMILIES, "navigation/open-field", *_own.names()])
    try:
        return importlib.import_module(f"evarl.worlds.{family}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("evarl"):
            raise
        raise InputError(f"world: '{name}' requires the package '{error.name}'; install evarl[{family}]") from error
