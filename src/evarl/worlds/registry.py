"""Worlds by name. A family of worlds is imported only when one of its worlds is requested."""

import importlib
from collections.abc import Callable
from types import ModuleType

from evarl.errors import InputError, unknown_name
from evarl.ranges import real, whole
from evarl.worlds.world import AnyWorld

FAMILIES = {
    "navigation": "evarl.worlds.navigation",
    "tabular": "evarl.worlds.tabular",
    "gymnax": "evarl.worlds.gymnax",
    "brax": "evarl.worlds.brax",
    "gymnasium": "evarl.worlds.gymnasium",
}
"""First part of a name, and the module that serves it through `make(name, horizon, discount)` and `names()`."""

_registered: dict[str, Callable[..., AnyWorld]] = {}


def register_world(name: str, make: Callable[..., AnyWorld]) -> None:
    """Make a world of your own available by name, in this process, wherever a world can be named.

    `make` is a class or function that returns the world. It is called with `horizon` and `discount` as keyword arguments
    where they are given, and the `name` of the world that it returns must be the registered one. A world in JAX is a `World`
    with three pure functions; it must be hashable, as frozen dataclasses are.

    >>> from dataclasses import dataclass
    >>> import jax.numpy as jnp
    >>> from evarl.worlds import Box, Discrete, World
    >>> @dataclass(frozen=True)
    ... class Line(World):
    ...     "Walk to the right end of a line of five places."
    ...     name: str = "line"
    ...     horizon: int = 8
    ...     discount: float = 0.9
    ...     observation_space: Box = Box((1,), 0.0, 4.0)
    ...     action_space: Discrete = Discrete(2)
    ...
    ...     def initial(self, key):
    ...         return jnp.zeros(())
    ...
    ...     def transition(self, key, physics, action):
    ...         position = jnp.clip(physics + jnp.where(action == 1, 1.0, -1.0), 0.0, 4.0)
    ...         return position, jnp.float32(-1.0), position == 4.0
    ...
    ...     def observation(self, physics):
    ...         return physics[None]
    >>> register_world("line", Line)
    >>> make_world("line", horizon=6).horizon
    6

    After that, `evarl.train("navigation", world="line", …)`, `evarl.evaluate` and `evarl.assess` know it. So does a command
    line that is run by your own script through `evarl.cli.main.call`.
    """
    family = name.split("/")[0]
    if not name or family in FAMILIES:
        raise InputError(f"world: '{name}' is not allowed; must be a name outside of {', '.join(FAMILIES)}")
    if _registered.setdefault(name, make) is not make:
        raise InputError(f"world: '{name}' is taken; register it under another name")


def make_world(name: str, horizon: int | None = None, discount: float | None = None) -> AnyWorld:
    """Build the world called `name`; horizon and discount are the world's own unless given.

    >>> make_world("navigation").horizon
    50
    """
    if horizon is not None:
        whole("horizon", horizon)
    if discount is not None:
        real("discount", discount, least=0, most=1)
    if name not in _registered:
        return _family(name).make(name, horizon, discount)
    given = {"horizon": horizon, "discount": discount}
    world = _registered[name](**{key: value for key, value in given.items() if value is not None})
    if not isinstance(world, AnyWorld) or world.name != name:
        raise InputError(f"world: '{name}' was registered with {_registered[name]!r:.100}, which makes {world!r:.100}")
    return world


def world_names() -> list[str]:
    """Every world that can be named without further files, family by family; families that are not installed are left out.

    >>> "navigation" in world_names()
    True
    """
    names = []
    for family in FAMILIES:
        try:
            names += _family(family).names()
        except InputError:
            continue
    return names + list(_registered)


def _family(name: str) -> ModuleType:
    family = name.split("/")[0]
    if family not in FAMILIES:
        raise unknown_name("world", name, [*FAMILIES, "navigation/open-field", *_registered])
    try:
        return importlib.import_module(FAMILIES[family])
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("evarl"):
            raise
        raise InputError(f"world: '{name}' requires the package '{error.name}'; install evarl[{family}]") from error
