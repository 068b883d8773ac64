"""Logged data: N trajectories of at most T steps, as masked arrays."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Shaped

from evarl.errors import FileError, InputError, unknown_name
from evarl.ope.flat import MissingFinal, flat_fields
from evarl.storage.tensors import load_arrays, save_tree

STEPS = ("observation", "action", "reward", "log_prob", "terminated", "truncated")
"""Fields with one entry for each step."""

NOISE = 1e-10
"""Differences, as a share of a number's size, that are rounding of its computation."""
SORTED = 100_000
"""Observations that are looked through for values that repeat, at most."""


class LoggedData(struct.PyTreeNode):
    """Logged trajectories of behaviour policies.

    A trajectory occupies the first steps of its row; what the mask leaves out is padding and may hold any finite number.
    The last step of a trajectory tells how it ended: *terminated* (nothing follows), *truncated* (a time limit), or neither
    (the log was cut there). Which of these end the value depends on the estimator.
    """

    observation: Shaped[Array, "N T ..."]
    """Observations before each action."""
    action: Shaped[Array, "N T ..."]
    """[N, T] integers, or [N, T, ...] in the units in which the log-probability is a density."""
    reward: Float[Array, "N T"]
    log_prob: Float[Array, "N T"] | None
    """Log-probability (density) of the logged action under the behaviour policy *when it was taken*: logs of training mix
    many behaviour policies. None when it was not recorded; then only fitted Q evaluation is possible."""
    terminated: Bool[Array, "N T"]
    truncated: Bool[Array, "N T"]
    mask: Bool[Array, "N T"]
    """Which steps exist."""
    final_observation: Shaped[Array, "N ..."]
    """Observations after the last step."""

    def __repr__(self) -> str:
        fields: tuple[Any, ...] = (self.reward, self.observation, self.action)
        reward, seen, action = (tuple(getattr(one, "shape", ())) for one in fields)
        if len(reward) != 2:  # of leaves that are no arrays
            return "<LoggedData>"
        kind = getattr(self.action, "dtype", "")
        told = f"{reward[0]} trajectories of at most {reward[1]} steps, observations {list(seen[2:])}"
        without = "" if self.log_prob is not None else ", no log-probabilities"
        return f"<LoggedData: {told}, actions {kind}{list(action[2:])}{without}>"

    @property
    def trajectories(self) -> int:
        """N."""
        return self.mask.shape[0]

    @property
    def length(self) -> int:
        """T, of the longest trajectory."""
        return self.mask.shape[1]

    @property
    def cut(self) -> Bool[np.ndarray, " N"]:
        """Which trajectories stop before step T without having terminated."""
        mask = np.asarray(self.mask)
        return ~np.asarray(self.terminated & self.mask).any(axis=1) & (mask.sum(axis=1) < mask.shape[1])

    @property
    def discrete(self) -> bool:
        """Whether actions are integers."""
        return bool(np.issubdtype(self.action.dtype, np.integer))

    @classmethod
    def from_arrays(cls, **fields: Any) -> "LoggedData":
        """Logged data from arrays, which are checked; the fields are those of this class.

        Flags default to False, the mask to all steps, and log_prob may be missing.

        >>> data = LoggedData.from_arrays(
        ...     observation=np.zeros((2, 3, 1)), action=np.zeros((2, 3), int), reward=np.ones((2, 3)),
        ...     log_prob=np.log(np.full((2, 3), 0.5)), final_observation=np.zeros((2, 1)))
        >>> data.trajectories, data.length, data.discrete
        (2, 3, True)
        """
        names = (*STEPS, "mask", "final_observation")
        for name in fields:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(names)}"
                raise InputError(f"{name}: is not a field of logged data; {hint}")
        for name in ("observation", "action", "reward", "final_observation"):
            if fields.get(name) is None:
                raise InputError(f"{name}: is missing")
        arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
        shape = arrays["reward"].shape
        for name in ("terminated", "truncated"):
            arrays.setdefault(name, np.zeros(shape, bool))
        arrays.setdefault("mask", np.ones(shape, bool))
        plain: dict[str, Any] = {name: _plain(name, array) for name, array in arrays.items()}
        found = validated(cls(**{"log_prob": None} | plain))
        _refuse_merged(arrays["observation"][np.asarray(found.mask)])
        return _trimmed(found)

    @classmethod
    def from_episodes(cls, episodes: Sequence[Mapping[str, Any]]) -> "LoggedData":
        """Logged data from trajectories of various lengths, which are padded and stacked.

        Each has observation [L, ...], action [L, ...], reward [L], final_observation [...], and may have log_prob [L] (all
        of them or none) and terminated and truncated: one flag each, or one for each step of which only the last is set.
        """
        if not episodes:
            raise InputError("episodes: there are none; must be at least one")
        for number, episode in enumerate(episodes):
            _check_names(episode, number)
        lengths = [len(np.atleast_1d(episode["reward"])) for episode in episodes]
        known = ("log_prob",) if any(episode.get("log_prob") is not None for episode in episodes) else ()
        fields: dict[str, Any] = {name: _stacked(name, episodes, lengths) for name in (*STEPS[:3], *known)}
        steps = np.arange(max(lengths))[None]
        last = steps == np.asarray(lengths)[:, None] - 1
        for name in STEPS[4:]:
            ends = [
                _ended(name, episode, number, length)
                for number, (episode, length) in enumerate(zip(episodes, lengths, strict=True))
            ]
            fields[name] = last & np.asarray(ends)[:, None]
        fields["mask"] = steps < np.asarray(lengths)[:, None]
        final = [np.asarray(episode["final_observation"]) for episode in episodes]
        for number, one in enumerate(final):
            if one.shape != final[0].shape:
                raise InputError(f"final_observation: episode {number} has shape {one.shape}; must be {final[0].shape}")
        fields["final_observation"] = np.stack(final)
        return cls.from_arrays(**fields)

    @classmethod
    def from_flat(cls, fields: Mapping[str, Any], missing_final: MissingFinal = "repeat") -> "LoggedData":
        """Logged data from arrays in which all steps follow one another, in the layout of D4RL.

        `observations` [S, ...], `actions` [S, ...], `rewards` [S] and `terminals` [S], and where there are any `timeouts` [S],
        `next_observations` [S, ...] and `infos/action_log_probs` [S]. A trajectory ends where a terminal or a timeout is set, and
        at the end of the log.

        The final observation of a trajectory is the last of its `next_observations`. Without these, the last observation stands
        for it (`missing_final="repeat"`), or the last step of trajectories that did not terminate is left out ("drop"): either is
        said in a warning; "refuse" raises InputError. Terminated trajectories need none.

        >>> data = LoggedData.from_flat({"observations": np.zeros((3, 1)), "actions": np.array([0, 1, 0]),
        ...     "rewards": np.ones(3), "terminals": np.array([0, 1, 1])})
        >>> data.trajectories, data.mask.tolist()
        (2, [[True, True], [True, False]])
        """
        return cls.from_arrays(**flat_fields(fields, missing_final))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, atomically."""
        save_tree(Path(path), _fields(self), {"kind": "logged data"})

    @classmethod
    def load(cls, path: str | Path) -> "LoggedData":
        """Logged data from a file written by `save`, checked. Nothing in it is executed."""
        arrays, about = load_arrays(Path(path))
        if about.get("kind") != "logged data":
            raise FileError(f"{path}: is of kind {about.get('kind')}; must be logged data")
        try:
            return cls.from_arrays(**arrays)
        except InputError as error:
            raise FileError(f"{path}: {error}") from error

    def rows(self, chosen: Any) -> "LoggedData":
        """Some of the trajectories."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


