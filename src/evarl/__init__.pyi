from . import (
    agents as agents,
    assessment as assessment,
    bounds as bounds,
    callbacks as callbacks,
    certificates as certificates,
    errors as errors,
    evaluation as evaluation,
    evaluators as evaluators,
    learning as learning,
    ope as ope,
    policies as policies,
    simulation as simulation,
    stats as stats,
    truth as truth,
    worlds as worlds,
)
from .agents.configuration import (
    AgentConfig as AgentConfig,
    PPOConfig as PPOConfig,
    register_algorithm as register_algorithm,
    register_network as register_network,
)
from .assessment.configuration import AssessmentConfig as AssessmentConfig, register_behaviour as register_behaviour
from .certificates.compare import compare_policies as compare_policies
from .certificates.issue import certify as certify, issue_certificate as issue_certificate
from .certificates.protocol import Terms as Terms
from .certificates.verify import Reliance as Reliance, verify_certificate as verify_certificate
from .evaluation.assess import assess as assess
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.outside import outside_directory as outside_directory
from .evaluators.configuration import (
    EvaluatorConfig as EvaluatorConfig,
    NetworkConfig as NetworkConfig,
    register_evaluator as register_evaluator,
)
from .learning.configuration import TrainConfig as TrainConfig, with_settings as with_settings
from .learning.presets import preset as preset
from .policies.wrap import wrap_policy as wrap_policy
from .report.curves import plot as plot
from .report.video import video as video
from .runs.run import Run as Run, load as load
from .runs.train import train as train
from .storage.modules import allow_modules as allow_modules
from .worlds.registry import make_world as make_world, register_world as register_world, world_names as world_names
