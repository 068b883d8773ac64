from .a2c import A2C as A2C
from .actor_critic import ActorCritic as ActorCritic, AgentState as AgentState, PolicyState as PolicyState
from .agent import Agent as Agent, make_agent as make_agent
from .configuration import AgentConfig as AgentConfig, PPOConfig as PPOConfig, register_algorithm as register_algorithm
from .distributions import (
    Categorical as Categorical,
    DiagonalGaussian as DiagonalGaussian,
    Distribution as Distribution,
)
from .gradient_weights import GradientWeights as GradientWeights, PathwiseTerm as PathwiseTerm
from .losses import ActorBatch as ActorBatch, actor_loss as actor_loss, value_loss as value_loss
from .ppo import PPO as PPO
from .trajectory import Trajectory as Trajectory