def validated(data: LoggedData) -> LoggedData:
    """The data, if it is consistent; otherwise an error with the field, the value and its place."""
    arrays = _fields(data)
    shape = arrays["reward"].shape
    if len(shape) != 2 or 0 in shape:
        raise InputError(f"reward: has shape {shape}; must be [N, T], trajectories by steps, neither of them 0")
    for name in arrays.keys() & {"log_prob", "terminated", "truncated", "mask"}:
        if arrays[name].shape != shape:
            raise InputError(f"{name}: has shape {arrays[name].shape}; must be {shape}, the shape of reward")
    for name in ("observation", "action"):
        if arrays[name].shape[:2] != shape:
            raise InputError(f"{name}: has shape {arrays[name].shape}; must begin with {shape}, the shape of reward")
    expected = (shape[0], *arrays["observation"].shape[2:])
    if arrays["final_observation"].shape != expected:
        raise InputError(f"final_observation: has shape {arrays['final_observation'].shape}; must be {expected}")
    discrete = np.issubdtype(arrays["action"].dtype, np.integer)
    if discrete and arrays["action"].shape != shape:
        raise InputError(f"action: integers of shape {arrays['action'].shape}; must be {shape}, one for each step")
    mask = arrays["mask"]
    _refuse("mask", ~mask[:, 0], "trajectory {} has no first step; must have at least one step")
    gaps = np.pad(mask[:, 1:] & ~mask[:, :-1], ((0, 0), (1, 0)))
    _refuse("mask", gaps, "trajectory {} has a gap before step {}; must have none")
    for name in ("observation", "action", "reward", "log_prob"):
        if name in arrays and np.issubdtype(arrays[name].dtype, np.floating):
            # padding must be finite too: 0 · NaN is NaN
            broken = ~np.isfinite(arrays[name].reshape(*shape, -1)).all(axis=-1)
            _refuse(name, broken, "is not finite in trajectory {}, step {}; must be finite")
    broken = ~np.isfinite(arrays["final_observation"].reshape(shape[0], -1)).all(axis=1)
    _refuse("final_observation", broken, "is not finite in trajectory {}; must be finite")
    if discrete:
        action, log_prob = arrays["action"], arrays.get("log_prob", np.zeros(shape))
        log = "{value:g} in trajectory {}, step {} is above 0; must be logarithms of probabilities, not probabilities"
        _refuse("log_prob", mask & (log_prob > 1e-6), log, log_prob)
        negative = "{value} in trajectory {}, step {} is negative; must be at least 0"
        _refuse("action", mask & (action < 0), negative, action)
    last = mask & ~np.concatenate([mask[:, 1:], np.zeros_like(mask[:, :1])], axis=1)
    for name in ("terminated", "truncated"):
        early = arrays[name] & mask & ~last
        _refuse(name, early, "trajectory {} goes on after step {}; must be set at the last step only")
    both = arrays["terminated"] & arrays["truncated"] & mask
    _refuse("truncated", both, "trajectory {} is both terminated and truncated at step {}; must be one")
    return data


