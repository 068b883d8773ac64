"""What training has just done: the metrics of consecutive updates, as callbacks and event files are given them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from evarl.learning.configuration import TrainConfig


@dataclass(frozen=True, eq=False)
class Chunk(Mapping[str, np.ndarray]):
    """The metrics of one chunk of updates of a group of seeds: `chunk["return"]` is an array [updates, seeds]."""

    metrics: dict[str, np.ndarray]
    first: int
    """Number of the first update, counted from 0."""
    seeds: tuple[int, ...]
    seconds: float
    """Time that the updates took."""
    ended: float
    """When they were done, in seconds since 1970."""
    config: TrainConfig
    path: Path
    """The run directory."""

    @property
    def updates(self) -> Int[np.ndarray, " updates"]:
        """Numbers of the updates."""
        return np.arange(self.first, self.first + len(self.metrics["return"]))

    @property
    def steps(self) -> Int[np.ndarray, " updates"]:
        """Environment steps of each seed up to the end of each update, those of assessments not counted."""
        return (self.updates + 1) * self.config.environments * self.config.steps

    @property
    def steps_per_second(self) -> float:
        """Environment steps of all seeds in a second."""
        return len(self.updates) * len(self.seeds) * self.config.environments * self.config.steps / self.seconds

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.metrics:
            raise KeyError(f"{name}: is not a metric of this run; must be one of {', '.join(sorted(self.metrics))}")
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


Callback = Callable[[Chunk], bool | None]
"""Called after each chunk of updates; training stops after this one if it returns True."""
