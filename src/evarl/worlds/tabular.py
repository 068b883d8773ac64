"""Finite Markov decision processes given by arrays. Their exact values are in `evarl.truth.exact`."""

import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from evarl.errors import FileError, InputError, unknown_name
from evarl.storage.files import read_regular, reason
from evarl.storage.tensors import true_flags
from evarl.worlds.contexts import Context, ContextParameter
from evarl.worlds.spaces import Box, Discrete
from evarl.worlds.world import Key, World, bounded_returns

LARGEST = 2**30
"""Maximum accepted size of all arrays of a file, in bytes; a small compressed file can hold far more."""


@dataclass(frozen=True, eq=False)
class Tabular(World):
    """A finite MDP. Observations are one-hot vectors of states; entering a terminal state ends the episode.

    Arrays with a leading axis C are a family of tables, whose hidden context is the number of the table; without contexts,
    the first one holds.

    >>> import numpy as np
    >>> world = Tabular(transitions=np.ones((3, 2, 3)) / 3, rewards=np.zeros((3, 2)), start=np.ones(3) / 3)
    >>> world.observation_space.shape, world.action_space.n
    ((3,), 2)
    """

    transitions: np.ndarray
    """[S, A, S] probabilities of the next state; [C, S, A, S] in a family of C tables."""
    rewards: np.ndarray
    """[S, A] expected rewards; [C, S, A] in a family."""
    start: np.ndarray
    """[S] μ_D; a family may have [C, S]."""
    terminal: np.ndarray | None = None
    """[S] states that end an episode when entered; none by default."""
    horizon: int = 100
    discount: float = 0.9
    name: str = "tabular"
    contexts: tuple[Context, ...] = ()

    def __post_init__(self) -> None:
        rewards = np.asarray(self.rewards, np.float64)
        if rewards.ndim not in (2, 3) or not rewards.size or not (np.abs(rewards) <= np.finfo(np.float32).max).all():
            raise InputError(
                f"{self.name}: rewards must be an [S, A] array of finite float32; got shape {rewards.shape}"
            )
        *family, states, actions = rewards.shape
        terminal = np.zeros(states, bool) if self.terminal is None else self.terminal
        arrays = {"rewards": rewards, "terminal": np.asarray(terminal, bool)}
        arrays |= {label: np.asarray(getattr(self, label), np.float64) for label in ("transitions", "start")}
        shapes = {"transitions": (*family, states, actions, states), "start": (states,), "terminal": (states,)}
        if arrays["start"].ndim == 2:
            shapes["start"] = (*family, states)
        for label, shape in shapes.items():
            array = arrays[label]
            if array.shape != shape:
                axes = "[C, S, A]" if family else "[S, A]"
                raise InputError(
                    f"{self.name}: {label} has shape {array.shape}; must be {shape}, as rewards are {axes}"
                )
            if label != "terminal" and ((array < 0).any() or not np.allclose(array.sum(-1), 1.0, atol=1e-6)):
                raise InputError(f"{self.name}: {label} must be probabilities that sum to 1 over the last axis")
        for label, array in arrays.items():
            object.__setattr__(self, label, array)  # as frozen dataclasses normalise their fields

    @property
    def parameters(self) -> tuple[ContextParameter, ...]:  # type: ignore[override]
        """Which of the C tables holds; nothing where there is only one."""
        if self.rewards.ndim == 2:
            return ()
        return (
            ContextParameter("context", 0.0, 0.0, len(self.rewards) - 1.0, "which of the tables holds", whole=True),
        )

    def at(self, context: ArrayLike) -> "Tabular":
        """The plain table of one context, given by its number."""
        (number,) = np.ravel(np.asarray(context, np.float64)).tolist()
        if number not in range(len(self.rewards) if self.rewards.ndim == 3 else 1):
            raise InputError(f"context: {number:g} is not allowed; {self.name} has no such table")
        if self.rewards.ndim == 2:
            return replace(self, contexts=())
        index = int(number)
        start = self.start[index] if self.start.ndim == 2 else self.start
        name = f"{self.name} (context={index})"
        return replace(
            self, transitions=self.transitions[index], rewards=self.rewards[index], start=start, name=name, contexts=()
        )

    @property
    def state_count(self) -> int:  # type: ignore[override]
        """The number S of states."""
        return self.rewards.shape[-2]

    @property
    def observation_space(self) -> Box:  # type: ignore[override]
        """One-hot vectors of length S."""
        return Box((self.rewards.shape[-2],), 0.0, 1.0)

    @property
    def action_space(self) -> Discrete:  # type: ignore[override]
        """The A actions."""
        return Discrete(self.rewards.shape[-1])

    def initial(self, key: Key, context: Array | None = None) -> Int[Array, ""]:
        """Draw a state from μ_D."""
        start = self._table(self.start, 1, context)
        return jax.random.categorical(key, jnp.log(start))

    def transition(
        self, key: Key, physics: Int[Array, ""], action: Int[Array, ""], context: Array | None = None
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """Draw the next state."""
        probabilities = self._table(self.transitions, 3, context)[physics, action]
        successor = jax.random.categorical(key, jnp.log(probabilities))
        reward = self._table(self.rewards, 2, context)[physics, action]
        return successor, reward, jnp.asarray(self.terminal)[successor]

    def return_range(self) -> tuple[float, float]:
        """From the lowest and the highest reward."""
        return bounded_returns(float(self.rewards.min()), float(self.rewards.max()), self.horizon, self.discount)

    def observation(self, physics: Int[Array, ""]) -> Float[Array, " S"]:
        """The state as a one-hot vector."""
        return jax.nn.one_hot(physics, self.rewards.shape[-2], dtype=jnp.float32)

    def _table(self, array: np.ndarray, axes: int, context: Array | None) -> Array:
        """An array in float32, of the context's table where it has an axis more: of the first one without a context."""
        tables = jnp.asarray(array, jnp.float32)
        if array.ndim == axes:
            return tables
        return tables[0 if context is None else jnp.round(context[0]).astype(jnp.int32)]


def chain(horizon: int = 100, discount: float = 0.9) -> Tabular:
    """Two states, stay or switch, reward 1 in the second: V = (4.21875, 5.78125) when switching with probability 0.3."""
    transitions = np.stack([np.eye(2), np.eye(2)[::-1]], axis=1)
    rewards, start = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([1.0, 0.0])
    return Tabular(transitions, rewards, start, None, horizon, discount, "tabular/chain")


def load(path: str, horizon: int = 100, discount: float = 0.9) -> Tabular:
    """Read `transitions`, `rewards`, `start` and optionally `terminal` from an .npz file. Pickled arrays are refused."""
    try:
        file = io.BytesIO(read_regular(Path(path), LARGEST))
        with warnings.catch_warnings(), np.load(file, allow_pickle=False) as arrays:
            warnings.simplefilter("ignore")  # about old formats
            if sum(member.file_size for member in arrays.zip.infolist()) > LARGEST:
                raise ValueError("its arrays are too large")
            if (damaged := arrays.zip.testzip()) is not None:  # NumPy checks only what it reads to the end
                raise ValueError(f"{damaged} is damaged")
            fields = {name: arrays[name] for name in arrays.files}
    except Exception as error:  # archive, compression, header and arrays each raise their own
        raise FileError(f"tabular/{path}: cannot be read as an .npz file of arrays ({reason(error)})") from error
    if fields.keys() - {"terminal"} != {"transitions", "rewards", "start"}:
        raise InputError(
            f"tabular/{path}: holds {sorted(fields)!r:.200}; must be arrays transitions, rewards, start and optionally "
            "terminal"
        )
    for label, array in fields.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not true_flags(array):
            raise InputError(f"tabular/{path}: {label} does not hold numbers")
    if not np.isin(fields.get("terminal", 0), (0, 1)).all():
        raise InputError(f"tabular/{path}: terminal holds values other than 0 and 1")
    return Tabular(**fields, horizon=horizon, discount=discount, name=f"tabular/{path}")


def names() -> list[str]:
    """Names of the worlds of this family that need no file."""
    return ["tabular/chain"]


def make(name: str, **given: Any) -> Tabular:
    """Build the chain, or the MDP in the file that `tabular/FILE.npz` names."""
    path = name.removeprefix("tabular").removeprefix("/")
    if path == "chain":
        return chain(**given)
    if path.endswith(".npz"):
        return load(path, **given)
    raise unknown_name("world", name, [*names(), "tabular/FILE.npz"])
