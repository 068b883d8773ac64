"""Logs of deployment trajectories, written during training on request, for off-policy evaluation.

A log holds batches of the updates that its plan names (`evarl.runs.log_plan`). Each step has its log-probability under the policy
that took it.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evarl.agents.trajectory import Trajectory
from evarl.errors import FileError, InputError
from evarl.ope.dataset import LoggedData
from evarl.runs.log_plan import Plan
from evarl.storage.files import delete
from evarl.storage.tensors import load_arrays, save_tree

FLUSH_BYTES = 64 * 2**20
"""Greatest size of the batches that are held in memory until they are written, at the latest at a checkpoint."""

FIELDS = tuple(name for name in Trajectory.__dataclass_fields__ if name not in ("reusable", "context"))


class LogWriter:
    """Writes files of consecutive updates; none extends over a checkpoint, so that a resumed run can replace later ones."""

    def __init__(self, folder: Path, plan: Plan, done: int):
        self.plan = plan
        self._folder = folder
        self._batches: list[dict[str, np.ndarray]] = []
        self._next = self._bytes = 0
        for path, (begins, ends) in _files(folder):
            # later than the checkpoint that is resumed, and written again; or not in the plan of a run that was made longer
            if begins >= done or not plan.recorded[begins : ends + 1].any():
                delete(path)

    def add(self, update: int, batch: Trajectory) -> None:
        """Add the batch of an update, [seeds, T, N, ...], if the plan has it."""
        if not self.plan.recorded[update]:
            return
        if update != self._next:
            self.flush()
        kept = {name: _of_environments(name, getattr(batch, name), self.plan.environments) for name in FIELDS}
        self._batches.append(kept)
        self._next = update + 1
        self._bytes += sum(field.nbytes for field in kept.values())
        if self._bytes > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the batches that are held in memory."""
        if not self._batches:
            return
        fields = {
            name: np.stack([one[name] for one in self._batches]) for name in FIELDS
        }  # [updates, seeds, T, N, ...]
        begins, ends = self._next - len(self._batches), self._next - 1
        save_tree(self._folder / f"updates-{begins:09d}-{ends:09d}.safetensors", fields, {"kind": "log"})
        self._batches, self._bytes = [], 0


class Logs:
    """All parts of the log of a group of seeds; there may be none."""

    def __init__(self, writers: Sequence[LogWriter], updates: int):
        self._writers = writers
        self._due = np.zeros(updates, bool)
        for writer in writers:
            self._due |= writer.plan.recorded

    def due(self, update: int) -> bool:
        """Whether the batch of an update is logged."""
        return bool(self._due[update])

    def unlogged(self, update: int) -> int:
        """The number of updates from this one on until the next that is logged, or the end."""
        later = self._due[update:]
        return int(later.argmax()) if later.any() else len(later)

    def add(self, update: int, batch: Trajectory) -> None:
        """Add the batch of an update, [seeds, T, N, ...], to the parts that have it."""
        for writer in self._writers:
            writer.add(update, batch)

    def flush(self) -> None:
        """Write the batches that are held in memory."""
        for writer in self._writers:
            writer.flush()


def read_log(folder: Path, position: int, last: int | None = None, plan: Plan | None = None) -> LoggedData:
    """Complete trajectories of the seed at a position of its group, from the last `last` updates (all by default).

    Trajectories that began before an unbroken row of updates, or had not ended with it, are left out, and with a plan those that
    it does not count.
    """
    files = list(_files(folder))
    if not files:
        raise FileError(f"{folder}: there is no log; train with --log-megabytes")
    end = files[-1][1][1] + 1
    if plan is not None:
        _check_all_there(folder, [updates for _, updates in files], plan)
    parts: list[tuple[int, dict[str, np.ndarray]]] = []
    for path, (begins, ends) in files:
        if last is not None and ends < end - last:
            continue
        arrays, about = load_arrays(path)
        if about.get("kind") != "log" or arrays.keys() != set(FIELDS) or not _fit(arrays, ends - begins + 1, position):
            raise FileError(f"{path}: is not the log of a run")
        skipped = 0 if last is None else max(0, end - last - begins)
        one = {name: x[skipped:, position] for name, x in arrays.items()}
        if plan is not None:  # in order; and a run that was made longer may have written more of them before
            one = {name: _of_environments(name, x, np.argsort(plan.environments)) for name, x in one.items()}
        parts.append((begins + skipped, one))
    if len({tuple((part[name].shape[1:], part[name].dtype) for name in FIELDS) for _, part in parts}) > 1:
        raise FileError(f"{folder}: its files have different shapes; they must be of one run")
    episodes = [episode for first, batches in _rows(parts) for episode in _episodes(batches, first, plan)]
    if not episodes:
        raise FileError(f"{folder}: holds no complete trajectory; log more updates, or train with more steps")
    try:
        return LoggedData.from_episodes(episodes)
    except InputError as error:
        raise FileError(f"{folder}: {error}") from error


