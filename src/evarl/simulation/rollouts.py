"""What simulators are given and what they return, whichever engine runs the world."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from evarl.agents.perturbation import Acted
from evarl.worlds.spaces import Space
from evarl.worlds.world import Key

Act = Callable[[Key, Array], tuple[Array, ...]]
"""Maps a key and observations [N, ...] to actions [N, ...] and their log-probabilities [N]; further outputs become the last
fields of the trajectory. Given as `jax.tree_util.Partial(agent.act, policy)`, the policy is data to the compiled programs, so
the next policy of the same agent uses them again; any other function is compiled anew for each policy."""

PerturbedAct = Callable[[Key, Array, Acted | None, Array | None], Acted]
"""Maps a key, observations [N, ...], the last actions [N, ...] and whether this is the first step to actions [N, ...]. At the
first step of an episode there is no last action, and what is given as such is not used. P policies that act alike in different
ways are such a function that is a pytree, with the leading axis P in every leaf."""

Noise = Callable[[Key], Array]


def unchanged(x: Array) -> Array:
    """The mapping between worlds that share their spaces."""
    return x


def as_data(act: Act) -> Act:
    """A policy as a pytree, whose function is static and whose bound arguments are data."""
    return act if isinstance(act, Partial) else Partial(act)


@dataclass(frozen=True)
class Batch:
    """Size of the batches that training collects."""

    environments: int
    """Number N of environments that run side by side."""
    steps: int
    """Number T of steps of each."""
    rollouts_per_start: int = 1
    """Number of neighbouring environments that begin their episodes at the same start states."""
    contexts: int = 1
    """Number C of groups of neighbouring environments; in a family of worlds each group has a context of its own."""
    context_updates: int = 1
    """Batches that are collected before contexts are drawn anew, and all episodes begun anew with them."""


class AssessmentSize(NamedTuple):
    """Length and number of the rollouts from each start state of an assessment."""

    horizon: int
    replicates: int


@dataclass(frozen=True)
class Mapping:
    """Translation between the world of an assessment and the deployment world of a policy, if they differ."""

    observation: Callable[[Array], Array] = unchanged
    """From an observation of the assessment world to one of the deployment world."""
    action: Callable[[Array], Array] = unchanged
    """From an action of the deployment world to one of the assessment world."""
    action_space: Space | None = None
    """Action space of the deployment world; by default that of the assessment world."""


SAME = Mapping()


class AssessmentRollout(struct.PyTreeNode):
    """Rollouts of a policy in an assessment: h steps of k scenarios, R replicates each, time first.

    Where the assessment is taken in C contexts, every scenario is rolled out in each: the axis k is then C·k long, the
    scenarios of the first context before those of the second.
    """

    observation: Array
    """[h, k, R, ...] in the deployment world's space."""
    action: Array
    """[h, k, R, ...] in the policy's units."""
    log_prob: Float[Array, "h k R"]
    reward: Float[Array, "h k R"]
    alive: Bool[Array, "h k R"]
    """Whether the scenario was still under way when the step was taken; rewards elsewhere are 0."""

    def rewards_to_go(self, discount: float) -> Float[Array, "h k R"]:
        """Σ_{t' ≥ t} γ_A^(t' − t) r_t'; the first row is the return G of each rollout."""

        def backwards(following: Array, reward: Array) -> tuple[Array, Array]:
            total = reward + discount * following
            return total, total

        return jax.lax.scan(backwards, jnp.zeros_like(self.reward[0]), self.reward, reverse=True)[1]
