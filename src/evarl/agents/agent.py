"""The interface of a learning algorithm, and the algorithms by name."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

from jaxtyping import Array, Float

from evarl.agents.configuration import ALGORITHMS, AgentConfig
from evarl.agents.distributions import Distribution, noise_for
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.trajectory import Trajectory
from evarl.worlds.contexts import Context
from evarl.worlds.spaces import Box, Space
from evarl.worlds.world import Key

Metrics = dict[str, Array]


class Agent(Protocol):
    """What acts and learns. Its methods are pure functions; what learning changes is passed in and returned.

    The state that `init` returns has a field `policy`, which holds everything needed to act and to predict values, and which
    is saved as the final policy. An agent can be hashed, because compiled programs are found again by it.
    `evarl.agents.ActorCritic` implements all of this but the learning rule.
    """

    observation_space: Box
    action_space: Space

    def init(self, key: Key, environments: int) -> Any:
        """A fresh state. It is not vmapped."""

    def act(self, policy: Any, key: Key, observation: Array) -> tuple[Array, Float[Array, "*batch"]]:
        """Sampled actions and their log-probabilities."""

    def distribution(self, policy: Any, observation: Array) -> Distribution:
        """π(· | observation), for off-policy evaluation and for behaviours that are differentiated pathwise."""

    def value(self, policy: Any, observation: Array, context: Array | None = None) -> Float[Array, "*batch"]:
        """The critic's values, in units of reward; `context` [N, P] is given if the agent was made with contexts."""

    def improve(
        self, state: Any, key: Key, trajectory: Trajectory, weights: GradientWeights | None = None
    ) -> tuple[Any, Metrics]:
        """The state after learning from a batch, and metrics; `weights` make the policy gradient evaluation-aware."""


def make_agent(
    config: AgentConfig,
    observation_space: Box,
    action_space: Space,
    discount: float,
    updates: int,
    contexts: tuple[Context, ...] = (),
) -> Agent:
    """The agent that a configuration names; `updates` is the length of the run, for annealing.

    Its critic sees the `contexts` of a family of worlds. Equal settings give the same agent, so that programs in which its
    methods act are compiled once for all runs of these settings.
    """
    given = {"contexts": contexts} if contexts else {}
    make, settings = ALGORITHMS.get(config.algorithm), (config, observation_space, action_space, discount, updates)
    try:
        hash(settings)
    except TypeError:  # there is a list or an array among them
        return make(*settings, **given)
    return _made(make, *settings, **given)


@functools.lru_cache(maxsize=64)
def _made(make: Callable[..., Agent], *settings: Any, **given: Any) -> Agent:
    return make(*settings, **given)


def exploration(agent: Agent, environments: int) -> tuple[Callable[[Key], Any], Callable[..., tuple[Array, ...]]]:
    """How an agent acts in training: a function that draws the noise of one step, and `act(policy, noise, observation)`.

    Agents with a method `explore` get noise that is drawn for all steps at once, which is faster; others get keys.
    """
    explore = getattr(agent, "explore", None)
    if explore is None:
        return lambda key: key, agent.act
    return lambda key: noise_for(agent.action_space, key, (environments,)), explore
