"""The choice of the engine that a world needs."""

from evarl.simulation.compiled import CompiledSimulator
from evarl.simulation.host import HostSimulator
from evarl.worlds.world import AnyWorld, HostWorld, World

Simulator = CompiledSimulator | HostSimulator
"""Lets a policy act in a world: batches for training, rollouts in assessments, and whole episodes. Both engines have the same
methods. States are opaque: only the simulator that made them looks inside. To `begin`, the compiled engine uses the key, and the
host engine the random seed of the run and the number `index` of its next update."""


def simulator_for(world: AnyWorld) -> Simulator:
    """The simulator of a world; simulators of equal worlds are equal.

    >>> from evarl.worlds.navigation import Navigation
    >>> simulator_for(Navigation()) == simulator_for(Navigation())
    True
    """
    if isinstance(world, HostWorld):
        return HostSimulator(world)
    if isinstance(world, World):
        return CompiledSimulator(world)
    raise TypeError(f"{type(world).__name__}: is not a world; must be a World or a HostWorld")
