"""True values of policies: by Monte Carlo with standard errors, and exactly in finite worlds."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.truth.controlled import Controlled, ControlSettings, controlled_rollouts
    from evarl.truth.exact import action_values, best_return, optimal_values, policy_values, reachable_mdp
    from evarl.truth.monte_carlo import Truth, mean_squared_error, true_values

_HOMES = {
    "ControlSettings": "controlled",
    "Controlled": "controlled",
    "Truth": "monte_carlo",
    "action_values": "exact",
    "best_return": "exact",
    "controlled_rollouts": "controlled",
    "mean_squared_error": "monte_carlo",
    "optimal_values": "exact",
    "policy_values": "exact",
    "reachable_mdp": "exact",
    "true_values": "monte_carlo",
}
"""Public names and the modules they live in: JAX is imported when one that needs it is first used."""

__all__ = [
    "ControlSettings",
    "Controlled",
    "Truth",
    "action_values",
    "best_return",
    "controlled_rollouts",
    "mean_squared_error",
    "optimal_values",
    "policy_values",
    "reachable_mdp",
    "true_values",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.truth' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.truth.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
