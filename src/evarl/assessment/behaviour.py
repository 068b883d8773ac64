"""The behaviour Ξ: what an assessment reveals about a policy, and what evaluators are given.

A behaviour is a pytree. Memory, evaluators, controls, run files and certificates carry it without looking inside; only a
*kind* of behaviour knows what its leaves mean. The paper's Ξ, the return from each start state, is the kind `returns`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
from flax import struct
from jaxtyping import Array, Float

from evarl.agents.distributions import Policy
from evarl.assessment.configuration import BEHAVIOURS
from evarl.simulation.rollouts import AssessmentRollout


class Behaviour(struct.PyTreeNode):
    """Ξ of one policy. Every leaf has the k start states as its first axis.

    The two parts depend on the policy in different ways, and so does the policy gradient go through them.
    """

    rolled_out: Any
    """[k, ...] statistics of the assessment rollouts, such as returns: differentiated by the score function."""
    pathwise: Any = None
    """[k, ...] differentiable functions of the policy, such as probabilities of actions: differentiated directly."""


class BehaviourKind(Protocol):
    """What is observed of a policy in an assessment."""

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Any:
        """[h, k, R, ...] what the steps from t on contribute to each statistic of each rollout.

        The first row is the statistic itself. A statistic that is no sum over steps has the same value in all rows.
        """

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> Any:
        """[k, ...] differentiable functions of the policy; None if there are none. Start states are observation[0]."""


class Returns:
    """The paper's Ξ: the return from each start state, averaged over replicates."""

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Float[Array, "h k R"]:
        """Rewards-to-go."""
        return rewards_to_go

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> None:
        """None: returns are known from rollouts alone."""


class Observed(NamedTuple):
    """The behaviour of a policy, and what it was computed from."""

    behaviour: Behaviour
    to_go: Any
    """[h, k, R, ...] contributions of the steps from t on to `behaviour.rolled_out`."""
    returns: Float[Array, "k R"]
    """Return of each rollout, for people to look at."""
    pathwise: Callable[[Policy], Any]
    """`behaviour.pathwise` as a function of the policy."""


def observe(kind: BehaviourKind, rollout: AssessmentRollout, policy: Policy, discount: float) -> Observed:
    """The behaviour that a policy showed in an assessment; `discount` is that of the assessment."""
    rewards_to_go = rollout.rewards_to_go(discount)
    to_go = kind.rolled_out(rollout, rewards_to_go)
    pathwise = partial(kind.pathwise, rollout)
    behaviour = Behaviour(jax.tree.map(lambda x: x[0].mean(axis=1), to_go), pathwise(policy))
    return Observed(behaviour, to_go, rewards_to_go[0], pathwise)


def behaviour_kind(name: str) -> BehaviourKind:
    """The kind of behaviour called `name`."""
    return BEHAVIOURS.get(name)()
