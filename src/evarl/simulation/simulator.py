"""The interface of simulators, which let policies act in a world, and the choice of the engine that a world needs."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array

from evarl.agents.trajectory import Trajectory
from evarl.simulation.compiled import CompiledSimulator
from evarl.simulation.host import HostSimulator
from evarl.simulation.rollouts import Act, AssessmentRollout, Batch, Function, Mapping, Noise, Returns, StartStates
from evarl.worlds.world import AnyWorld, HostWorld, Key, World


@runtime_checkable
class Simulator(Protocol):
    """Lets a policy act in a world: batches for training, rollouts in assessments, and whole episodes.

    States are opaque: only the simulator that made them looks inside.
    """

    @property
    def world(self) -> AnyWorld:
        """Where the policy acts."""

    @property
    def traceable(self) -> bool:
        """Whether `begin`, `collect` and `assess` can be part of a compiled program, for several seeds at a time."""

    @property
    def default_rollouts(self) -> int:
        """Rollouts from each state with which values are estimated by default."""

    def compile(self, function: Function) -> Function:
        """A function that calls `assess`, compiled if that is possible."""

    def begin(self, batch: Batch, key: Key, seed: int = 0, index: int = 0) -> Any:
        """States of freshly reset environments.

        Compiled simulators use the key. Host simulators use the seed of the run and the number `index` of its next update.
        """

    def collect(
        self, batch: Batch, act: Act, states: Any, key: Key, index: Any = 0, noise: Noise = ...
    ) -> tuple[Any, Trajectory]:
        """The states afterwards, and T steps of N environments in the update with the number `index`."""

    def start_states(self, key: Key, count: int) -> StartStates:
        """Start states drawn from μ_D."""

    def visited_states(
        self, act: Act, key: Key, count: int, environments: int = 64, episodes: int | None = None
    ) -> StartStates:
        """States that the policy visits, drawn uniformly from all steps; only where `world.can_restart`."""

    def episode_returns(self, act: Act, starts: StartStates, key: Key) -> Returns:
        """Returns [Q] of one episode from each state."""

    def returns(self, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None) -> Returns:
        """Returns [Q, R] of `rollouts` episodes from each state, `at_once` at a time."""

    def start_template(self) -> Any:
        """Shapes and dtypes of one start state of an assessment."""

    def checked(self, start_states: Any) -> Any:
        """Start states [k, ...] of an assessment, refused if they cannot be."""

    def observations(self, start_states: Any, mapping: Mapping = ...) -> Array | np.ndarray:
        """Observations [k, ...] at the start states of an assessment."""

    def assess(
        self, act: Act, start_states: Any, horizon: int, replicates: int, key: Key, mapping: Mapping = ...
    ) -> AssessmentRollout:
        """Rollouts of `horizon` steps from each start state of an assessment, `replicates` of each."""


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
