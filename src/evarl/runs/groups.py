"""Groups of seeds: as many are vectorised in one program as fit into memory."""

import functools
from collections.abc import Callable

import numpy as np

from evarl.errors import InputError
from evarl.learning.engines import Engine, Opened, make_engine
from evarl.learning.learner import Learner
from evarl.runs.traced import kept_lowering

EngineFor = Callable[[int], Engine]


def engines(learner: Learner, opened: Opened | None = None) -> EngineFor:
    """A function from the number of seeds in a group to its engine; each engine is compiled once."""
    return functools.cache(functools.partial(make_engine, learner, opened=opened, lower=kept_lowering(learner)))


def plan_groups(learner: Learner, engine_for: EngineFor, memory: int, at_most: int | None = None) -> list[list[int]]:
    """The seeds in as few groups as fit into `memory` bytes, by the compiler's own account of its buffers."""
    config = learner.config
    largest = min(config.seeds, at_most or config.seeds) if learner.simulator.traceable else 1
    while (needed := engine_for(largest).memory()) > memory:
        if largest == 1:
            raise InputError(
                f"environments: one seed of {config.environments} environments × {config.steps} steps needs "
                f"{needed / 2**30:.2f} GiB, and {memory / 2**30:.2f} GiB are free; use fewer environments or steps"
            )
        largest = max(1, min(largest - 1, int(largest * memory / needed)))
    count = -(-config.seeds // largest)
    seeds = np.arange(config.seed, config.seed + config.seeds)
    return [group.tolist() for group in np.array_split(seeds, count)]
