"""An assessment: k start states of a world, a short horizon, and rollouts of a policy from there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from evarl.assessment.scenarios import NAME
from evarl.errors import InputError
from evarl.ranges import whole
from evarl.simulation.rollouts import Act, AssessmentRollout, AssessmentSize, Mapping, PerturbedAct, unchanged
from evarl.simulation.simulator import Simulator, simulator_for
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
    """Physics of the k start states, stacked; for a host world k reset seeds, or the numbers [k, n] of k states."""
    horizon: int
    """Steps in each scenario."""
    discount: float = 1.0
    """Discount γ_A of the assessment returns."""
    map_observation: Callable[[Array], Array] = unchanged
    """φ_A: from an observation of this world to one of the deployment world."""
    map_action: Callable[[Array], Array] = unchanged
    """From an action of the deployment world to one of this world."""
    map_context: Callable[[Array], Array] = unchanged
    """From a context [P] of the deployment world to one of this world."""

    def __post_init__(self) -> None:
        whole("assessment.horizon", self.horizon)
        states = self.simulator.checked(self.start_states)
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(states)}
        if len(sizes) != 1 or sizes in ({()}, {(0,)}):
            raise InputError(f"{NAME}: leading shapes {sorted(sizes)} are not allowed; must be k ≥ 1 stacked states")
        template = self.simulator.start_template(states)
        expected, given = _described(template), _described(states, stacked=True)
        if given != expected or str(jax.tree.structure(states)) != str(jax.tree.structure(template)):
            raise InputError(f"{NAME}: {given} is not allowed; a state of {self.world.name} is {expected}")
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
        return any(f is not unchanged for f in (self.map_observation, self.map_action, self.map_context))

    def observations(self) -> Array | np.ndarray:
        """Observations [k, ...] at the start states, in the deployment world's space."""
        return self.simulator.observations(self.start_states, Mapping(self.map_observation))

    def take(
        self,
        act: Act,
        key: Key,
        replicates: int,
        deployment: AnyWorld | None = None,
        contexts: Float[Array | np.ndarray, "C P"] | None = None,
    ) -> AssessmentRollout:
        """Roll the policy out in every scenario, `replicates` times, in each of some contexts of the deployment world.

        `deployment` is the world whose actions the policy takes, by default the assessment's world. In a compiled world
        the call can be traced.
        """
        how = self._how(key, replicates, deployment or self.world, contexts)
        return self.simulator.assess(act, *how)

    def take_perturbed(
        self,
        acts: PerturbedAct,
        keys: UInt32[Array, "count 2"],
        replicates: int,
        deployment: AnyWorld,
        contexts: Float[Array | np.ndarray, "count P"] | None = None,
    ) -> AssessmentRollout:
        """As `take`, for each of some perturbed policies, in a context of its own if there are any: [count, h, k, R, ...].

        Log-probabilities are not known, and 0.
        """
        how = self._how(keys, replicates, deployment, contexts)
        return self.simulator.assess_each(acts, *how)

    def _how(
        self,
        key: Key | UInt32[Array, "count 2"],
        replicates: int,
        deployment: AnyWorld,
        contexts: Float[Array | np.ndarray, "C P"] | None,
    ) -> tuple[Any, AssessmentSize, Any, Mapping, Float[Array, "C Q"] | None]:
        """What a simulator is told beside the policy, which takes the actions of the deployment world."""
        if contexts is not None:
            contexts = self._contexts_here(deployment, jnp.asarray(contexts))
        mapping = Mapping(self.map_observation, self.map_action, deployment.action_space)
        return self.start_states, AssessmentSize(self.horizon, replicates), key, mapping, contexts

    def _contexts_here(self, deployment: AnyWorld, contexts: Float[Array, "C P"]) -> Float[Array, "C Q"]:
        """Contexts of the assessment's world: mapped, or those that have the same names."""
        if self.map_context is not unchanged:
            return jax.vmap(self.map_context)(contexts)
        names = [context.name for context in deployment.contexts]
        return contexts[:, np.asarray([names.index(context.name) for context in self.world.contexts], int)]

    def check_compatible(self, deployment: AnyWorld) -> None:
        """Refuse an assessment in which a policy of the deployment world cannot act."""
        here, there = f"assessment.world: {self.world.name}", deployment.name
        kinds = [("on the host", "in JAX")[simulator_for(world).traceable] for world in (self.world, deployment)]
        if kinds[0] != kinds[1]:
            raise InputError(f"{here} is {kinds[0]}, {there} is {kinds[1]}; both must be of one kind")
        space, wanted = self.world.observation_space, deployment.observation_space
        shown = jax.eval_shape(self.map_observation, jax.ShapeDtypeStruct(space.shape, np.dtype(space.dtype)))
        if shown.shape != wanted.shape or shown.dtype != np.dtype(wanted.dtype):
            raise InputError(
                f"{here} shows {shown.dtype}{list(shown.shape)}, {there} {wanted.dtype}{list(wanted.shape)} in the "
                "observation space; give a map_observation from one to the other"
            )
        names = [context.name for context in deployment.contexts]
        unknown = [context.name for context in self.world.contexts if context.name not in names]
        if self.map_context is unchanged and unknown:
            raise InputError(
                f"{here} varies {', '.join(unknown)}, {there} {', '.join(names) or 'nothing'}; give a map_context from the "
                "second to the first"
            )
        if self.map_action is unchanged and self.world.action_space != deployment.action_space:
            raise InputError(
                f"{here} takes {self.world.action_space}, {there} {deployment.action_space} as action space; give a "
                "map_action from the second to the first"
            )


def _described(tree: Any, stacked: bool = False) -> str:
    """Dtypes and shapes that arrays have in a compiled program; without the leading axis if they are stacked."""
    arrays = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    told = [f"{jax.dtypes.canonicalize_dtype(x.dtype)}{list(x.shape[int(stacked) :])}" for x in arrays]
    return ", ".join(told) or "nothing"
