"""Callbacks for `evarl.train(..., callbacks=[...])`: early stopping, Weights & Biases, TensorBoard.

A callback is a function of a `Chunk`, the metrics of the updates that were just made. It is called on the host between compiled
programs, so it may print, write or talk to a server. Training stops once it returns True. One with a method `close` has it called
when training ends.
"""

import importlib
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from evarl.errors import InputError
from evarl.ranges import real, whole
from evarl.runs.chunks import Callback, Chunk
from evarl.runs.events import EventWriter, curves, mean_over_seeds, rows

__all__ = ["Callback", "Chunk", "StopAtReturn", "TensorBoard", "WandB"]


class StopAtReturn:
    """Stops training once the mean return over the last `window` updates, averaged over seeds, reaches a threshold.

    Updates in which no episode finished do not count. Training stops after the chunk of updates in which this happened.

    >>> import evarl
    >>> stop = StopAtReturn(-4.5, window=20)
    """

    def __init__(self, threshold: float, window: int = 10):
        real("threshold", threshold)
        whole("window", window)
        self.threshold, self.window = float(threshold), window
        self._seeds: tuple[int, ...] = ()
        self._next = 0
        self._last: deque[float] = deque(maxlen=window)

    def __call__(self, chunk: Chunk) -> bool:
        """Whether the threshold was reached in one of these updates."""
        if chunk.seeds != self._seeds or chunk.first != self._next:  # another run, or other seeds
            self._seeds = chunk.seeds
            self._last.clear()
        self._next = chunk.first + len(chunk.updates)
        reached = False
        for mean in mean_over_seeds(chunk["return"]):
            if np.isfinite(mean):
                self._last.append(float(mean))
            reached |= len(self._last) == self.window and float(np.mean(self._last)) >= self.threshold
        return reached


class TensorBoard:
    """Writes metrics as TensorBoard events to a folder of your own while a run is trained.

    Every run has such events in its folder `tensorboard` without this, written at each checkpoint; here they are there after
    each chunk. Each group of seeds has a folder, and in it each seed and their mean.
    """

    def __init__(self, folder: str | Path):
        if not isinstance(folder, str | Path):
            raise InputError(f"folder: {folder!r:.60} is not allowed; must be a path")
        self.folder = Path(folder)
        self._writers: dict[tuple[int, ...], EventWriter] = {}

    def __call__(self, chunk: Chunk) -> None:
        """Write the metrics of these updates."""
        if chunk.seeds not in self._writers:
            done = int(chunk.steps[0]) - chunk.config.environments * chunk.config.steps
            self._writers[chunk.seeds] = EventWriter(self.folder / _name(chunk), done)
        self._writers[chunk.seeds].write([chunk])

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


class WandB:
    """Sends metrics to Weights & Biases; `options` are those of `wandb.init`, such as `entity`, `mode` or `group`.

    Metrics of the mean over seeds have the tags that TensorBoard shows, such as return/return, on environment steps; those of
    single seeds have the seed in front, as in seed-0/return/return. Each group of seeds is a run there, with the configuration
    and the name of the run directory.
    """

    def __init__(self, project: str, **options: Any):
        if not isinstance(project, str) or not project:
            raise InputError(
                f"project: {project!r:.60} is not allowed; must be the name of a project of Weights & Biases"
            )
        try:
            self._wandb: Any = importlib.import_module("wandb")
        except ModuleNotFoundError as error:
            raise InputError(
                f"callbacks: WandB requires the package '{error.name}'; install it by pip install wandb"
            ) from error
        self.options = {"project": project} | options
        self._run: Any = None
        self._seeds: tuple[int, ...] = ()

    def __call__(self, chunk: Chunk) -> None:
        """Send the metrics of these updates."""
        if self._run is None or chunk.seeds != self._seeds:
            self.close()
            given = {"name": f"{chunk.path.name}, {_name(chunk)}", "config": chunk.config.to_dict()} | self.options
            self._run, self._seeds = self._wandb.init(**given), chunk.seeds
            self._run.define_metric("*", step_metric="steps")
        found = curves(chunk)
        shared = found.pop("mean") if len(chunk.seeds) > 1 else found.pop(f"seed-{chunk.seeds[0]}")
        every = shared | {f"{seed}/{tag}": x for seed, values in found.items() for tag, x in values.items()}
        for row, present in rows(every):
            self._run.log(present | {"steps": int(chunk.steps[row]), "update": int(chunk.updates[row])})

    def close(self) -> None:
        """Finish the run there."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def _name(chunk: Chunk) -> str:
    """The name of a group of seeds."""
    return f"seeds-{chunk.seeds[0]}-{chunk.seeds[-1]}"
