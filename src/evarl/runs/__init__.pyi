from .assessments import (
    load_assessment as load_assessment,
    load_evaluator as load_evaluator,
    save_assessment as save_assessment,
    save_evaluator as save_evaluator,
)
from .checks import not_fitted as not_fitted
from .outside import OutsideRun as OutsideRun
from .run import Run as Run
from .train import new_assessment as new_assessment
