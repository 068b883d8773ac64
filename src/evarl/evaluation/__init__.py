"""Accuracy of predictions: evaluators, critics, controls and off-policy estimates against true values.

The functions `assess` and `evaluate` of this folder are `evarl.assess` and `evarl.evaluate`.

>>> from evarl import evaluation
>>> evaluation.EVALUATOR in evaluation.ORDER
True
"""

import importlib
from typing import TYPE_CHECKING, Any

from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, ORDER, PASSIVE, SHUFFLED, WITHOUT, ZEROED

if TYPE_CHECKING:
    from evarl.evaluation.assess import AssessmentResult
    from evarl.evaluation.controlled import controlled_estimates, frozen_values
    from evarl.evaluation.logged import LoggedSeed, estimate_run
    from evarl.evaluation.predictions import BehaviourPredictor, EvaluatorPredictions
    from evarl.evaluation.results import Evaluation, Queries, Row, SeedEvaluation
    from evarl.evaluation.scores import MeanAndError, Score, Skill, average, relative_improvement, root, score, skill

_HOMES = {
    "AssessmentResult": "assess",
    "BehaviourPredictor": "predictions",
    "Evaluation": "results",
    "EvaluatorPredictions": "predictions",
    "LoggedSeed": "logged",
    "MeanAndError": "scores",
    "Queries": "results",
    "Row": "results",
    "Score": "scores",
    "SeedEvaluation": "results",
    "Skill": "scores",
    "average": "scores",
    "controlled_estimates": "controlled",
    "estimate_run": "logged",
    "frozen_values": "controlled",
    "relative_improvement": "scores",
    "root": "scores",
    "score": "scores",
    "skill": "scores",
}
"""Public names and their modules: JAX is imported when one that needs it is first used."""

__all__ = [
    "BATCH",
    "CRITIC",
    "EVALUATOR",
    "ORDER",
    "PASSIVE",
    "SHUFFLED",
    "WITHOUT",
    "ZEROED",
    "AssessmentResult",
    "BehaviourPredictor",
    "Evaluation",
    "EvaluatorPredictions",
    "LoggedSeed",
    "MeanAndError",
    "Queries",
    "Row",
    "Score",
    "SeedEvaluation",
    "Skill",
    "average",
    "controlled_estimates",
    "estimate_run",
    "frozen_values",
    "relative_improvement",
    "root",
    "score",
    "skill",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.evaluation' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.evaluation.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
