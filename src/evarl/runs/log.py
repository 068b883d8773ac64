"""Logs of deployment trajectories, written during training on request, for off-policy evaluation.

A log holds the batches of the last updates, as many as fit into a given size. Each step has its log-probability under the
policy that took it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evarl.agents.trajectory import Trajectory
from evarl.errors import FileError, InputError
from evarl.learning.learner import Learner
from evarl.ope.dataset import LoggedData
from evarl.storage.files import delete
from evarl.storage.tensors import load_arrays, save_tree

FLUSH_BYTES = 64 * 2**20
"""Greatest size of the batches that are held in memory until they are written, at the latest at a checkpoint."""

FIELDS = tuple(name for name in Trajectory.__dataclass_fields__ if name not in ("reusable", "context"))


class LogWriter:
    """Writes files of consecutive updates; none extends over a checkpoint, so that a resumed run can replace later ones."""

    def __init__(self, folder: Path, first: int, done: int):
        self.first = first
        """First update that is logged."""
        self._folder = folder
        self._batches: list[Trajectory] = []
        self._next = self._bytes = 0
        for path, (begins, ends) in _files(folder):
            # later than the checkpoint that is resumed, and written again; or earlier than the log of a run that was made longer
            if begins >= done or ends < first:
                delete(path)

    def add(self, update: int, batch: Trajectory) -> None:
        """Add the batch of an update, [seeds, T, N, ...]."""
        self._batches.append(batch)
        self._next = update + 1
        self._bytes += sum(leaf.nbytes for leaf in jax.tree.leaves(batch))
        if self._bytes > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the batches that are held in memory."""
        if not self._batches:
            return
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *self._batches)  # [updates, seeds, T, N, ...]
        begins, ends = self._next - len(self._batches), self._next - 1
        fields = {name: getattr(stacked, name) for name in FIELDS}
        save_tree(self._folder / f"updates-{begins:09d}-{ends:09d}.safetensors", fields, {"kind": "log"})
        self._batches, self._bytes = [], 0


def first_logged_update(learner: Learner, megabytes: float) -> int:
    """The first update to be logged, so that the batches of all seeds from there on fit into the given size."""
    config = learner.config
    steps, environments = config.steps, config.environments
    space, actions = learner.world.observation_space, learner.agent.action_space
    observation = space.size * np.dtype(space.dtype).itemsize
    action = 4 * getattr(actions, "size", 1)
    slots = steps // learner.world.horizon + 2
    one_batch = environments * (steps * (observation + action + 14) + (slots + 1) * observation)
    return max(0, config.updates - int(megabytes * 2**20 // (one_batch * config.seeds)))


def read_log(folder: Path, position: int, last: int | None = None) -> LoggedData:
    """Complete trajectories of the seed at a position of its group, from the last `last` updates (all by default).

    Trajectories that began before the log, or had not ended with it, are left out.
    """
    parts = []
    files = list(_files(folder))
    if not files:
        raise FileError(f"{folder}: there is no log; train with --log-megabytes")
    end = files[-1][1][1] + 1
    for path, (begins, ends) in files:
        if last is not None and ends < end - last:
            continue
        arrays, about = load_arrays(path)
        if about.get("kind") != "log" or arrays.keys() != set(FIELDS) or not _fit(arrays, ends - begins + 1, position):
            raise FileError(f"{path}: is not the log of a run")
        skipped = 0 if last is None else max(0, end - last - begins)
        parts.append({name: x[skipped:, position] for name, x in arrays.items()})
    if len({tuple((part[name].shape[1:], part[name].dtype) for name in FIELDS) for part in parts}) > 1:
        raise FileError(f"{folder}: its files have different shapes; they must be of one run")
    batches = {name: np.concatenate([part[name] for part in parts]) for name in FIELDS}
    episodes = list(_episodes(batches))
    if not episodes:
        raise FileError(f"{folder}: holds no complete trajectory; log more updates, or train with more steps")
    try:
        return LoggedData.from_episodes(episodes)
    except InputError as error:
        raise FileError(f"{folder}: {error}") from error


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


def _episodes(batches: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """The complete episodes in batches of consecutive updates, [updates, T, N, ...], one environment after another.

    An episode that was cut, because contexts were drawn anew or a run on the host was resumed, is left out.
    """
    updates, steps, environments = batches["reward"].shape
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
