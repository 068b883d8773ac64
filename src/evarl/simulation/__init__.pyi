from .episodes import (
    EpisodeClock as EpisodeClock,
    Returns as Returns,
    StartStates as StartStates,
    episode_statistics as episode_statistics,
)
from .rollouts import (
    Act as Act,
    AssessmentRollout as AssessmentRollout,
    AssessmentSize as AssessmentSize,
    Batch as Batch,
    Mapping as Mapping,
)
from .simulator import Simulator as Simulator, simulator_for as simulator_for
