"""What measurements begin with: an opened run, and the random key that everything is derived from."""

from pathlib import Path

import jax

from evarl.ranges import MOST, whole
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.worlds.world import Key


def opened(run: Run | str | Path) -> Run:
    """The run, or the run in a directory, with compiled programs kept for the next measurement."""
    keep_compiled_programs()
    return run if isinstance(run, Run) else Run.load(run)


def root_key(random_seed: int) -> Key:
    """The key from which everything random in a measurement is derived; no key of training is derived from it."""
    whole("random-seed", random_seed, least=-MOST)
    return jax.random.fold_in(jax.random.PRNGKey(random_seed), 2**31 - 1)
