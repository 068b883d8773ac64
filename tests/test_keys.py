"""Keys of compiled loops draw JAX's own numbers, and without JAX's inner loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.keys import split, unrolled

DRAWS = {
    "uniform": lambda key: jax.random.uniform(key, (3, 5)),
    "one uniform": jax.random.uniform,
    "normal": lambda key: jax.random.normal(key, (7,)),
    "gumbel": lambda key: jax.random.gumbel(key, (2, 4)),
    "randint": lambda key: jax.random.randint(key, (11,), 0, 1000),
    "split": lambda key: jax.random.uniform(jax.random.split(key, 3)[2]),
    "fold_in": lambda key: jax.random.uniform(jax.random.fold_in(key, 12345)),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_the_same_numbers_as_with_the_plain_key(draw, seed):
    key = jax.random.PRNGKey(seed)
    np.testing.assert_array_equal(DRAWS[draw](unrolled(key)), DRAWS[draw](key))


def test_split_gives_the_same_plain_keys(key):
    np.testing.assert_array_equal(split(key), jax.random.split(key))
    np.testing.assert_array_equal(split(key, 6), jax.random.split(key, 6))


def test_typed_keys_stay_as_they_are():
    key = jax.random.key(3, impl="rbg")
    assert unrolled(key) is key


def test_a_few_numbers_are_drawn_without_a_loop(key):
    keys = jax.random.split(key, 8)
    compiled = jax.jit(jax.vmap(lambda key: jax.random.uniform(unrolled(key), (2,)))).lower(keys).compile()
    assert "while" in jax.jit(jax.vmap(jax.random.uniform)).lower(keys).compile().as_text()
    assert "while" not in compiled.as_text()


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64])
def test_numbers_of_every_width_are_the_same(dtype):
    with jax.enable_x64(True):
        key = jax.random.PRNGKey(5)
        ours, jaxs = (jax.random.bits(one, (3, 7), dtype) for one in (unrolled(key), key))
        assert ours.dtype == dtype
        np.testing.assert_array_equal(ours, jaxs)
