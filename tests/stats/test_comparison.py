"""Comparisons by hand and by enumeration."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evarl.stats import (
    bootstrap_interval,
    paired_difference,
    probability_of_improvement,
    sign_flip_p_value,
    t_interval,
)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.0),
        ([0.0, 1.0], [2.0, 3.0], 0.0),
        ([1.0, 1.0], [1.0, 1.0, 1.0], 0.5),
        ([1.0, 2.0], [1.0, 0.0, 5.0], (0.5 + 1 + 0 + 1 + 1 + 0) / 6),
        ([[2.0, 0.0], [3.0, 0.0]], [[0.0, 0.0], [1.0, 4.0]], (1.0 + 0.25) / 2),
        ({"a": [2.0, 3.0], "b": [1.0, 2.0, 3.0]}, {"b": [2.0, 2.0], "a": [0.0, 0.0]}, (1.0 + 0.5) / 2),
    ],
    ids=["above", "below", "equal", "ties", "two tasks", "by name"],
)
def test_probability_of_improvement_by_hand(x, y, expected):
    assert probability_of_improvement(x, y, resamples=10).estimate == expected


def test_probability_of_improvement_is_mann_whitneys_and_antisymmetric():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, size=(7, 3)), rng.integers(1, 6, size=(9, 3))
    found = probability_of_improvement(x, y, resamples=10).estimate
    assert found == pytest.approx(np.mean(stats.mannwhitneyu(x, y, axis=0).statistic) / 63)
    assert found + probability_of_improvement(y, x, resamples=10).estimate == pytest.approx(1.0)


def test_its_interval_is_that_of_all_resamples():
    x, y = [1.0, 4.0, 6.0], [2.0, 4.0]
    everything = [
        np.mean([(a > b) + 0.5 * (a == b) for a in first for b in second])
        for first in product(x, repeat=3)
        for second in product(y, repeat=2)
    ]
    for confidence in (0.55, 0.8, 0.95):
        found = probability_of_improvement(x, y, confidence, resamples=100_000)
        low, high = np.quantile(everything, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf")
        assert (found.low, found.high) == pytest.approx((low, high))


def test_its_interval_is_certain_where_all_runs_agree():
    found = probability_of_improvement(np.full((3, 6), 2.0), np.zeros((2, 6)))
    assert (found.estimate, found.low, found.high) == (1.0, 1.0, 1.0)


def test_coverage_of_the_probability_of_improvement():
    rng = np.random.default_rng(5)
    true = stats.norm.cdf(0.5 / np.sqrt(2))
    covered = []
    for i in range(400):
        x, y = rng.normal(0.5, 1.0, size=(25, 4)), rng.normal(size=(25, 4))
        interval = probability_of_improvement(x, y, 0.9, resamples=400, seed=i)
        covered.append(interval.low <= true <= interval.high)
    assert np.mean(covered) == pytest.approx(0.9, abs=0.045)


def test_paired_difference_is_made_of_the_differences():
    x, y = [5.0, 3.0, 9.0, 4.0], [4.0, 3.0, 5.0, 1.0]
    found = paired_difference(x, y, confidence=0.9, seed=7)
    assert (found.runs, found.mean, found.exact) == (4, 2.0, True)
    assert found.standard_error == pytest.approx(np.sqrt(10 / 3) / 2)
    assert found.t == t_interval([1.0, 0.0, 4.0, 3.0], 0.9)
    assert found.bootstrap == bootstrap_interval([1.0, 0.0, 4.0, 3.0], np.mean, 0.9, seed=7)
    assert found.p_value == 0.25, "|±1 ± 0 ± 4 ± 3| ≥ 8 for 4 of 16"
    other = paired_difference(y, x, confidence=0.9, seed=7)
    assert (other.mean, other.p_value) == (-2.0, 0.25)


def test_what_runs_share_is_no_part_of_a_paired_difference():
    shared = np.array([0.0, 50.0, -300.0, 1000.0, 7.0, 80.0])
    found = paired_difference(shared + 1, shared)
    assert (found.mean, found.standard_error, found.t.low, found.bootstrap.high) == (1.0, 0.0, 1.0, 1.0)
    assert found.p_value == 2 / 2**6, "the least that 6 runs can give"


@pytest.mark.parametrize("runs", [2, 5, 9])
def test_the_p_value_is_that_of_all_signs(runs):
    rng = np.random.default_rng(runs)
    for _ in range(5):
        d = rng.integers(-3, 6, size=runs).astype(float)
        signs = np.array(list(product([-1, 1], repeat=runs)))
        assert sign_flip_p_value(d) == np.mean(np.abs(signs @ d) >= abs(d.sum()))


def test_sums_that_are_equal_but_for_rounding_are_equally_extreme():
    assert sign_flip_p_value([0.1, 0.2, -0.3]) == 1.0
    assert sign_flip_p_value([0.0, 0.0, 0.0]) == 1.0
    assert sign_flip_p_value([0.1, 0.2, 0.3]) == 0.25


def test_scipys_permutation_test_agrees():
    d = np.random.default_rng(8).normal(0.4, 1.0, size=11)
    expected = stats.permutation_test((d,), np.mean, permutation_type="samples", vectorized=True, n_resamples=np.inf)
    assert sign_flip_p_value(d) == pytest.approx(expected.pvalue)


def test_drawn_signs_come_near_all_signs_and_the_seed_decides():
    d = np.r_[np.random.default_rng(9).normal(0.5, 1.0, size=15), 0.0, 0.0]  # zeros leave the exact answer as it is
    exact = sign_flip_p_value(d[:15])
    found = sign_flip_p_value(d, resamples=40_000)
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact / 40_000))
    assert found == sign_flip_p_value(d, resamples=40_000) != sign_flip_p_value(d, resamples=40_000, seed=1)
    assert not paired_difference(d, np.zeros(17), resamples=100).exact
    assert sign_flip_p_value(np.ones(40), resamples=99) == 0.01, "never 0"


def test_p_values_of_nothing_are_uniform():
    d = np.random.default_rng(10).normal(size=(1000, 8))
    p = np.array([sign_flip_p_value(row) for row in d])
    for level in (0.0625, 0.25, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 1000))
