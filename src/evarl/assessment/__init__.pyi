from .assessment import Assessment as Assessment
from .behaviour import (
    Behaviour as Behaviour,
    BehaviourKind as BehaviourKind,
    Fingerprint as Fingerprint,
    Observed as Observed,
    Returns as Returns,
    Rewards as Rewards,
    Steps as Steps,
    Trajectory as Trajectory,
    observe as observe,
)
from .configuration import AssessmentConfig as AssessmentConfig, register_behaviour as register_behaviour
from .scenarios import given_states as given_states, parse_start_states as parse_start_states
