"""Training with everything kept in a run directory: configuration, checkpoints, metrics, logs, policies.

The function `train` of this folder is `evarl.train`; `pretrain` is in `evarl.runs.pretrain`.

>>> from evarl import runs
>>> runs.Run.__name__
'Run'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.runs.assessments import load_assessment, load_evaluator, save_assessment, save_evaluator
    from evarl.runs.checks import not_fitted
    from evarl.runs.inputs import new_assessment
    from evarl.runs.run import Run

_HOMES = {
    "Run": "run",
    "load_assessment": "assessments",
    "load_evaluator": "assessments",
    "new_assessment": "inputs",
    "not_fitted": "checks",
    "save_assessment": "assessments",
    "save_evaluator": "assessments",
}
"""Public names and their modules: JAX is imported when one that needs it is first used."""

__all__ = [
    "Run",
    "load_assessment",
    "load_evaluator",
    "new_assessment",
    "not_fitted",
    "save_assessment",
    "save_evaluator",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.runs' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.runs.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
