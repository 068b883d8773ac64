"""The behaviour Ξ: what an assessment reveals about a policy, and what evaluators are given.

A behaviour is a pytree. Memory, evaluators, controls, run files and certificates carry it without looking inside; only a
*kind* of behaviour knows what its leaves mean. The paper's Ξ, the return from each start state, is the kind `returns`. Several
kinds can be combined.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Shaped

from evarl.agents.distributions import Categorical, Policy
from evarl.assessment.configuration import BEHAVIOURS, behaviour_names
from evarl.simulation.rollouts import AssessmentRollout
from evarl.worlds.spaces import Discrete, Space


class Behaviour(struct.PyTreeNode):
    """Ξ of one policy. Every leaf has the k start states as its first axis.

    The two parts depend on the policy in different ways, and so does the policy gradient go through them.
    """

    rolled_out: Any
    """[k, ...] statistics of the assessment rollouts, such as returns: differentiated by the score function."""
    pathwise: Any = None
    """[k, ...] differentiable functions of the policy, such as probabilities of actions: differentiated directly."""


class Steps(struct.PyTreeNode):
    """Statistics of the single steps of a rollout, in order: evaluators read them step by step."""

    numbers: Array
    """[k, h, N] which evaluators standardise."""
    shares: Array
    """[k, h, M] between 0 and 1, such as flags, which they take as they are: divided by its deviation, a rare flag is huge."""


class BehaviourKind(Protocol):
    """What is observed of a policy in an assessment."""

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Any:
        """[h, k, R, ...] what the steps from t on contribute to each statistic of each rollout; None if there are none.

        The first row is the statistic itself. A statistic that is no sum over steps has the same value in all rows, or, if
        it is known before step t, 0 from row t on: the action of step t cannot change it.
        """

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> Any:
        """[k, ...] differentiable functions of the policy; None if there are none. Start states are observation[0]."""


class _FromRollouts:
    """A kind of behaviour that is known from rollouts alone."""

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> None:
        """None: the policy itself is not looked at."""


class Returns(_FromRollouts):
    """The paper's Ξ: the return from each start state, averaged over replicates."""

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Float[Array, "h k R"]:
        """Rewards-to-go."""
        return rewards_to_go


class Rewards(_FromRollouts):
    """The reward of every step, undiscounted: [k, h]."""

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Float[Array, "h k R h"]:
        """The rewards of the steps from t on."""
        return from_step_on(rollout.reward)


@dataclass(frozen=True)
class Trajectory(_FromRollouts):
    """Every step as a token: observation, action, reward, and whether the scenario was under way; 0 after its end.

    With several replicates a token is their mean: the mean observation, how often each action was taken, and so on.
    """

    actions: Space | None = None
    """Discrete actions are told apart one-hot; others, and those of an unknown space, are taken as numbers."""

    def for_actions(self, space: Space) -> "Trajectory":
        """The same kind for policies that act in this space."""
        return Trajectory(space)

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> Steps:
        """The tokens of the steps from t on, [h, k, R, h, ...]."""
        alive = rollout.alive[..., None]
        observation, action = (x.reshape(*alive.shape[:3], -1) for x in (rollout.observation, rollout.action))
        numbers, shares = [rollout.reward[..., None]], [alive]
        (shares if observation.dtype == bool else numbers).append(observation)
        if isinstance(self.actions, Discrete):
            shares.append(jax.nn.one_hot(rollout.action, self.actions.n, dtype=bool))
        else:
            numbers.append(action)

        def tokens(parts: list[Array]) -> Array:
            told = jnp.concatenate([x.astype(rollout.reward.dtype) for x in parts], axis=-1)
            return from_step_on(jnp.where(alive, told, 0.0))

        return Steps(tokens(numbers), tokens(shares))


@runtime_checkable
class Probing(Protocol):
    """A kind of behaviour that asks the policy how it would act at some observations, the probes."""

    def probed(self, probes: Array, policy: Policy) -> Any:
        """[k, ...] `pathwise` with the probes [k, ...] in place of the start states."""


class Fingerprint:
    """The distribution of the policy's actions at each of k probes, the start states: it takes no step in the assessment.

    That is π(a | sⁱ) for discrete actions, [k, A], and mean and log-deviation of every coordinate otherwise, [k, 2A].
    """

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> None:
        """None: what happens in the rollouts does not matter."""

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> Float[Array, "k B"]:
        """The fingerprint with the start states as probes."""
        return self.probed(rollout.observation[0, :, 0], policy)

    def probed(self, probes: Shaped[Array, "k ..."], policy: Policy) -> Float[Array, "k B"]:
        """The parameters of the distributions, in a form in which equal distributions have equal ones."""
        found = policy(probes)
        if isinstance(found, Categorical):
            return jax.nn.softmax(found.logits)
        return jnp.concatenate([found.mean, found.log_deviation], axis=-1)


