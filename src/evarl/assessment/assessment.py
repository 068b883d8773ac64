"""An assessment: k start states of a world, a short horizon, and what a policy shows there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float

from evarl.agents.distributions import world_action
from evarl.errors import InputError
from evarl.ranges import whole
from evarl.simulation.collect import Act
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import HostWorld, Key, World

Mapping = Callable[[Array], Array]


def unchanged(x: Array) -> Array:
    """The mapping between worlds that share their spaces."""
    return x


class AssessmentRollout(struct.PyTreeNode):
    """What a policy did in an assessment: h steps of k scenarios, R replicates each, time first."""

    observation: Array
    """[h, k, R, ...] in the deployment world's space."""
    action: Array
    """[h, k, R, ...]"""
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


@dataclass(frozen=True, eq=False)
class Assessment:
    """A driver's test in a JAX world. `map_observation` and `map_action` lead between two worlds that differ.

    >>> from evarl.worlds.navigation import open_field
    >>> import numpy as np
    >>> Assessment(open_field(), np.array([[0.2, 0.2], [0.8, 0.2]], np.float32), horizon=3).scenarios
    2
    """

    world: World
    start_states: Any
    """Physics of the k start states, stacked."""
    horizon: int
    discount: float = 1.0
    map_observation: Mapping = unchanged
    """φ_A: from what this world shows to what the policy is used to."""
    map_action: Mapping = unchanged
    """From an action of the deployment world to one of this world."""

    def __post_init__(self) -> None:
        whole("assessment.horizon", self.horizon)
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(self.start_states)}
        if len(sizes) != 1 or sizes in ({()}, {(0,)}):
            raise InputError(f"assessment.start-states: want k ≥ 1 stacked states, got leading shapes {sorted(sizes)}")
        wanted = jax.eval_shape(self.world.initial, jax.random.PRNGKey(0))
        given = jax.eval_shape(
            lambda states: jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], states), self.start_states
        )
        same = str(jax.tree.structure(wanted)) == str(jax.tree.structure(given))
        if not same or any(
            a.shape != b.shape or a.dtype != b.dtype
            for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(given), strict=False)
        ):
            raise InputError(
                f"assessment.start-states: a state of {self.world.name} is {_describe(wanted)}, got {_describe(given)}"
            )

    @property
    def scenarios(self) -> int:
        """The number k of start states."""
        return int(np.shape(jax.tree.leaves(self.start_states)[0])[0])

    def observations(self) -> Array:
        """What the policy sees at the start states, [k, ...]."""
        return jax.vmap(lambda physics: self.map_observation(self.world.observation(physics)))(self.start_states)

    def check_compatible(self, deployment: World | HostWorld) -> None:
        """Refuse an assessment in which a policy of the deployment world could not act."""
        if isinstance(deployment, HostWorld):
            raise InputError(
                f"assessment.world: {self.world.name} is compiled, {deployment.name} is on the host; want both alike"
            )
        shown = jax.eval_shape(self.observations)
        check_spaces(self.world, shown.shape[1:], shown.dtype, deployment, self.map_action is unchanged)

    def take(self, act: Act, key: Key, replicates: int, deployment: World | HostWorld) -> AssessmentRollout:
        """Roll the policy through every scenario `replicates` times."""
        k, rollouts = self.scenarios, self.scenarios * replicates
        starts = jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf), replicates, axis=0), self.start_states)
        state, _ = jax.vmap(self.world.begin)(starts)

        def one_step(carry: tuple[Any, Array], key: Key) -> tuple[tuple[Any, Array], tuple[Array, ...]]:
            state, alive = carry
            act_key, step_key = jax.random.split(key)
            shown = jax.vmap(lambda physics: self.map_observation(self.world.observation(physics)))(state.physics)
            action, log_prob = act(act_key, shown)
            taken = jax.vmap(self.map_action)(world_action(deployment.action_space, action))
            step = jax.vmap(self.world.step)(jax.random.split(step_key, rollouts), state, taken)
            reward = jnp.where(alive, step.reward, 0.0)
            going_on = alive & ~(step.terminated | step.truncated)
            return (step.state, going_on), (shown, action, log_prob, reward, alive)

        keys = jax.random.split(key, self.horizon)
        _, steps = jax.lax.scan(one_step, (state, jnp.ones(rollouts, bool)), keys)
        return AssessmentRollout(*(x.reshape(self.horizon, k, replicates, *x.shape[2:]) for x in steps))


def check_spaces(
    world: World | HostWorld, shape: tuple[int, ...], dtype: Any, deployment: World | HostWorld, same_actions: bool
) -> None:
    """The conditions under which one policy fits two worlds; the error names the space, both shapes and both dtypes."""
    wanted, kind = deployment.observation_space.shape, np.dtype(deployment.observation_space.dtype)
    if shape != wanted or dtype != kind:
        raise InputError(
            f"assessment.world: {world.name} shows {dtype}{list(shape)}, {deployment.name} "
            f"{kind}{list(wanted)} in the observation space; give a map_observation that leads from one to the other"
        )
    if same_actions and world.action_space != deployment.action_space:
        raise InputError(
            f"assessment.world: {world.name} takes {world.action_space}, {deployment.name} {deployment.action_space} "
            "as action space; give a map_action that leads from the second to the first"
        )


def _describe(tree: Any) -> str:
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)) or "nothing"


def discrete_states(states: list[tuple[float, ...]]) -> list[int]:
    """Whole numbers, one for each state."""
    if any(len(state) != 1 or not float(state[0]).is_integer() for state in states):
        raise InputError(f"assessment.start-states: want one whole number for each state, got {states}")
    return [int(state[0]) for state in states]


def given_states(world: World, states: list[tuple[float, ...]]) -> Any:
    """Start states written as numbers, for worlds whose physics is a single array."""
    wanted = jax.tree.leaves(jax.eval_shape(world.initial, jax.random.PRNGKey(0)))
    if len(wanted) != 1:
        raise InputError(
            f"assessment.start-states: a state of {world.name} is more than a list of numbers; "
            "use states visited by a base policy, or build an Assessment in Python"
        )
    if jnp.issubdtype(wanted[0].dtype, jnp.integer):
        count = world.observation_space.size if isinstance(world.action_space, Discrete) else None
        indices = discrete_states(states)
        if count is not None and not all(0 <= index < count for index in indices):
            raise InputError(f"assessment.start-states: {world.name} has states 0 to {count - 1}, got {indices}")
        return np.asarray(indices, wanted[0].dtype)
    if not np.isfinite(np.concatenate([np.asarray(state) for state in states])).all():
        raise InputError(f"assessment.start-states: want finite numbers, got {states}")
    size = int(np.prod(wanted[0].shape))
    if any(len(state) != size for state in states):
        raise InputError(f"assessment.start-states: a state of {world.name} has {size} numbers, got {states}")
    physics = np.asarray(states, wanted[0].dtype).reshape(len(states), *wanted[0].shape)
    low, high = world.observation_space.bounds()
    for state, seen in zip(states, np.asarray(jax.vmap(world.observation)(physics)), strict=True):
        if not ((seen >= low) & (seen <= high)).all():
            raise InputError(
                f"assessment.start-states: {state} is outside of {world.name}, which shows {world.observation_space}"
            )
    return physics
