"""How episodes begin in worlds on the host: reset seeds, given states, and contexts."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from evarl.worlds.world import HostEnvironments

SEEDS = 2**31 - 1
"""Reset seeds are drawn from 0 to one less."""


class HostStarts(NamedTuple):
    """Start states in a family of worlds: reset seeds, and the context of each."""

    seeds: Int[np.ndarray, " Q"]
    contexts: Float[np.ndarray, "Q P"]


@partial(jax.jit, static_argnames="count")
def reset_seeds(keys: UInt32[Array, "P 2"], count: int) -> tuple[Int[Array, "P count"], UInt32[Array, "P 2"]]:
    """Reset seeds for each policy, and a key for its actions."""
    reset_keys, play_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    return jax.vmap(lambda key: jax.random.randint(key, (count,), 0, SEEDS))(reset_keys), play_keys


def reset_all(environments: HostEnvironments, starts: list[Any], contexts: np.ndarray | None = None) -> np.ndarray:
    """Begin an episode in every environment: the observations."""
    return np.stack([placed(environments, i, start, contexts, i) for i, start in enumerate(starts)])


def placed(environments: HostEnvironments, i: int, start: Any, contexts: np.ndarray | None, row: int) -> np.ndarray:
    """Begin an episode in one environment, in one of the contexts if there are any: the observation."""
    if contexts is not None:
        environments.place(i, contexts[row])
    return begun(environments, i, start)


def begun(environments: HostEnvironments, i: int, start: Any) -> np.ndarray:
    """Begin an episode in one environment, by a reset seed or at the numbers [n] of a state: the observation."""
    return environments.begin(i, start) if np.ndim(start) else environments.reset(i, int(start))


def ended(*flags: Bool[np.ndarray, " N"]) -> list[int]:
    """The environments in which one of these flags is set; mostly there are none, which is found out first.

    To count is ten times faster than `any` for a few environments.
    """
    if not any(map(np.count_nonzero, flags)):
        return []
    return np.flatnonzero(np.logical_or.reduce(flags)).tolist()


def context_seed(seed: int, period: int) -> int:
    """Contexts are a function of the run's seed and of how often they were drawn, so that a resumed run has the same."""
    return int(np.random.SeedSequence([seed, period]).generate_state(1)[0])


def reset_seed(seed: int, index: int, group: int, resets: int) -> int:
    """The n-th episode of a batch begins at the same state in all environments of a group."""
    return int(np.random.SeedSequence([seed, index, group, resets]).generate_state(1)[0])
