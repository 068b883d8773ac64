"""Spaces and observations of Gymnasium in evarl's form."""

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from evarl.errors import InputError
from evarl.worlds.spaces import Box, Space, as_space

FLATTENED = spaces.Dict | spaces.Tuple | spaces.MultiDiscrete | spaces.MultiBinary
"""Observation spaces whose elements become one row of numbers, as by Gymnasium's `flatten`."""
WRAPS = {
    "MultiDiscrete": "wrap it so that one Discrete number stands for each combination",
    "MultiBinary": "wrap it so that one Discrete number stands for each combination",
    "Dict": "wrap it with gymnasium.wrappers.TransformAction so that one Box or Discrete remains",
    "Tuple": "wrap it with gymnasium.wrappers.TransformAction so that one Box or Discrete remains",
}
"""What helps where an action space is refused."""


def both_spaces(name: str, environment: gymnasium.Env[Any, Any]) -> tuple[Box, Space]:
    """Observation and action space of an environment."""
    shown, taken = _flat(name, environment.observation_space), environment.action_space
    if isinstance(taken, FLATTENED):
        kind, told = type(taken).__name__, " ".join(str(taken).split())
        raise InputError(
            f"world: '{name}' has the action space {told}, not supported; must be Box or Discrete: {WRAPS[kind]}"
        )
    observation = as_space(name, "observation", shown, spaces, _dtype(shown))
    return cast(Box, observation), as_space(name, "action", taken, spaces)


def _flat(name: str, space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space of observations as one Box or Discrete; images among other observations are refused."""
    if not isinstance(space, FLATTENED):
        return space
    if any(len(leaf.shape or ()) > 1 for leaf in _leaves(space)) or not space.is_np_flattenable:
        told = " ".join(str(space).split())
        raise InputError(
            f"world: '{name}' has the observation space {told:.200}, not supported; what is flattened must be rows of numbers: "
            "wrap it with gymnasium.wrappers.FilterObservation or TransformObservation so that one Box remains"
        )
    return spaces.flatten_space(space)


def _leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """The spaces that a space is made of."""
    inner = space.spaces.values() if isinstance(space, spaces.Dict) else getattr(space, "spaces", None)
    return [space] if inner is None else [leaf for one in inner for leaf in _leaves(one)]


def _dtype(space: spaces.Space[Any]) -> str:
    """Dtype of observations: pixels and flags keep theirs, every other number is float32."""
    if isinstance(space, FLATTENED):
        return "float32"
    return str(space.dtype) if space.dtype in (np.uint8, np.bool_) else "float32"


def shown_as(space: spaces.Space[Any], observation: Any) -> np.ndarray:
    """A copy of Gymnasium's observation in evarl's form; ValueError if it does not fit its space."""
    if isinstance(space, FLATTENED):
        if observation not in space:
            raise ValueError(f"the observation is {observation!r:.100}; must be one of {space!s:.100}")
        row = np.array(spaces.flatten(space, observation), np.float32)
        check_finite(row)
        return row
    given = np.asarray(observation)
    if given.shape != space.shape or not np.can_cast(given.dtype, space.dtype or given.dtype, "same_kind"):
        have = f"{given.dtype}{list(given.shape)}"
        raise ValueError(f"the observation is {have}; must be {space.dtype}{list(space.shape or ())} as in the space")
    if isinstance(space, spaces.Discrete):
        index, count = int(given) - int(space.start), int(space.n)
        if not 0 <= index < count:
            raise ValueError(f"the observation is {given}; must be one of {count} numbers from {space.start} on")
        return (np.arange(count) == index).astype(np.float32)
    with np.errstate(over="ignore"):
        shown = np.array(given, _dtype(space))
    check_finite(shown)
    return shown


def check_finite(observation: np.ndarray) -> None:
    """ValueError for an observation that is not finite."""
    if observation.dtype == np.float32 and not np.isfinite(observation).all():
        raise ValueError("the observation holds NaN or infinity; must be finite numbers in 32 bits")
