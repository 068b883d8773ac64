"""Assessments: start states of a world and a short horizon, in which policies show their behaviour."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.assessment.assessment import Assessment
    from evarl.assessment.configuration import AssessmentConfig
    from evarl.assessment.scenarios import given_states, parse_start_states

_HOMES = {
    "Assessment": "assessment",
    "AssessmentConfig": "configuration",
    "given_states": "scenarios",
    "parse_start_states": "scenarios",
}
"""Public names and the modules they live in: JAX is imported when one that needs it is first used."""

__all__ = [
    "Assessment",
    "AssessmentConfig",
    "given_states",
    "parse_start_states",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.assessment' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.assessment.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
