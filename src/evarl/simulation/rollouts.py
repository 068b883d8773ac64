"""What simulators are given and what they return, whichever engine runs the world."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import InputError
from evarl.worlds.spaces import Discrete, Space
from evarl.worlds.world import Key

Act = Callable[[Key, Array], tuple[Array, ...]]
"""Maps a key and observations [N, ...] to actions [N, ...] and their log-probabilities [N]; further outputs become the last
fields of the trajectory. Given as `jax.tree_util.Partial(agent.act, policy)`, the policy is data to the compiled programs, so
the next policy of the same agent uses them again; any other function is compiled anew for each policy."""

Noise = Callable[[Key], Array]
Function = TypeVar("Function", bound=Callable[..., Any])


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


@dataclass(frozen=True)
class StartStates:
    """Q states at which rollouts begin. What a state is, only the simulator that made it knows."""

    state: Any
    """Stacked states of a compiled world, or reset seeds [Q] of a host world."""
    observation: Array | np.ndarray
    """[Q, ...]"""
    elapsed: Int[Array | np.ndarray, " Q"]
    """Steps of the episode that were taken before."""
    identity: Any
    """Arrays with the leading axis Q; states are the same where all of these agree."""

    @property
    def drawn(self) -> int:
        """The number Q."""
        return int(self.observation.shape[0])

    @cached_property
    def distinct(self) -> int:
        """How many of the states are different."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.identity)]
        return len({b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(self.drawn)})

    @property
    def queries(self) -> Array | np.ndarray:
        """Observations at which values are predicted: the first if all states are equal, else all of them."""
        return self.observation[:1] if self.distinct == 1 else self.observation

    def __str__(self) -> str:
        return f"{self.distinct} distinct of {self.drawn} drawn from μ_D"


class Returns(NamedTuple):
    """Returns of whole episodes."""

    discounted: Float[np.ndarray, "..."]
    """Σ_t γ^t r_t."""
    undiscounted: Float[np.ndarray, "..."]
    """Σ_t r_t."""


class AssessmentRollout(struct.PyTreeNode):
    """Rollouts of a policy in an assessment: h steps of k scenarios, R replicates each, time first."""

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


class ActionError(InputError):
    """A policy took an action that its world does not have."""

    def __init__(self, told: str, who: str = "the policy"):
        super().__init__(f"{who} {told}")
        self.told = told


def check_actions(world: str, space: Space, actions: np.ndarray) -> None:
    """Refuse actions [M, ...] in the policy's units that a world does not have; coordinates with two bounds are clipped."""
    if isinstance(space, Discrete):
        wrong, expected = (actions < 0) | (actions >= space.n), f"a whole number from 0 to {space.n - 1}"
    else:
        low, high = (bound.reshape(1, -1) for bound in space.bounds())
        clipped = np.isfinite(low) & np.isfinite(high)
        inside = np.isfinite(actions) & (clipped | ((actions >= low) & (actions <= high)))
        wrong, expected = ~inside.all(axis=1), f"finite numbers that {space} has room for"
    if wrong.any():
        raise ActionError(f"takes the action {actions[wrong][0]} in {world}; must be {expected}")
