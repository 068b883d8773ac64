"""Where policies act: the interfaces of worlds, and worlds by name. To add one of your own, see `register_world`."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.worlds.registry import make_world, register_world, world_names
    from evarl.worlds.spaces import Box, Discrete, Space
    from evarl.worlds.world import AnyWorld, HostEnvironments, HostStep, HostWorld, Step, World, WorldState

_HOMES = {
    "AnyWorld": "world",
    "Box": "spaces",
    "Discrete": "spaces",
    "HostEnvironments": "world",
    "HostStep": "world",
    "HostWorld": "world",
    "Space": "spaces",
    "Step": "world",
    "World": "world",
    "WorldState": "world",
    "make_world": "registry",
    "register_world": "registry",
    "world_names": "registry",
}
"""Public names and the modules they live in: JAX is imported when one that needs it is first used."""

__all__ = [
    "AnyWorld",
    "Box",
    "Discrete",
    "HostEnvironments",
    "HostStep",
    "HostWorld",
    "Space",
    "Step",
    "World",
    "WorldState",
    "make_world",
    "register_world",
    "world_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.worlds' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.worlds.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
