"""Confidence intervals and one-sided bounds against their formulas; how often they cover is tested where they are used."""

import numpy as np
import pytest
from scipy import stats

from evarl.errors import InputError
from evarl.stats import (
    Interval,
    bernstein_interval,
    bernstein_lower_bound,
    hoeffding_interval,
    hoeffding_lower_bound,
    percentile_interval,
    t_interval,
    t_lower_bound,
)

X = np.random.default_rng(0).uniform(-1, 3, 300)


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_a_one_sided_bound_is_one_side_of_the_interval(alpha):
    confidence = 1 - 2 * alpha
    assert hoeffding_lower_bound(X, -1, 3, alpha) == pytest.approx(hoeffding_interval(X, -1, 3, confidence).low)
    assert bernstein_lower_bound(X, -1, 3, alpha) == pytest.approx(bernstein_interval(X, -1, 3, confidence).low)
    assert t_lower_bound(X, alpha) == t_interval(X, confidence).low


def test_half_widths_are_those_of_the_formulas():
    error = X.std(ddof=1) / 300**0.5
    expected = {
        "t": stats.t.ppf(0.95, 299) * error,
        "hoeffding": 4 * (np.log(2 / 0.1) / 600) ** 0.5,
        "bernstein": (2 * X.var(ddof=1) * np.log(4 / 0.1) / 300) ** 0.5 + 7 * 4 * np.log(4 / 0.1) / (3 * 299),
    }
    for found in (t_interval(X, 0.9), hoeffding_interval(X, -1, 3, 0.9), bernstein_interval(X, -1, 3, 0.9)):
        assert found.estimate == X.mean()
        half = expected[found.method]
        assert (found.low, found.high) == pytest.approx((X.mean() - half, X.mean() + half))


def test_cut_to_the_range():
    assert hoeffding_lower_bound([0.1], 0, 1) == bernstein_lower_bound([0.1, 0.2], 0, 1) == 0
    assert hoeffding_interval([0.1], 0, 1) == Interval(0.1, 0, 1, 0.95, "hoeffding")
    assert bernstein_interval([0.1, 0.3], 0, 1) == Interval(0.2, 0, 1, 0.95, "bernstein")


def test_equal_shares_change_nothing_and_zero_shares_leave_numbers_out():
    intervals = [
        lambda x, p=None: t_interval(x, 0.9, p),
        lambda x, p=None: hoeffding_interval(x, -1, 3, 0.9, p),
        lambda x, p=None: bernstein_interval(x, -1, 3, 0.9, p),
    ]
    for interval in intervals:
        for shares in (np.full(300, 1 / 300), np.where(np.arange(300) < 30, 1 / 30, 0)):
            found, expected = interval(X, shares), interval(X[shares > 0])
            assert (found.estimate, found.low, found.high) == pytest.approx(
                (expected.estimate, expected.low, expected.high)
            )


def test_unequal_shares_count_as_fewer_numbers():
    p = np.linspace(1, 2, 300) / np.linspace(1, 2, 300).sum()
    found = hoeffding_interval(X, -1, 3, 0.9, p)
    assert found.high - found.estimate == pytest.approx(4 * (np.log(20) * np.sum(p**2) / 2) ** 0.5)
    with pytest.raises(InputError, match="must be equal for a Bernstein interval"):
        bernstein_interval(X, -1, 3, 0.9, p)


def test_a_percentile_interval_leaves_out_the_tails():
    assert percentile_interval(1.0, np.arange(101.0), 0.5) == Interval(1.0, 25.0, 75.0, 0.5, "bootstrap")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: t_interval([1.0]), "scores: has length 1; must be at least 2 runs"),
        (lambda: t_interval([1.0, np.inf]), "scores: is inf at [1]; must be finite"),
        (
            lambda: t_interval([1.0, 2.0], 95),
            "confidence: 95 is not allowed; must be a number between 0 and 1, such as 0.95",
        ),
        (
            lambda: t_interval([1.0, 2.0], 0.9, [0.3, 0.3]),
            "shares: sum to 0.6, the least is 0.3; must be 0 or more and sum to 1",
        ),
        (lambda: t_interval([1.0, 2.0], 0.9, [1.0]), "shares: has length 1; must be 2, the same runs as scores"),
        (
            lambda: percentile_interval(0.0, np.zeros((2, 2))),
            "distribution: has shape (2, 2); must be [resamples], one number for each",
        ),
        (
            lambda: hoeffding_interval([2.0], 0, 1),
            "values: 2 is outside the range [0, 1]; the range must contain every possible rollout and be fixed before the first",
        ),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message
