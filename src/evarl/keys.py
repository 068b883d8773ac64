"""Random numbers inside compiled loops, the same as JAX's but computed by one kernel, and reservoir sampling.

On a CPU, JAX compiles its generator (Threefry-2x32) to a loop of five rounds with a dozen small kernels each. For a handful of
numbers, drawn in every step of a loop, starting these kernels takes longer than all else in the step.
"""

from math import prod

import jax
import jax.extend.random
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt32

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


def unrolled(key: PRNGKeyArray | UInt32[Array, "2"]) -> PRNGKeyArray:
    """The same key in a form for which `jax.random` draws the same numbers without an inner loop; typed keys stay as they are.

    >>> key = jax.random.PRNGKey(1)
    >>> bool(jax.random.uniform(unrolled(key)) == jax.random.uniform(key))
    True
    """
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key, impl=_UNROLLED)


def split(key: PRNGKeyArray | UInt32[Array, "2"], count: int = 2) -> UInt32[Array, "count 2"]:
    """The same keys as those of `jax.random.split`."""
    return jax.random.key_data(jax.random.split(unrolled(key), count))


def reservoir_slots(
    key: PRNGKeyArray | UInt32[Array, "2"], place: Int[Array, " n"], offered: Bool[Array, " n"], size: int
) -> Int[Array, " n"]:
    """Slots of a uniform sample (Vitter's algorithm R) that n items go to, in their order; `size` for those not kept.

    The i-th item ever offered, i = `place`, replaces a uniformly drawn one of i slots, if that is among the `size`. Items
    that are not `offered` have no slot.
    """
    drawn = jax.random.randint(key, place.shape, 0, jnp.maximum(place, 1))
    slot = jnp.where(offered, jnp.where(place <= size, place - 1, drawn), size)
    # Of several that draw one slot the last stays; a scatter promises no order, so the others are dropped here.
    replaced = jnp.triu(slot[:, None] == slot[None, :], k=1).any(axis=1)
    return jnp.where(replaced, size, slot)


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counters (high, low)."""
    first, second = key[0], key[1]
    schedule = first, second, first ^ second ^ jnp.uint32(PARITY)
    x, y = high + first, low + second
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << jnp.uint32(rotation)) | (y >> jnp.uint32(32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The generator at the counters 0, 1, 2, …"""
    low = jax.lax.iota(jnp.uint32, prod(shape)).reshape(shape)
    return _threefry(key, jnp.zeros_like(low), low)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    x, y = _counted(key, shape)
    if width == 64:
        return (x.astype(jnp.uint64) << jnp.uint64(32)) | y.astype(jnp.uint64)
    return (x ^ y).astype(f"uint{width}")


def _fold_in(key: Array, data: int) -> Array:
    return jnp.stack(_threefry(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))


_UNROLLED = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=jax.random.PRNGKey,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="unrolled",
    tag="evarl",
)
