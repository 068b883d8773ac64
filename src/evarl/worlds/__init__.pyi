from .contexts import Context as Context, ContextParameter as ContextParameter
from .registry import make_world as make_world, register_world as register_world, world_names as world_names
from .spaces import Box as Box, Discrete as Discrete, Space as Space
from .world import (
    AnyWorld as AnyWorld,
    HostEnvironments as HostEnvironments,
    HostStep as HostStep,
    HostWorld as HostWorld,
    Step as Step,
    World as World,
    WorldState as WorldState,
)