def _of_environments(name: str, field: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """A field of a batch [seeds or updates, T, N, ...], or of the observations after it [seeds or updates, N, ...]."""
    return np.take(field, chosen, axis=1 if name == "last_observation" else 2)


def _check_all_there(folder: Path, present: list[tuple[int, int]], plan: Plan) -> None:
    """Raise FileError if an update of the plan is missing before the last that is there: the sample would not be uniform."""
    found = np.zeros(max(len(plan.recorded), present[-1][1] + 1), bool)
    for begins, ends in present:
        found[begins : ends + 1] = True
    missing = np.flatnonzero(plan.recorded[: present[-1][1]] & ~found[: len(plan.recorded)][: present[-1][1]])
    if missing.size:
        raise FileError(f"{folder}: update {missing[0]} is missing; the log must have all updates that were logged")


def _rows(parts: list[tuple[int, dict[str, np.ndarray]]]) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Batches of unbroken rows of updates, each with its first update."""
    ends = [first + len(part["reward"]) for first, part in parts]
    breaks = [i for i in range(1, len(parts)) if parts[i][0] != ends[i - 1]]
    for begin, end in itertools.pairwise([0, *breaks, len(parts)]):
        row = [part for _, part in parts[begin:end]]
        yield parts[begin][0], {name: np.concatenate([part[name] for part in row]) for name in FIELDS}


def _fit(arrays: dict[str, np.ndarray], updates: int, position: int) -> bool:
    """Whether shapes and dtypes are those of batches, [updates, seeds, T, N, ...], of as many updates."""
    shape, shown, action = arrays["reward"].shape, arrays["observation"], arrays["action"]
    if len(shape) != 4 or shape[0] != updates or position >= shape[1] or 0 in shape:
        return False
    final, last = arrays["final_observation"], arrays["last_observation"]
    slots, features = (*final.shape, 0, 0, 0)[2], shown.shape[4:]
    kinds = {"reward": "f4", "log_prob": "f4", "terminated": "?", "truncated": "?", "start_label": "i4"}
    return (
        all(arrays[name].dtype == kind and arrays[name].shape == shape for name, kind in kinds.items())
        and (action.dtype, action.ndim) in ((np.int32, 4), (np.float32, 5))
        and shown.shape[:4] == action.shape[:4] == shape
        and final.shape == (*shape[:2], slots, shape[3], *features)
        and last.shape == (*shape[:2], shape[3], *features)
        and shown.dtype == final.dtype == last.dtype
        and int(arrays["truncated"].sum(axis=2).max()) <= slots
    )


def _episodes(batches: dict[str, np.ndarray], first: int = 0, plan: Plan | None = None) -> Iterator[dict[str, Any]]:
    """The complete episodes in batches of consecutive updates, [updates, T, N, ...], one environment after another.

    An episode that was cut, because contexts were drawn anew or a run on the host was resumed, is left out; and with a plan one
    that begins in an update that does not count. The batches are those of the update `first` and later ones.
    """
    updates, steps, environments = batches["reward"].shape
    counted = np.ones(updates, bool) if plan is None else plan.counted[first : first + updates]
    stream = {
        name: batches[name].reshape(updates * steps, environments, *batches[name].shape[3:])
        for name in ("observation", "action", "reward", "log_prob", "terminated", "truncated", "start_label")
    }
    for n in range(environments):
        ends = np.flatnonzero(stream["terminated"][:, n] | stream["truncated"][:, n])
        begins = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        for after, end in zip(begins, ends, strict=True):
            starts = np.flatnonzero(stream["start_label"][after : end + 1, n] >= 0)
            if not starts.size:
                continue
            begin = after + int(starts[-1])
            if not counted[begin // steps]:
                continue
            update, step = divmod(int(end), steps)
            slot = int(batches["truncated"][update, :step, n].sum())
            truncated = bool(stream["truncated"][end, n])
            episode = {
                name: stream[name][begin : end + 1, n] for name in ("observation", "action", "reward", "log_prob")
            }
            # the observation after a termination is not kept, and not needed
            final = batches["final_observation"][update, slot, n] if truncated else stream["observation"][end, n]
            yield episode | {"terminated": not truncated, "truncated": truncated, "final_observation": final}


def _files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """The files of a log in order, each with its first and last update."""
    for path in sorted(folder.glob("updates-*.safetensors")):
        try:
            _, begins, ends = path.stem.split("-")
            yield path, (int(begins), int(ends))
        except ValueError as error:
            raise FileError(f"{path}: must be named updates-FIRST-LAST.safetensors") from error
