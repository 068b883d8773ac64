"""Start states written as numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.errors import InputError
from evarl.simulation.simulator import simulator_for
from evarl.worlds.world import AnyWorld

NAME = "assessment.start-states"


def parse_start_states(text: str, name: str = NAME) -> list[tuple[float, ...]]:
    """Numbers separated by commas within a state and by spaces between states; errors begin with `name`.

    >>> parse_start_states("0.2,0.2 0.8,0.2")
    [(0.2, 0.2), (0.8, 0.2)]
    """
    try:
        return [tuple(float(number) for number in state.split(",")) for state in text.split()]
    except ValueError as error:
        raise InputError(f"{name}: '{text}' is not a list like \"0.2,0.2 0.8,0.2\"") from error


def given_states(world: AnyWorld, states: list[tuple[float, ...]], name: str = NAME) -> Any:
    """Start states for `Assessment`, from numbers: positions, indices of states, or reset seeds of a host world.

    Only for worlds in which a start state is a single array.
    """
    simulator = simulator_for(world)
    expected = jax.tree.leaves(simulator.start_template())
    if len(expected) != 1:
        raise InputError(
            f"{name}: a state of {world.name} is more than a list of numbers; use states visited by a base policy, or build "
            "an Assessment in Python"
        )
    first, refused = expected[0], f"{name}: {states} is not allowed;"
    if jnp.issubdtype(first.dtype, jnp.integer):
        if any(len(state) != 1 or not float(state[0]).is_integer() for state in states):
            raise InputError(f"{refused} must be one whole number for each state")
        indices, count = np.asarray([int(state[0]) for state in states]), getattr(world, "state_count", None)
        if count is not None and not ((indices >= 0) & (indices < count)).all():
            raise InputError(f"{name}: {indices.tolist()} is not allowed; {world.name} has states 0 to {count - 1}")
        return simulator.checked(indices.astype(first.dtype))
    if not np.isfinite(np.concatenate([np.asarray(state) for state in states])).all():
        raise InputError(f"{refused} must be finite numbers")
    size = int(np.prod(first.shape))
    if any(len(state) != size for state in states):
        raise InputError(f"{refused} a state of {world.name} has {size} numbers")
    physics = np.asarray(states, first.dtype).reshape(len(states), *first.shape)
    low, high = world.observation_space.bounds()
    for state, seen in zip(states, np.asarray(simulator.observations(physics)), strict=True):
        if not ((seen >= low) & (seen <= high)).all():
            raise InputError(f"{name}: {state} is outside of {world.name}, which shows {world.observation_space}")
    return physics
