"""Worlds by name. Each family is imported only when one of its worlds is asked for."""

import importlib
from types import ModuleType

from evarl.errors import InputError, unknown_name
from evarl.ranges import real, whole
from evarl.worlds.world import HostWorld, World

FAMILIES = {
    "navigation": "evarl.worlds.navigation",
    "tabular": "evarl.worlds.tabular",
    "gymnax": "evarl.worlds.gymnax",
    "brax": "evarl.worlds.brax",
    "gymnasium": "evarl.worlds.gymnasium",
}
"""First part of a name, and the module that serves it through `make(name, horizon, discount)` and `names()`."""


def make_world(name: str, horizon: int | None = None, discount: float | None = None) -> World | HostWorld:
    """Build the world called `name`; horizon and discount are the world's own unless given.

    >>> make_world("navigation").horizon
    50
    """
    if horizon is not None:
        whole("horizon", horizon)
    if discount is not None:
        real("discount", discount, least=0, most=1)
    return _family(name).make(name, horizon, discount)


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
    return names


def _family(name: str) -> ModuleType:
    family = name.split("/")[0]
    if family not in FAMILIES:
        raise unknown_name("world", name, [*FAMILIES, "navigation/open-field"])
    try:
        return importlib.import_module(FAMILIES[family])
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("evarl"):
            raise
        raise InputError(f"world: '{name}' needs the package '{error.name}'; install evarl[{family}]") from error
