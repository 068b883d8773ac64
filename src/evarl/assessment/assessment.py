"""An assessment: k start states of a world, a short horizon, and rollouts of a policy from there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from evarl.errors import InputError
from evarl.ranges import whole
from evarl.simulation.rollouts import Act, AssessmentRollout, Mapping, unchanged
from evarl.simulation.simulator import Simulator, simulator_for
from evarl.worlds.spaces import Space
from evarl.worlds.world import AnyWorld, Key


@dataclass(frozen=True, eq=False)
class Assessment:
    """The scenarios in which policies are assessed. The two mappings translate between worlds that differ.

    >>> from evarl.worlds.navigation import open_field
    >>> import numpy as np
    >>> Assessment(open_field(), np.array([[0.2, 0.2], [0.8, 0.2]], np.float32), horizon=3).scenarios
    2
    """

    world: AnyWorld
    start_states: Any
    """Physics of the k start states, stacked; for a host world k reset seeds."""
    horizon: int
    """Steps in each scenario."""
    discount: float = 1.0
    """Discount γ_A of the assessment returns."""
    map_observation: Callable[[Array], Array] = unchanged
    """φ_A: from an observation of this world to one of the deployment world."""
    map_action: Callable[[Array], Array] = unchanged
    """From an action of the deployment world to one of this world."""

    def __post_init__(self) -> None:
        whole("assessment.horizon", self.horizon)
        states = self.simulator.checked(self.start_states)
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(states)}
        if len(sizes) != 1 or sizes in ({()}, {(0,)}):
            raise InputError(
                f"assessment.start-states: leading shapes {sorted(sizes)} are not allowed; must be k ≥ 1 stacked states"
            )
        expected, given = _shapes(self.simulator.start_template()), _shapes(states, stacked=True)
        same = str(jax.tree.structure(expected)) == str(jax.tree.structure(given))
        if not same or jax.tree.leaves(expected) != jax.tree.leaves(given):
            raise InputError(
                f"assessment.start-states: {_described(given)} is not allowed; a state of {self.world.name} is "
                f"{_described(expected)}"
            )
        object.__setattr__(self, "start_states", states)

    @property
    def simulator(self) -> Simulator:
        """The simulator of the assessment's world."""
        return simulator_for(self.world)

    @property
    def scenarios(self) -> int:
        """The number k of start states."""
        return int(np.shape(jax.tree.leaves(self.start_states)[0])[0])

    @property
    def mapped(self) -> bool:
        """Whether there are mappings between two worlds."""
        return self.map_observation is not unchanged or self.map_action is not unchanged

    def observations(self) -> Array | np.ndarray:
        """Observations [k, ...] at the start states, in the deployment world's space."""
        return self.simulator.observations(self.start_states, self._mapping(None))

    def take(self, act: Act, key: Key, replicates: int, action_space: Space | None = None) -> AssessmentRollout:
        """Roll the policy out in every scenario, `replicates` times.

        `action_space` is that of the deployment world, by default that of the assessment's world. In a compiled world the
        call can be traced.
        """
        mapping = self._mapping(action_space)
        return self.simulator.assess(act, self.start_states, self.horizon, replicates, key, mapping)

    def check_compatible(self, deployment: AnyWorld) -> None:
        """Refuse an assessment in which a policy of the deployment world cannot act."""
        kinds = ("on the host", "in JAX")
        here, there = (simulator_for(world).traceable for world in (self.world, deployment))
        if here != there:
            raise InputError(
                f"assessment.world: {self.world.name} is {kinds[here]}, {deployment.name} is {kinds[there]}; both must be of "
                "one kind"
            )
        space, wanted = self.world.observation_space, deployment.observation_space
        shown = jax.eval_shape(self.map_observation, jax.ShapeDtypeStruct(space.shape, np.dtype(space.dtype)))
        if shown.shape != wanted.shape or shown.dtype != np.dtype(wanted.dtype):
            raise InputError(
                f"assessment.world: {self.world.name} shows {shown.dtype}{list(shown.shape)}, {deployment.name} "
                f"{wanted.dtype}{list(wanted.shape)} in the observation space; give a map_observation from one to the other"
            )
        if self.map_action is unchanged and self.world.action_space != deployment.action_space:
            raise InputError(
                f"assessment.world: {self.world.name} takes {self.world.action_space}, {deployment.name} "
                f"{deployment.action_space} as action space; give a map_action from the second to the first"
            )

    def _mapping(self, action_space: Space | None) -> Mapping:
        return Mapping(self.map_observation, self.map_action, action_space)


def _shapes(tree: Any, stacked: bool = False) -> Any:
    """Shapes and dtypes that arrays have in a compiled program; without the leading axis if they are stacked."""

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape[int(stacked) :], jax.dtypes.canonicalize_dtype(array.dtype))

    return jax.tree.map(shape, tree)


def _described(tree: Any) -> str:
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)) or "nothing"
