"""TensorBoard events: every metric on environment steps, of each seed and averaged over the seeds of a group."""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from evarl.errors import FileError
from evarl.runs.chunks import Chunk
from evarl.storage.files import reason

GROUPS = {
    "return": ("return", "discounted_return", "episode_length", "episodes", "truncated"),
    "evaluator": (
        "evaluator_loss",
        "evaluation_error",
        "evaluation_error_fresh",
        "evaluation_bias_fresh",
        "skill",
        "start_error",
        "start_squared_error_corrected",
        "assessment_return",
        "warmup_ended",
        "perturbed_steps",
    ),
}
"""Groups of metrics, by their names; those of the learning algorithm, which may be one's own, are in the group policy."""
TIME = "time/steps_per_second"


def tag(name: str) -> str:
    """The tag of a metric in TensorBoard and Weights & Biases, which begins with its group.

    >>> tag("skill"), tag("entropy")
    ('evaluator/skill', 'policy/entropy')
    """
    group = next((group for group, names in GROUPS.items() if name in names), "policy")
    return f"{group}/{name}"


def mean_over_seeds(values: Num[np.ndarray, "updates seeds"]) -> Float[np.ndarray, " updates"]:
    """Means over the seeds that have a number; NaN where none has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of an empty slice
        return np.nanmean(values.astype(np.float64), axis=1)


def curves(chunk: Chunk) -> dict[str, dict[str, np.ndarray]]:
    """Values [updates] by tag, for each seed as "seed-0" and, where there are several, for their "mean"."""
    found = {f"seed-{seed}": {tag(name): x[:, i] for name, x in chunk.items()} for i, seed in enumerate(chunk.seeds)}
    if len(chunk.seeds) > 1:
        found["mean"] = {tag(name): mean_over_seeds(x) for name, x in chunk.items()}
    speed = np.full(len(chunk.updates), np.nan)
    speed[-1] = chunk.steps_per_second
    found["mean" if len(chunk.seeds) > 1 else f"seed-{chunk.seeds[0]}"][TIME] = speed
    return found


def rows(values: dict[str, np.ndarray]) -> Iterator[tuple[int, dict[str, float]]]:
    """The finite values of each update that has any: without finished episodes there is no return."""
    for row in range(len(next(iter(values.values())))):
        present = {name: float(x[row]) for name, x in values.items() if np.isfinite(x[row])}
        if present:
            yield row, present


class EventWriter:
    """Writes event files of a group of seeds: in a folder for each seed and, where there are several, one for their mean.

    Events after `done_steps` environment steps that an interrupted run has left are purged.
    """

    def __init__(self, folder: Path, done_steps: int = 0):
        self._folder, self._done_steps = folder, done_steps
        self._writers: dict[str, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder}: cannot be written ({reason(error)})") from error

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Write the metrics of some chunks."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        try:
            for chunk in chunks:
                for name, values in curves(chunk).items():
                    writer = self._writer(name)
                    for row, present in rows(values):
                        summary = Summary(value=[Summary.Value(tag=at, simple_value=x) for at, x in present.items()])
                        writer.write_event(Event(wall_time=chunk.ended, step=int(chunk.steps[row]), summary=summary))
            for writer in self._writers.values():
                writer.flush()
        except OSError as error:
            raise FileError(f"{self._folder}: cannot be written ({reason(error)})") from error

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _writer(self, name: str) -> Any:
        """The open file of a folder; what is behind its first step was written before an interruption."""
        from tensorboardX.event_file_writer import EventsWriter  # slow to import, and not needed for reading runs
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        if name not in self._writers:
            folder = self._folder / name
            folder.mkdir(exist_ok=True)
            suffix = f".{sum(1 for _ in folder.iterdir())}"  # a run may be resumed within the second in its name
            writer = self._writers[name] = EventsWriter(str(folder / "events"), suffix)
            writer.write_event(Event(step=self._done_steps + 1, session_log=SessionLog(status=SessionLog.START)))
        return self._writers[name]
