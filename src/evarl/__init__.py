"""Evaluation-aware reinforcement learning: policies that are good and can be evaluated accurately.

>>> import evarl
>>> evarl.make_world("navigation").horizon
50
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.agents.configuration import AgentConfig, PPOConfig
    from evarl.certificates.compare import compare_policies
    from evarl.certificates.issue import issue_certificate
    from evarl.certificates.terms import Terms
    from evarl.certificates.verify import Reliance, verify_certificate
    from evarl.evaluation.assess import assess
    from evarl.evaluation.evaluate import evaluate
    from evarl.learning.configuration import TrainConfig
    from evarl.learning.presets import preset
    from evarl.runs.run import Run
    from evarl.runs.train import train
    from evarl.storage.modules import allow_modules
    from evarl.worlds.registry import make_world, world_names

_HOMES = {
    "AgentConfig": "evarl.agents.configuration",
    "PPOConfig": "evarl.agents.configuration",
    "Reliance": "evarl.certificates.verify",
    "Run": "evarl.runs.run",
    "Terms": "evarl.certificates.terms",
    "TrainConfig": "evarl.learning.configuration",
    "allow_modules": "evarl.storage.modules",
    "assess": "evarl.evaluation.assess",
    "compare_policies": "evarl.certificates.compare",
    "evaluate": "evarl.evaluation.evaluate",
    "issue_certificate": "evarl.certificates.issue",
    "make_world": "evarl.worlds.registry",
    "preset": "evarl.learning.presets",
    "train": "evarl.runs.train",
    "verify_certificate": "evarl.certificates.verify",
    "world_names": "evarl.worlds.registry",
}
"""Public names and where they live: JAX is imported when one that needs it is first used, so that help stays quick."""

__all__ = [
    "AgentConfig",
    "PPOConfig",
    "Reliance",
    "Run",
    "Terms",
    "TrainConfig",
    "allow_modules",
    "assess",
    "compare_policies",
    "evaluate",
    "issue_certificate",
    "make_world",
    "preset",
    "train",
    "verify_certificate",
    "world_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
