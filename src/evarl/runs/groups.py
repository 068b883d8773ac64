"""Groups of seeds: as many are vectorised in one program as fit into memory."""

from collections.abc import Callable

from evarl.errors import InputError
from evarl.learning.engines import Engine, make_engine
from evarl.learning.learner import Learner

EngineFor = Callable[[int], Engine]


def engines(learner: Learner) -> EngineFor:
    """A function from the number of seeds in a group to its engine; each engine is compiled once."""
    made: dict[int, Engine] = {}

    def engine_for(seeds: int) -> Engine:
        if seeds not in made:
            made[seeds] = make_engine(learner, seeds)
        return made[seeds]

    return engine_for


def plan_groups(learner: Learner, engine_for: EngineFor, memory: int, at_most: int | None = None) -> list[list[int]]:
    """The seeds in as few groups as fit into `memory` bytes, by the compiler's own account of its buffers."""
    config = learner.config
    largest = min(config.seeds, at_most or config.seeds) if learner.simulator.traceable else 1
    while True:
        engine = engine_for(largest)
        needed = engine.memory()
        if needed <= memory:
            break
        if largest == 1:
            raise InputError(
                f"environments: one seed of {config.environments} environments × {config.steps} steps needs "
                f"{needed / 2**30:.2f} GiB, and {memory / 2**30:.2f} GiB are free; use fewer environments or steps"
            )
        largest = max(1, min(largest - 1, int(largest * memory / needed)))
    count = -(-config.seeds // largest)
    size, longer = divmod(config.seeds, count)
    groups, first = [], config.seed
    for index in range(count):
        length = size + (index < longer)
        groups.append(list(range(first, first + length)))
        first += length
    return groups