def _refuse_merged(seen: Shaped[np.ndarray, "M ..."]) -> None:
    """Raise InputError if floats of 32 bits merge observations that floats of 64 bits tell apart, as 1e8 and 1e8 + 1.

    That is a feature whose rounding is above a tenth of its deviation, or of which different values repeat and become one.
    Differences of 10⁻¹⁰ are rounding themselves.
    """
    if seen.dtype != np.float64:
        return
    flat = seen.reshape(len(seen), -1)
    for number, column in enumerate(flat.T):
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(column - column.astype(np.float32)).max()
        size = np.abs(column).max()
        if not 0 < error < np.inf or np.ptp(column) <= NOISE * size:
            continue
        pair = _merged(column[:SORTED], NOISE * size)
        if pair is None and error > 0.1 * column.std():
            pair = float(column.min()), float(column.max())
        if pair is not None:
            raise InputError(
                f"observation: entry {number} has values such as {pair[0]:.17g} and {pair[1]:.17g}, which 32 bits do not "
                "tell apart; must have smaller numbers, with an offset subtracted"
            )


def _merged(column: Float[np.ndarray, " M"], noise: float) -> tuple[float, float] | None:
    """Two values that become one in 32 bits, in a column of values that repeat."""
    values = np.unique(column)
    if 2 * len(values) > len(column):
        return None
    gap, single = np.diff(values), values.astype(np.float32)
    lost = (single[1:] == single[:-1]) & (gap > noise) & (gap > 1e-6 * column.std())
    return (float(values[:-1][lost][0]), float(values[1:][lost][0])) if lost.any() else None


