"""Arrays in a few classes of shapes, so that logs of different sizes share compiled programs."""

from collections.abc import Callable
from functools import partial
from math import ceil, log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from evarl.keys import unrolled
from evarl.worlds.world import Key

LEAST = 256
"""Smallest class."""
FINE = 65_536
"""Classes above this are finer, so that padding takes at most an eighth of the memory."""
CHUNK = 16_384
"""Rows that are held at once, where no program is compiled for them."""
SHUFFLED = 1024
"""Smallest class of what is shuffled, which is cheap."""
BLOCKS = 256, 1024, 4096
"""Rows that a compiled function is applied to at once."""


def size_class(count: int) -> int:
    """The least class that is not below `count`: a power of two, or above 65 536 a multiple of an eighth of one.

    >>> [size_class(count) for count in (1, 257, 70_000)]
    [256, 512, 73728]
    """
    size = max(LEAST, 1 << max(count - 1, 0).bit_length())
    part = size // 16 if size > FINE else size
    return max(-(-count // part) * part, LEAST)


def padded(array: Shaped[Array | np.ndarray, "R ..."], size: int) -> Any:
    """The array with zeros appended along its first axis, of the same kind."""
    widths = [(0, size - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, widths) if isinstance(array, np.ndarray) else jnp.pad(array, widths)


def in_blocks(function: Callable[[slice], Array], count: int) -> np.ndarray:
    """The results of a function of slices, concatenated; in blocks, since observations may be large."""
    return np.concatenate([np.asarray(function(slice(i, min(i + CHUNK, count)))) for i in range(0, count, CHUNK)])


def applied(
    function: Callable[..., Array], *arrays: Shaped[np.ndarray, "B ..."], key: Key | None = None
) -> Shaped[np.ndarray, "B ..."]:
    """The results of a function of batches, row by row, in blocks of three shapes: the last row is repeated and cut again.

    A function that draws is given a key first, another one for each block.
    """
    count = len(arrays[0])
    size = next((size for size in BLOCKS if size >= count), BLOCKS[-1])
    found = []
    for start in range(0, count, size):
        blocks = [array[start : start + size] for array in arrays]
        rows = len(blocks[0])
        if rows < size:
            blocks = [np.concatenate([x, np.repeat(x[-1:], size - rows, axis=0)]) for x in blocks]
        own = () if key is None else (key if start == 0 else jax.random.fold_in(key, start),)
        found.append(np.asarray(function(*own, *blocks))[:rows])
    return np.concatenate(found)


def permutation(key: Key, count: int) -> Int[np.ndarray, " count"]:
    """`jax.random.permutation(key, count)`, by a program that is compiled once for each class of sizes."""
    return np.asarray(shuffled(key, jnp.int32(count), jnp.int32(sorts(count)), size_class(max(count, SHUFFLED))))[
        :count
    ]


def sorts(count: int) -> int:
    """How often JAX sorts by 32 random bits, so that equal ones do not matter."""
    return ceil(3 * log(max(1, count)) / log(2**32 - 1))


@partial(jax.jit, static_argnames="size")
def shuffled(key: Key, count: Int[Array, ""], rounds: Int[Array, ""], size: int) -> Int[Array, " size"]:
    """A permutation of 0 … count − 1, and after it the other numbers below `size` in their order.

    The i-th random number of a key does not depend on how many are drawn, so that the permutation is JAX's own.
    """
    position = jnp.arange(size, dtype=jnp.int32)

    def one(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key, found = carry
        key, drawn = jax.random.split(key)
        bits = jax.random.bits(drawn, (size,), jnp.uint32)
        bits = jnp.where(position < count, bits, jnp.uint32(2**32 - 1))  # stable, so these stay last
        return key, jax.lax.sort_key_val(bits, found)[1]

    return jax.lax.fori_loop(0, rounds, one, (unrolled(key), position))[1]
