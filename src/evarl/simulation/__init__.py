"""How experience is gathered: one Simulator with a compiled and a host engine."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.simulation.episodes import EpisodeClock, episode_statistics
    from evarl.simulation.rollouts import Act, AssessmentRollout, Batch, Mapping, Returns, StartStates
    from evarl.simulation.simulator import Simulator, simulator_for

_HOMES = {
    "Act": "rollouts",
    "AssessmentRollout": "rollouts",
    "Batch": "rollouts",
    "EpisodeClock": "episodes",
    "Mapping": "rollouts",
    "Returns": "rollouts",
    "Simulator": "simulator",
    "StartStates": "rollouts",
    "episode_statistics": "episodes",
    "simulator_for": "simulator",
}
"""Public names and the modules they live in: JAX is imported when one that needs it is first used."""

__all__ = [
    "Act",
    "AssessmentRollout",
    "Batch",
    "EpisodeClock",
    "Mapping",
    "Returns",
    "Simulator",
    "StartStates",
    "episode_statistics",
    "simulator_for",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.simulation' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.simulation.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
