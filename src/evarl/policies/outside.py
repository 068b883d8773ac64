"""A policy of another package: a function on the host, and what identifies it. No JAX."""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evarl.errors import InputError, plain_text
from evarl.worlds.spaces import Box, Discrete, Space

Gives = Literal["probabilities", "logits", "gaussian", "squashed", "actions"]
"""What a policy's function returns for observations [B, ...]:

    probabilities   of discrete actions, [B, A]
    logits          logarithms of probabilities of discrete actions up to a constant, [B, A]
    gaussian        means and logarithms of standard deviations of continuous actions, each [B, D]
    squashed        the same, of actions before tanh, which takes them to the bounds −1 and 1
    actions         the actions themselves, [B] or [B, D], as the environment takes them: the policy is deterministic
"""
GIVES: tuple[Gives, ...] = ("probabilities", "logits", "gaussian", "squashed", "actions")
DESCRIBED = 500
"""Most characters of a description."""


@dataclass(frozen=True, eq=False)
class OutsidePolicy:
    """A policy as a function of arrays of NumPy, which draws nothing at random: actions are drawn from what it gives."""

    function: Callable[[np.ndarray], Any]
    """Observations [B, ...] → what `gives` says; where that is two arrays, a tuple of them."""
    gives: Gives
    description: str
    """What the policy is, on one line."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Everything that determines the function but its code, such as weights of networks; certificates state their SHA-256."""
    code: str = ""
    """The code of the function, or the structure of its networks; certificates state its SHA-256."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Packages on which its numbers depend."""
    observation_shape: tuple[int, ...] | None = None
    """Shape of one observation; None if any will do."""
    action_space: Space | None = None
    """Space of actions; None if the function does not say."""
    first_action: int | None = None
    """The number from which the discrete actions count that it gives; None: as the environment's own do."""

    def __post_init__(self) -> None:
        if self.gives not in GIVES:
            raise InputError(f"gives: {self.gives!r:.60} is not allowed; must be one of {', '.join(GIVES)}")
        told = plain_text(" ".join(self.description.split()))
        object.__setattr__(self, "description", told[:DESCRIBED])
        arrays = {name: np.asarray(array) for name, array in self.parameters.items()}
        for name, array in arrays.items():
            if array.dtype.kind not in "fiub":
                raise InputError(f"parameters: {name} has type {array.dtype}; must be numbers")
        object.__setattr__(self, "parameters", arrays)

    @property
    def deterministic(self) -> bool:
        """Whether it gives actions."""
        return self.gives == "actions"

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the parameters, the code and the description."""
        digest = hashlib.sha256(repr((self.gives, self.description, self.code)).encode())
        for name in sorted(self.parameters):
            array = np.ascontiguousarray(self.parameters[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def __call__(self, observation: np.ndarray, space: Space) -> tuple[np.ndarray, ...]:
        """What the policy gives for observations [B, ...], as checked arrays of 64 bits.

        Actions of discrete spaces are [B], and counted from 0.
        """
        observation = np.asarray(observation)
        found = self.function(observation)
        several = self.gives in ("gaussian", "squashed")
        if several and not (isinstance(found, tuple | list) and len(found) == 2):
            raise InputError(f"{self.description}: gives a {type(found).__name__}; must be means and log-deviations")
        count = space.size if isinstance(space, Box) else space.n
        batch = (len(observation),)
        expected = batch if self.deterministic and not isinstance(space, Box) else (*batch, count)
        arrays = []
        for one in found if several else (found,):
            array = np.asarray(one)
            if array.dtype.kind not in "fiub":
                raise InputError(f"{self.description}: gives {array.dtype}; must be numbers")
            if self.deterministic and array.shape[:1] == batch and array.size == np.prod(expected):
                array = array.reshape(expected)
            if several and array.ndim <= 1:  # one deviation for all
                array = np.broadcast_to(array, expected)
            if array.shape != expected:
                told = f"{self.gives} of shape {array.shape} for {batch[0]} observations"
                raise InputError(f"{self.description}: gives {told}; must be {expected}")
            arrays.append(array.astype(np.float64))
        self._check(arrays)
        if self.deterministic and not isinstance(space, Box):
            arrays = [self._from_zero(arrays[0], space)]
        return tuple(arrays)

    def _from_zero(self, action: np.ndarray, space: Discrete) -> np.ndarray:
        """Discrete actions counted from 0; InputError if one is not in the space."""
        first = space.start if self.first_action is None else self.first_action
        wrong = (action != np.round(action)) | (action < first) | (action >= first + space.n)
        if not wrong.any():
            return action - first
        allowed = f"must be a whole number from {first} to {first + space.n - 1}"
        if self.first_action is None and first:
            allowed += (
                f", as in the environment; a policy whose actions count from 0 to {space.n - 1} must be wrapped with "
                "first_action=0, as in evarl.policies.from_numpy"
            )
        raise InputError(f"{self.description}: takes the action {action[wrong][0]:g}; {allowed}")

    def _check(self, arrays: list[np.ndarray]) -> None:
        """Raise InputError if what the policy gives cannot be right."""
        allowed = np.isneginf(arrays[0]) if self.gives == "logits" else np.zeros(1, bool)
        if not all((np.isfinite(array) | allowed).all() for array in arrays):
            raise InputError(f"{self.description}: gives {self.gives} that are not finite; must be finite numbers")
        if self.gives == "probabilities":
            sums = arrays[0].sum(axis=1)
            if (arrays[0] < 0).any() or np.abs(sums - 1.0).max() > 1e-3:
                worst = sums[np.abs(sums - 1.0).argmax()]
                raise InputError(
                    f"{self.description}: gives probabilities that are below 0 or sum to {worst:.4g}; must sum to 1"
                )

    def check_spaces(self, where: str, observation_space: Box, action_space: Space) -> None:
        """Raise InputError unless the policy fits the spaces of a world."""
        shape = self.observation_shape
        if shape is not None and shape != observation_space.shape:
            raise InputError(
                f"{self.description}: takes observations of shape {shape}; those of {where} have {observation_space.shape}"
            )
        own, continuous = self.action_space, isinstance(action_space, Box)
        if own is not None and (
            isinstance(own, Box) != continuous
            or (own.size if isinstance(own, Box) else own.n)
            != (action_space.size if isinstance(action_space, Box) else action_space.n)
        ):
            raise InputError(f"{self.description}: has actions {own}; those of {where} are {action_space}")
        kinds = ("gaussian", "squashed", "actions") if continuous else ("probabilities", "logits", "actions")
        if self.gives not in kinds:
            raise InputError(
                f"{self.description}: gives {self.gives}, and {where} has actions {action_space}; must give {' or '.join(kinds)}"
            )


def structure_of(network: Any) -> str:
    """How a network prints itself, without addresses in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(network))


def source_of(function: Callable[..., Any]) -> str:
    """The source of the file that a function is defined in, or of the function alone; "" where there is none."""
    inner = getattr(function, "__func__", getattr(function, "func", function))
    inner = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner)
    try:
        if (file := inspect.getsourcefile(inner)) is not None and Path(file).is_file():
            return Path(file).read_text(encoding="utf-8", errors="replace")
        return inspect.getsource(inner)
    except (OSError, TypeError):
        return ""


def required_parameters(function: Any) -> int:
    """The number of positional parameters of a function without default; 2 where that is not known.

    >>> required_parameters(lambda observation, scale=1.0: observation)
    1
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)
