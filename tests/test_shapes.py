"""The suite itself: wrong shapes are noticed, and nothing that declares a shape is left unchecked."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError

from benchmarks.house import SOURCE, checked_shapes, modules
from tests.shapes import checked


@checked
def scaled(x: Float[Array, "T N"], factor: Float[Array, " N"], unit: float = 1) -> Float[Array, "T N"]:
    return unit * x * factor[None] if unit else x[0]


def test_wrong_shapes_are_refused():
    x = jnp.ones((3, 2))
    assert scaled(x, jnp.ones(2)).shape == (3, 2)
    with pytest.raises(TypeCheckError, match="factor"):
        scaled(x, jnp.ones(3))
    with pytest.raises(TypeCheckError, match="return"):
        scaled(x, jnp.ones(2), unit=0)


@checked
def repeated(x: Float[np.ndarray, " n"], times: int, wrong: bool = False) -> Float[np.ndarray, "{times} n"]:
    return np.ones((times + wrong, len(x)))


def test_wrong_shapes_are_refused_after_right_ones():
    for _ in range(2):
        assert repeated(np.ones(3), 2).shape == (2, 3)
        with pytest.raises(TypeCheckError, match="x"):
            repeated(np.ones((3, 1)), 2)
        with pytest.raises(TypeCheckError, match="x"):
            repeated(np.ones(3, int), 2)
        with pytest.raises(TypeCheckError, match="return"):
            repeated(np.ones(3), 2, wrong=True)


def test_functions_inside_others_are_checked():
    def outer(value):
        @checked
        def inner(factor: float) -> Float[np.ndarray, " n"]:
            return factor * value

        return inner

    for _ in range(2):
        assert outer(np.ones(3))(2.0).shape == (3,)
        with pytest.raises(TypeCheckError, match="return"):
            outer(np.ones((3, 1)))(2.0)


def test_other_annotations_are_not_checked():
    assert scaled(jnp.ones((3, 2)), jnp.ones(2), unit=np.float32(1)).shape == (3, 2)


def test_functions_of_the_package_are_checked():
    from evarl.agents.losses import value_loss

    with pytest.raises(TypeCheckError, match="target"):
        value_loss(jnp.ones(3), jnp.ones(2))


def test_all_functions_that_declare_shapes_are_checked():
    counted = checked_shapes(modules(), SOURCE)
    assert counted["declared"] > 100
    assert counted["unchecked files"] == []
