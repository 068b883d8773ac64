"""From a batch of experience to a better agent: what A2C and PPO share."""

from jaxtyping import Array, Float

from evarl.agents import a2c, ppo
from evarl.agents.agent import Agent, AgentState
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import Key, flat_features

Metrics = dict[str, Array]


def improve(
    agent: Agent, state: AgentState, key: Key, trajectory: Trajectory, guidance: GradientWeights | None = None
) -> tuple[AgentState, Metrics]:
    """One update of actor and critic by the algorithm that the configuration names.

    With guidance, advantages are weighted after they were normalised (normalising afterwards would undo the weights),
    and the steps of the assessment enter the policy gradient as a second batch.

    Statistics of observations stay fixed within an update, so that the probabilities of the batch's actions are those
    with which they were taken; the batch enters them afterwards.
    """
    state, reward = _scaled_rewards(agent, state, trajectory)
    algorithm = {"a2c": a2c.improve, "ppo": ppo.improve}[agent.config.algorithm]
    state, metrics = algorithm(agent, state, key, trajectory, reward, guidance)
    statistics = state.policy.observation_statistics
    if statistics is not None:
        statistics = statistics.update(flat_features(trajectory.observation, len(agent.observation_space.shape)))
        state = state.replace(policy=state.policy.replace(observation_statistics=statistics))
    return state, metrics


def _scaled_rewards(agent: Agent, state: AgentState, trajectory: Trajectory) -> tuple[AgentState, Float[Array, "T N"]]:
    """Rewards in the critic's units."""
    if state.reward_scale is None:
        return state, trajectory.reward
    scale = state.reward_scale.update(trajectory.reward, trajectory.done, agent.discount)
    policy = state.policy.replace(value_scale=scale.deviation())
    return state.replace(policy=policy, reward_scale=scale), trajectory.reward / scale.deviation()
