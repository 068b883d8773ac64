"""What others would have said: values of a policy from data that other policies logged.

>>> from evarl import ope
>>> "dr" in ope.METHODS
True
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.ope.configuration import METHODS, LogSettings
    from evarl.ope.dataset import LoggedData
    from evarl.ope.estimation import CollapsedWeights, Estimate, estimate
    from evarl.ope.fqe_configuration import FQEConfig
    from evarl.ope.intervals import Interval
    from evarl.ope.metrics import PolicyMetrics, policy_metrics
    from evarl.ope.minari import from_minari
    from evarl.ope.policy import TargetPolicy

_HOMES = {
    "METHODS": "configuration",
    "CollapsedWeights": "estimation",
    "Estimate": "estimation",
    "FQEConfig": "fqe_configuration",
    "Interval": "intervals",
    "LogSettings": "configuration",
    "LoggedData": "dataset",
    "PolicyMetrics": "metrics",
    "TargetPolicy": "policy",
    "estimate": "estimation",
    "from_minari": "minari",
    "policy_metrics": "metrics",
}
"""Public names and the modules they live in: JAX is imported when one that needs it is first used."""

__all__ = [
    "METHODS",
    "CollapsedWeights",
    "Estimate",
    "FQEConfig",
    "Interval",
    "LogSettings",
    "LoggedData",
    "PolicyMetrics",
    "TargetPolicy",
    "estimate",
    "from_minari",
    "policy_metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.ope' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.ope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