@dataclass(frozen=True)
class Combined:
    """Several kinds of behaviour at once; each part has its own name in the pytree."""

    kinds: Mapping[str, BehaviourKind]

    def rolled_out(self, rollout: AssessmentRollout, rewards_to_go: Float[Array, "h k R"]) -> dict[str, Any] | None:
        """The contributions to the statistics of all kinds."""
        return _known({name: kind.rolled_out(rollout, rewards_to_go) for name, kind in self.kinds.items()})

    def pathwise(self, rollout: AssessmentRollout, policy: Policy) -> dict[str, Any] | None:
        """The functions of the policy of all kinds."""
        return _known({name: kind.pathwise(rollout, policy) for name, kind in self.kinds.items()})


def part_of(behaviour: Behaviour, name: str) -> Behaviour:
    """The behaviour of the kind `name`, which may be several joined by "+", out of one that combines these and others."""
    names = behaviour_names(name)

    def chosen(parts: dict[str, Any] | None) -> Any:
        known = {one: parts[one] for one in names if parts is not None and one in parts}
        return known.get(name) if len(names) == 1 else known or None

    return Behaviour(chosen(behaviour.rolled_out), chosen(behaviour.pathwise))


def _known(parts: dict[str, Any]) -> dict[str, Any] | None:
    """The parts that there are; None if there are none."""
    return {name: part for name, part in parts.items() if part is not None} or None


def from_step_on(x: Float[Array, "h k R *shape"]) -> Float[Array, "h k R h *shape"]:
    """Numbers x_j of each step j as statistics of a rollout: row t holds x_j for the steps j ≥ t, and 0 for earlier ones."""
    steps = jnp.arange(x.shape[0])
    later = (steps[:, None] <= steps[None]).reshape(len(steps), 1, 1, len(steps), *(1,) * (x.ndim - 3))
    return jnp.where(later, jnp.moveaxis(x, 0, 2)[None], 0.0)


class Observed(NamedTuple):
    """The behaviour of a policy, and what it was computed from."""

    behaviour: Behaviour
    to_go: Any
    """[h, k, R, ...] contributions of the steps from t on to `behaviour.rolled_out`."""
    returns: Float[Array, "k R"]
    """Return of each rollout, for people to look at."""
    pathwise: Callable[[Policy], Any]
    """`behaviour.pathwise` as a function of the policy."""


def observe(
    kind: BehaviourKind, rollout: AssessmentRollout, policy: Policy, discount: float, probes: Array | None = None
) -> Observed:
    """The behaviour that a policy showed in an assessment; `discount` is that of the assessment.

    With `probes` [k, ...], kinds that have probes ask the policy there, in every context alike, and not at the start states.
    """
    rewards_to_go = rollout.rewards_to_go(discount)
    to_go = kind.rolled_out(rollout, rewards_to_go)
    pathwise: Callable[[Policy], Any] = partial(kind.pathwise, rollout)
    if probes is not None:
        every = jax.lax.stop_gradient(jnp.concatenate([probes] * (rollout.reward.shape[1] // len(probes))))
        pathwise = lambda policy: at_probes(kind, kind.pathwise(rollout, policy), every, policy)  # noqa: E731
    behaviour = Behaviour(jax.tree.map(lambda x: x[0].mean(axis=1), to_go), pathwise(policy))
    return Observed(behaviour, to_go, rewards_to_go[0], pathwise)


def at_probes(kind: BehaviourKind, pathwise: Any, probes: Array, policy: Policy) -> Any:
    """The pathwise part of a behaviour with what depends on probes computed anew at these, [k, ...]."""
    if isinstance(kind, Combined):
        return {name: at_probes(kind.kinds[name], part, probes, policy) for name, part in pathwise.items()}
    return kind.probed(probes, policy) if isinstance(kind, Probing) else pathwise


@runtime_checkable
class ForActions(Protocol):
    """A kind of behaviour that depends on the space of actions."""

    def for_actions(self, space: Space) -> BehaviourKind:
        """The kind for policies that act in this space."""


def behaviour_kind(name: str, actions: Space) -> BehaviourKind:
    """The kind of behaviour called `name`, or several joined by "+", for policies that act in the space `actions`."""
    kinds = {one: BEHAVIOURS.get(one)() for one in behaviour_names(name)}
    bound = {one: kind.for_actions(actions) if isinstance(kind, ForActions) else kind for one, kind in kinds.items()}
    return Combined(bound) if len(bound) > 1 else bound[name]
