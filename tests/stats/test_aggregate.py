"""Aggregates of known scores, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from evarl.errors import InputError
from evarl.stats import (
    Interval,
    bootstrap_interval,
    iqm,
    paired_difference,
    probability_of_improvement,
    standard_error as error_of_mean,
    t_interval,
)


def test_nothing_of_jax_is_needed():
    code = "import sys, evarl.bounds, evarl.stats; assert not {'jax', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 9.0], 4.0),
        ([-100.0, 1.0, 2.0, 100.0], 1.5),
        ([9.0, 0.0, 3.0, 1.0, 2.0], 2.0),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 60.0], 3.0),
        ([-9.0, -9.0, 1.0, 2.0, 3.0, 6.0, 9.0, 9.0], 3.0),
    ],
    ids=["1", "3 keeps all", "4 keeps 2", "5 keeps 3", "7 keeps 5", "8 keeps 4"],
)
def test_iqm_of_known_scores(scores, expected):
    assert iqm(scores) == expected


def test_iqm_pools_runs_and_tasks_and_reduces_the_axes_it_is_given():
    scores = np.random.default_rng(0).normal(size=(3, 5, 7))
    assert iqm(scores) == stats.trim_mean(scores, 0.25, axis=None)
    np.testing.assert_allclose(iqm(scores, axis=1), stats.trim_mean(scores, 0.25, axis=1))
    np.testing.assert_allclose(iqm(scores, axis=(-2, -1)), [iqm(block) for block in scores])
    np.testing.assert_allclose(iqm(scores, axis=(0, 2)), [iqm(scores[:, i]) for i in range(5)])


def test_standard_error_and_students_interval_by_hand():
    scores = [2.0, 4.0, 4.0, 4.0, 6.0]  # s² = 8 / 4
    assert error_of_mean(scores) == pytest.approx(np.sqrt(2 / 5))
    found = t_interval(scores)
    half = 2.7764451051977987 * np.sqrt(2 / 5)
    assert (found.estimate, found.low, found.high) == pytest.approx((4.0, 4.0 - half, 4.0 + half))
    assert t_interval([3.0, 3.0], 0.9) == Interval(3.0, 3.0, 3.0, 0.9, "t")


def test_students_interval_covers_normal_scores_as_it_says():
    scores = np.random.default_rng(1).normal(5.0, 2.0, size=(2000, 5))
    covered = [interval.low <= 5 <= interval.high for interval in (t_interval(row, 0.8) for row in scores)]
    assert np.mean(covered) == pytest.approx(0.8, abs=3 * np.sqrt(0.8 * 0.2 / 2000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iqm([]), "scores: has shape (0,); must have at least 1 score"),
        (lambda: iqm([1.0, np.nan]), "scores: is nan at [1]; must be finite"),
        (
            lambda: iqm([[1.0], [2.0, 3.0]]),
            "scores: is not an array of numbers; must be numbers in rows of equal length",
        ),
        (lambda: error_of_mean([1.0]), "scores: has length 1; must be at least 2 runs"),
        (lambda: t_interval([[1.0, 2.0]]), "scores: has shape (1, 2); must be [runs], one number for each"),
        (
            lambda: t_interval([1.0, 2.0], confidence=95),
            "confidence: 95 is not allowed; must be a number between 0 and 1, such as 0.95",
        ),
        (
            lambda: bootstrap_interval([1.0, 2.0], np.mean, confidence=1.0),
            "confidence: 1.0 is not allowed; must be a number between 0 and 1, such as 0.95",
        ),
        (
            lambda: bootstrap_interval([], np.mean),
            "scores: has shape (0,); must have at least 2 runs of at least 1 task",
        ),
        (
            lambda: bootstrap_interval([[1.0, 2.0, 3.0]], np.mean),
            "scores: has shape (1, 3); must have at least 2 runs of at least 1 task",
        ),
        (
            lambda: bootstrap_interval(np.zeros((2, 2, 2)), np.mean),
            "scores: has shape (2, 2, 2); must be [runs], [runs, tasks] or a mapping from task to [runs]",
        ),
        (
            lambda: bootstrap_interval(np.array([[1.0, 2.0], [3.0, np.inf]]), np.mean),
            "scores: is inf at [1, 1]; must be finite",
        ),
        (lambda: bootstrap_interval({}, np.mean), "scores: has no tasks; must have at least 1"),
        (lambda: bootstrap_interval({"a": [1.0]}, np.mean), "scores['a']: has length 1; must be at least 2 runs"),
        (
            lambda: bootstrap_interval([1.0, 2.0], np.mean, resamples=0),
            "resamples: 0 is not allowed; must be at least 1",
        ),
        (lambda: bootstrap_interval([1.0, 2.0], np.mean, seed=-1), "seed: -1 is not allowed; must be at least 0"),
        (
            lambda: bootstrap_interval([1.0, 2.0], lambda scores, axis: scores),
            "statistic: returned shape (1, 2, 1); must be (1,), with the axes reduced that are given",
        ),
        (
            lambda: bootstrap_interval([1.0, 2.0], lambda scores, axis: scores.mean(axis) + np.nan),
            "statistic: returned nan; must be a finite number for each resample",
        ),
        (
            lambda: probability_of_improvement({"a": [1, 2]}, {"b": [1, 2]}),
            "y: has tasks ['b']; must be ['a'], the tasks of x",
        ),
        (lambda: paired_difference([1, 2, 3], [1, 2]), "y: has length 2; must be 3, the same runs as x"),
        (lambda: paired_difference([1], [1]), "x: has length 1; must be at least 2 runs"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_line(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message
