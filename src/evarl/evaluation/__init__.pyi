from .assess import AssessmentResult as AssessmentResult
from .controlled import controlled_estimates as controlled_estimates, frozen_values as frozen_values
from .logged import LoggedSeed as LoggedSeed, estimate_run as estimate_run
from .predictions import BehaviourPredictor as BehaviourPredictor, EvaluatorPredictions as EvaluatorPredictions
from .predictors import (
    BATCH as BATCH,
    CRITIC as CRITIC,
    EVALUATOR as EVALUATOR,
    ORDER as ORDER,
    PASSIVE as PASSIVE,
    SHUFFLED as SHUFFLED,
    WITHOUT as WITHOUT,
    ZEROED as ZEROED,
)
from .results import Evaluation as Evaluation, Queries as Queries, Row as Row, SeedEvaluation as SeedEvaluation
from .scores import (
    MeanAndError as MeanAndError,
    Score as Score,
    Skill as Skill,
    average as average,
    relative_improvement as relative_improvement,
    root as root,
    score as score,
    skill as skill,
)
