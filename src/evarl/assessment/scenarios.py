"""Start states written as numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

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
    """Start states for `Assessment`, from numbers: positions, indices of states, fields of a state, or reset seeds.

    Only for worlds in which a state is a single array or has `state_fields`.
    """
    simulator = simulator_for(world)
    expected = jax.tree.leaves(simulator.start_template())
    counted = len(expected) == 1 and jnp.issubdtype(expected[0].dtype, jnp.integer)
    if counted and (not world.state_fields or all(len(state) == 1 for state in states)):
        return simulator.checked(_indices(world, states, expected[0].dtype, name))
    if not world.state_fields and len(expected) != 1:
        raise InputError(
            f"{name}: a state of {world.name} is more than a list of numbers; use states visited by a base policy, or build "
            "an Assessment in Python"
        )
    _check_numbers(world, states, len(world.state_fields) or int(np.prod(expected[0].shape)), name)
    if world.state_fields:
        physics = _from_fields(world, states, name)
    else:
        physics = np.asarray(states, expected[0].dtype).reshape(len(states), *expected[0].shape)
    low, high = world.observation_space.bounds()
    for state, seen in zip(states, np.asarray(simulator.observations(physics)), strict=True):
        if not ((seen >= low) & (seen <= high)).all():
            raise InputError(f"{name}: {state} is outside of {world.name}, which shows {world.observation_space}")
    return physics


def _indices(world: AnyWorld, states: list[tuple[float, ...]], dtype: Any, name: str) -> Int[np.ndarray, " k"]:
    """States that are whole numbers, or reset seeds."""
    if any(len(state) != 1 or not float(state[0]).is_integer() or abs(state[0]) >= 2**63 for state in states):
        fields = f", or {','.join(world.state_fields)}" if world.state_fields else ""
        raise InputError(f"{name}: {states} is not allowed; must be one whole number for each state{fields}")
    indices, count = np.asarray([int(state[0]) for state in states]), getattr(world, "state_count", None)
    if count is not None and not ((indices >= 0) & (indices < count)).all():
        raise InputError(f"{name}: {indices.tolist()} is not allowed; {world.name} has states 0 to {count - 1}")
    return indices.astype(dtype)


def _check_numbers(world: AnyWorld, states: list[tuple[float, ...]], size: int, name: str) -> None:
    """Refuse states with too few or too many numbers, or numbers that are not finite in 32 bits."""
    refused = f"{name}: {states} is not allowed;"
    if any(len(state) != size for state in states):
        fields = f", {','.join(world.state_fields)}" if world.state_fields else ""
        raise InputError(f"{refused} a state of {world.name} has {size} numbers{fields}")
    if not (np.abs(np.asarray(states, np.float64)) <= np.finfo(np.float32).max).all():
        raise InputError(f"{refused} must be finite numbers")


def _from_fields(world: AnyWorld, states: list[tuple[float, ...]], name: str) -> Any:
    """Stacked states, from the numbers of their fields."""
    found = []
    for state in states:
        try:
            found.append(world.state_from(np.asarray(state, np.float64)))
        except ValueError as error:
            raise InputError(f"{name}: {state} is not allowed; {error}") from error
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)
