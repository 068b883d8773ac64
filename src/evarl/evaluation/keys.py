"""Random keys of measurements."""

import jax

from evarl.ranges import MOST, whole
from evarl.worlds.world import Key

SEED_RANGE = 2**31


def root_key(random_seed: int) -> Key:
    """The key from which everything random in a measurement is derived; no key of training is derived from it."""
    whole("random-seed", random_seed, least=-MOST)
    return jax.random.fold_in(jax.random.PRNGKey(random_seed), SEED_RANGE - 1)
