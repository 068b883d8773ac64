"""Off-policy evaluation: values of a policy from trajectories that other policies logged.

>>> from evarl import ope
>>> "dr" in ope.estimators()
True
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.ope.configuration import LogSettings
    from evarl.ope.dataset import LoggedData
    from evarl.ope.estimation import estimate
    from evarl.ope.fqe_configuration import FQEConfig
    from evarl.ope.intervals import Interval
    from evarl.ope.log import Log
    from evarl.ope.metrics import PolicyMetrics, policy_metrics
    from evarl.ope.minari import from_minari
    from evarl.ope.policy import TargetPolicy
    from evarl.ope.registry import Estimator, estimators, register, unregister
    from evarl.ope.results import CollapsedWeights, Estimate
    from evarl.ope.settings import Settings

_HOMES = {
    "CollapsedWeights": "results",
    "Estimate": "results",
    "Estimator": "registry",
    "FQEConfig": "fqe_configuration",
    "Interval": "intervals",
    "Log": "log",
    "LogSettings": "configuration",
    "LoggedData": "dataset",
    "PolicyMetrics": "metrics",
    "Settings": "settings",
    "TargetPolicy": "policy",
    "estimate": "estimation",
    "estimators": "registry",
    "from_minari": "minari",
    "policy_metrics": "metrics",
    "register": "registry",
    "unregister": "registry",
}
"""Public names and their modules: JAX is imported when a name that needs it is first used."""

__all__ = [
    "CollapsedWeights",
    "Estimate",
    "Estimator",
    "FQEConfig",
    "Interval",
    "Log",
    "LogSettings",
    "LoggedData",
    "PolicyMetrics",
    "Settings",
    "TargetPolicy",
    "estimate",
    "estimators",
    "from_minari",
    "policy_metrics",
    "register",
    "unregister",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.ope' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.ope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
