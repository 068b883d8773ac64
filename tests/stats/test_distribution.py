"""Distributions on points, by hand and against integrals of their quantile functions."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evarl.errors import InputError
from evarl.stats import Distribution, weighted_distribution

DIE = weighted_distribution(np.arange(1.0, 7.0))
few = settings(max_examples=60, deadline=None)


def test_a_die():
    assert pytest.approx(3.5) == DIE.mean
    assert DIE.variance == pytest.approx(35 / 12)
    assert [DIE.quantile(p) for p in (0.01, 1 / 6, 0.17, 0.5, 1.0)] == [1, 1, 2, 3, 6]
    assert DIE.cvar(1 / 3) == pytest.approx(1.5)
    assert DIE.cvar(0.25) == pytest.approx((1 / 6 * 1 + 1 / 12 * 2) / 0.25)
    assert DIE.cvar(0.01) == 1.0
    assert DIE.cvar(1.0) == pytest.approx(DIE.mean)


@few
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=8), st.floats(0.02, 1.0))
def test_weights_are_repetitions(pairs, share):
    values, counts = (np.array(x) for x in zip(*pairs, strict=True))
    if not counts.any():
        with pytest.raises(InputError, match="not all 0"):
            weighted_distribution(values, counts)
        return
    found, sample = weighted_distribution(values, counts), np.repeat(values, counts).astype(float)
    assert found.mean == pytest.approx(sample.mean(), abs=1e-12)
    assert found.variance == pytest.approx(sample.var(), abs=1e-12)
    assert found.quantile(share) == np.quantile(sample, share, method="inverted_cdf")
    middle = (np.arange(20_000) + 0.5) / 20_000 * share
    tail = np.sort(sample)[np.minimum((middle * len(sample)).astype(int), len(sample) - 1)]
    assert found.cvar(share) == pytest.approx(tail.mean(), abs=0.01)
    assert np.allclose(found.at(values), [(sample <= v).mean() for v in values])


def test_an_end_that_cannot_be_reached_does_not_matter():
    found = Distribution(np.array([-np.inf, 1.0, np.inf]), np.array([0.0, 1.0, 1.0]))
    assert (found.mean, found.variance, found.cvar(0.5), found.quantile(0.5)) == (1.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("value", [0.0, 1.1, float("nan")])
def test_refusals(value):
    for ask in (DIE.quantile, DIE.cvar):
        with pytest.raises(InputError, match="must be above 0 and at most 1"):
            ask(value)
