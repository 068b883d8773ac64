from .configuration import (
    EvaluatorConfig as EvaluatorConfig,
    NetworkConfig as NetworkConfig,
    register_evaluator as register_evaluator,
)
from .evaluator import (
    Evaluator as Evaluator,
    EvaluatorState as EvaluatorState,
    LearntEvaluator as LearntEvaluator,
    make_evaluator as make_evaluator,
)
from .memory import Memory as Memory, PolicyRecord as PolicyRecord
