"""Claims that take a residual of a certain rank, and candidates that are tested in turn."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from evarl.bounds import (
    conformal_bound,
    conformal_index,
    fixed_sequence,
    least_rollouts,
    order_bound,
    order_index,
)
from tests.bounds import slow


def test_order_by_hand():
    assert least_rollouts(0.05, 0.05) == 59, ".95^58 = .0510, .95^59 = .0485"
    assert least_rollouts(0.5, 0.25) == 2
    assert order_index(2, 0.5, 0.25) == 1, "P(Bin(2, ½) ≤ 0) = ¼"
    assert order_index(3, 0.5, 0.5) == 2, "P(Bin(3, ½) ≤ 1) = ½"
    assert (order_index(92), order_index(93)) == (1, 2), "Wilks: 93 for the second"
    found = order_bound([5.0, 3.0, 9.0], [1.0, 1.0, 1.0], 0.5, 0.5)
    assert found.margin == 4.0, "the second of 2, 4, 8"
    assert found.at([1.0, 10.0]).tolist() == [5.0, 14.0]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
def test_order_is_that_of_plain_sums(alpha, delta):
    least = least_rollouts(alpha, delta)
    assert (1 - alpha) ** least <= delta < (1 - alpha) ** (least - 1)
    assert slow.order_rank(least - 1, alpha, delta) == 0
    rng = np.random.default_rng(0)
    for n in (least, least + 1, 2 * least, 300):
        if n < least:
            continue
        k = slow.order_rank(n, alpha, delta)
        assert order_index(n, alpha, delta) == k
        returns, predictions = rng.normal(size=n), rng.normal(size=n)
        expected = sorted(g - v for g, v in zip(returns, predictions, strict=True))[k - 1]
        assert order_bound(returns, predictions, alpha, delta).margin == pytest.approx(expected, abs=1e-12)


def test_conformal_by_hand():
    assert [conformal_index(m) for m in (19, 38, 39, 99)] == [1, 1, 2, 5]
    assert conformal_index(9, 0.1) == 1
    assert conformal_index(99, 0.29) == 29, "100 · 0.29 is below 29 in floating point"
    found = conformal_bound([3.0, 8.0, 4.0, 9.0], [1.0, 1.0, 1.0, 1.0], 0.5)
    assert (found.index, found.margin) == (2, 3.0), "⌊5 · ½⌋ = 2, the second of 2, 3, 7, 8"
    assert found.at(10.0) == 13.0


@pytest.mark.parametrize("m", [19, 24, 60, 200])
def test_conformal_is_that_of_counting(m):
    rng = np.random.default_rng(m)
    values, predictions = rng.normal(size=m), rng.normal(size=m)
    residuals = [v - p for v, p in zip(values, predictions, strict=True)]
    k = floor(Fraction(m + 1, 20))
    # The k-th least is the one with fewer than k below and at least k at or below it.
    expected = next(e for e in residuals if sum(r < e for r in residuals) < k <= sum(r <= e for r in residuals))
    assert conformal_bound(values, predictions).margin == pytest.approx(expected, abs=1e-12)


def test_lower_bounds_cost_their_error_once_or_each():
    assert conformal_index(24, 0.05, value_error=0.01) == 1, "25 · .04"
    assert conformal_index(99, 0.05, value_error=0.01) == 4
    assert conformal_index(99, 0.05, value_error=[0.0001] * 99) == 4, "100 · (.05 − .0099) = 4.01"
    assert conformal_index(99, 0.05, value_error=[0.0] * 99) == conformal_index(99, 0.05)


def test_candidates_in_turn():
    asked = []

    def test(i):
        asked.append(i)
        return i != 3

    assert fixed_sequence([0.1, 0.9, 0.5, 0.3, 0.2], test) == [1, 2]
    assert asked == [1, 2, 3], "no rollouts behind the first failure"
    assert fixed_sequence([1.0, 1.0, 1.0], [True, True, False]) == [0, 1]
    assert fixed_sequence([1.0, 2.0], np.array([True, True])) == [1, 0]
    assert fixed_sequence([1.0, 2.0], [True, False]) == []
