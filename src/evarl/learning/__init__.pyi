from .base_policies import build_assessment as build_assessment
from .configuration import TrainConfig as TrainConfig
from .learner import Learner as Learner, LearnerState as LearnerState, make_learner as make_learner
from .presets import preset as preset
from .weigh import Evidence as Evidence, Objective as Objective, weigh as weigh
