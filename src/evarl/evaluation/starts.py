"""Start states drawn from the deployment distribution μ_D, and the random keys of measurements."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int

from evarl.ranges import MOST, whole
from evarl.truth.monte_carlo import start_states
from evarl.worlds.world import HostWorld, Key, World, WorldState

SEED_RANGE = 2**31


def root_key(random_seed: int) -> Key:
    """The key from which everything random in a measurement is derived; no key of training is derived from it."""
    whole("random-seed", random_seed, least=-MOST)
    return jax.random.fold_in(jax.random.PRNGKey(random_seed), SEED_RANGE - 1)


@dataclass(frozen=True)
class Starts:
    """Q start states drawn from μ_D."""

    states: WorldState | None
    """Stacked states; None in worlds on the host, where a start state is a reset seed."""
    seeds: Int[np.ndarray, " Q"] | None
    """Reset seeds, in worlds on the host."""
    observation: Array | np.ndarray
    """[Q, ...]"""
    distinct: int
    """Number of different start states."""

    @property
    def drawn(self) -> int:
        """The number Q of states drawn."""
        return int(self.observation.shape[0])

    @property
    def queries(self) -> Array | np.ndarray:
        """Observations at which values are predicted: the first if all start states are equal, else all of them."""
        return self.observation[:1] if self.distinct == 1 else self.observation

    def __str__(self) -> str:
        return f"{self.distinct} distinct of {self.drawn} drawn from μ_D"


def draw_starts(world: World | HostWorld, key: Key, count: int) -> Starts:
    """Draw start states from μ_D and count how many are different."""
    if isinstance(world, HostWorld):
        seeds = np.asarray(jax.random.randint(key, (count,), 0, SEED_RANGE - 1))
        environments = world.open(1)
        try:
            observation = np.stack([environments.reset(0, int(seed)) for seed in seeds])
        finally:
            environments.close()
        return Starts(None, seeds, observation, _distinct(observation))
    states, seen = start_states(world, key, count)
    return Starts(states, None, seen, _distinct(states.physics))


def _distinct(tree: Any) -> int:
    """The number of different rows of stacked arrays."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return len({b"".join(leaf[row].tobytes() for leaf in leaves) for row in range(len(leaves[0]))})
