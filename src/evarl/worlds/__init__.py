"""Where a policy acts."""

from evarl.worlds.registry import make_world, world_names
from evarl.worlds.spaces import Box, Discrete, Space
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld, Step, World, WorldState

__all__ = [
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
    "world_names",
]
