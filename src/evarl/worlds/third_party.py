"""Helpers of the adapters for worlds from other packages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from evarl.worlds.spaces import Box


@contextmanager
def lenient_promotion() -> Iterator[None]:
    """Trace code under JAX's default promotion rules.

    Gymnax and Brax mix dtypes and ranks freely, which is an error under the strict rules that evarl is tested with.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def strong(tree: Any) -> Any:
    """The same values as arrays that are not weakly typed, so that the carry of a scan has one type.

    Python scalars and the results of arithmetic on them are weakly typed; a state that is weak after a reset and strong
    after a step, or the other way round, cannot be carried.
    """
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), tree)


def as_box(low: ArrayLike, high: ArrayLike, shape: tuple[int, ...], dtype: str = "float32") -> Box:
    """A `Box` with bounds in their shortest form: one number where all entries agree, infinity for float32's largest.

    >>> as_box([-1.0, -1.0], [3.4028235e38, 3.4028235e38], (2,))
    Box(shape=(2,), low=-1.0, high=inf, dtype='float32')
    """
    return Box(tuple(shape), _bound(low, shape), _bound(high, shape), dtype)


def _bound(bound: ArrayLike, shape: tuple[int, ...]) -> float | tuple[float, ...]:
    with np.errstate(over="ignore"):  # float64's largest becomes infinity
        values = np.broadcast_to(np.asarray(bound).astype(np.float32), shape).ravel()
    values = np.where(np.abs(values) >= np.finfo(np.float32).max, np.copysign(np.inf, values), values)
    return float(values[0]) if (values == values[0]).all() else tuple(values.tolist())
