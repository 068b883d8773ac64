"""Classes of shapes: padding changes nothing, and a log of another size needs no other program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.ope import shapes
from evarl.ope.fqe import fit
from evarl.ope.fqe_table import prepare, target_actions
from evarl.ope.fqe_training import row_values, train
from evarl.ope.settings import FQEConfig
from evarl.worlds.tabular import chain
from tests.ope.test_fqe import SWITCH, logged, tabular

QUICK = FQEConfig(hidden_sizes=(16, 16), steps=200)


@pytest.mark.parametrize("count", [1, 2, 255, 257, 1624, 1626, 5000])
def test_permutations_are_those_of_jax(count, key):
    np.testing.assert_array_equal(shapes.permutation(key, count), jax.random.permutation(key, count))


@pytest.mark.parametrize("count", [1, 256, 257, 65_536, 65_537, 1_000_001])
def test_classes(count):
    size = shapes.size_class(count)
    assert count <= size <= max(256, 2 * count)
    assert size <= 1.125 * count + 256 or count < 2**16
    assert size % 256 == 0
    assert shapes.size_class(size) == size


def test_functions_see_few_shapes_and_padding_is_cut():
    seen = []

    def double(x):
        seen.append(x.shape)
        return 2 * x

    for count in (3, 200, 5000):
        x = np.arange(count * 2.0).reshape(count, 2)
        np.testing.assert_array_equal(shapes.applied(double, x), 2 * x)
    assert set(seen) == {(256, 2), (4096, 2)}


def test_blocks_draw_with_other_keys(key):
    drawn = shapes.applied(lambda key, x: jax.random.normal(key, (len(x),)), np.zeros(9000), key=key)
    assert not np.isin(drawn[4096:8192], drawn[:4096]).all()
    np.testing.assert_array_equal(drawn[:4096], jax.random.normal(key, (4096,)))


def fitted(count, length, key):
    data = logged(chain(), np.full((2, 2), 0.5), count, length)
    table = prepare(QUICK, data, 0.9, key)
    return fit(QUICK, table, target_actions(QUICK, data, tabular(SWITCH), key), key)


def test_padding_is_inert(key, monkeypatch):
    """The same fit with four times as much padding: sums of 0 are the only difference."""
    one = fitted(60, 7, key)
    monkeypatch.setattr(shapes, "LEAST", 2048)
    other = fitted(60, 7, key)
    for name in ("parameters", "bellman_error", "loss", "start_value", "remainder"):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
            *(getattr(x, name) for x in (one, other)),
        )


@pytest.mark.slow
def test_cross_fitting_needs_no_other_program_than_a_fit():
    log = ope.Log(logged(chain(), np.full((2, 2), 0.5), 90, 7), 0.9)
    policy = ope.TargetPolicy.from_probabilities(tabular(SWITCH).probabilities)
    settings = ope.Settings(fqe=QUICK)
    ope.estimate(log, policy, settings, ("fqe",))
    compiled = train._cache_size(), row_values._cache_size()
    ope.estimate(log, policy, settings, ("dr",))
    assert (train._cache_size(), row_values._cache_size()) == compiled


def test_another_size_needs_no_other_program(key):
    fitted(60, 7, key)
    compiled = train._cache_size(), row_values._cache_size()
    for count, length in ((59, 7), (33, 10), (61, 6)):
        assert np.isfinite(fitted(count, length, key).start_value).all()
    assert (train._cache_size(), row_values._cache_size()) == compiled
    assert jnp.isfinite(fitted(100, 7, key).bellman_error)