def _trimmed(data: LoggedData) -> LoggedData:
    """The data without steps that no trajectory has."""
    longest = int(np.asarray(data.mask).any(axis=0).sum())
    if longest == data.length:
        return data
    return data.replace(**{name: x[:, :longest] for name, x in _fields(data).items() if name != "final_observation"})


def _check_names(episode: Mapping[str, Any], number: int) -> None:
    """Raise InputError if an episode lacks a field, or has one that is none."""
    names = (*STEPS, "final_observation")
    for name in episode:
        if name not in names:
            raise unknown_name(f"episode {number}", str(name), names)
    for name in (*STEPS[:3], "final_observation"):
        if episode.get(name) is None:
            raise InputError(f"{name}: is missing in episode {number}")


def _stacked(name: str, episodes: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> np.ndarray:
    """[N, T, ...]: a field of all episodes, with zeros in the padding."""
    for number, episode in enumerate(episodes):
        if episode.get(name) is None:
            raise InputError(f"{name}: is missing in episode {number}; must be in all episodes or in none")
    arrays = [np.asarray(episode[name]) for episode in episodes]
    for number, (row, length) in enumerate(zip(arrays, lengths, strict=True)):
        if row.shape[:1] != (length,):
            raise InputError(f"{name}: episode {number} has shape {row.shape}; must have {length} steps, as its reward")
        if row.shape[1:] != arrays[0].shape[1:]:
            raise InputError(f"{name}: episode {number} has shape {row.shape}; must be (L, ...) as in episode 0")
    table = np.zeros((len(arrays), max(lengths), *arrays[0].shape[1:]), np.result_type(*arrays))
    for i, row in enumerate(arrays):
        table[i, : len(row)] = row
    return table


def _ended(name: str, episode: Mapping[str, Any], number: int, length: int) -> bool:
    """Whether the flag of an episode's last step is set; it may be given alone or with those of the other steps."""
    flags = np.atleast_1d(_plain(name, np.asarray(episode.get(name, False))))
    if flags.shape not in ((1,), (length,)):
        raise InputError(f"{name}: episode {number} has shape {flags.shape}; must be one flag, or one for each step")
    if flags[:-1].any():
        early = int(np.flatnonzero(flags)[0])
        raise InputError(f"{name}: episode {number} goes on after step {early}; must be set at the last step only")
    return bool(flags[-1])


def _fields(data: LoggedData) -> dict[str, np.ndarray]:
    """The fields that are present, by name."""
    fields = {name: getattr(data, name) for name in (*STEPS, "mask", "final_observation")}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}


def _refuse(name: str, broken: Bool[np.ndarray, "..."], text: str, array: np.ndarray | None = None) -> None:
    """Raise InputError about the first place that is True, which is put into the text, with the array's value there."""
    if broken.any():
        place = tuple(int(i) for i in np.argwhere(broken)[0])
        raise InputError(f"{name}: {text.format(*place, value=None if array is None else array[place])}")


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """The array in the type that estimators use.

    Rewards and log-probabilities are in float64, other floats in float32, whole numbers as they are, flags booleans.
    """
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: has type {array.dtype}; must be numbers")
    if name in ("terminated", "truncated", "mask"):
        if array.dtype != bool and not np.isin(array, (0, 1)).all():
            raise InputError(f"{name}: has values other than 0 and 1; must be flags")
        return array.astype(bool)
    if name == "action" and array.dtype.kind != "f":
        whole = array.astype(np.int32)
        _refuse(name, whole != array, "{value} is too large; must be a whole number of 32 bits", array)
        return whole
    if name in ("reward", "log_prob"):
        return array.astype(np.float64)
    if array.dtype.kind in "iub":
        return array
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused afterwards
        return array.astype(np.float32)
