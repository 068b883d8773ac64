"""Exact bounds for returns of two values: known answers, and the probability of error over all outcomes."""

from math import comb

import numpy as np
import pytest

from evarl.bounds import betting_lower_bound, two_valued_lower_bound, two_valued_upper_bound


def outcome(n, k, low=0.0, high=1.0):
    return [high] * k + [low] * (n - k)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.2])
@pytest.mark.parametrize("n", [1, 5, 50, 1000])
def test_known_answers(n, alpha):
    # All successes: p^n = α. One success: 1 − (1 − p)^n = α. None: nothing is known.
    assert two_valued_lower_bound(outcome(n, n), 0, 1, alpha) == pytest.approx(alpha ** (1 / n), rel=1e-12)
    assert two_valued_lower_bound(outcome(n, 1), 0, 1, alpha) == pytest.approx(1 - (1 - alpha) ** (1 / n), rel=1e-9)
    assert two_valued_lower_bound(outcome(n, 0), 0, 1, alpha) == 0
    assert two_valued_upper_bound(outcome(n, 0), 0, 1, alpha) == pytest.approx(1 - alpha ** (1 / n), rel=1e-12)
    assert two_valued_upper_bound(outcome(n, n - 1), 0, 1, alpha) == pytest.approx((1 - alpha) ** (1 / n), rel=1e-9)
    assert two_valued_upper_bound(outcome(n, n), 0, 1, alpha) == 1
    assert two_valued_lower_bound(outcome(n, n, -3, 5), -3, 5, alpha) == pytest.approx(-3 + 8 * alpha ** (1 / n))


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("n", [1, 7, 20, 60])
def test_the_probability_of_error_over_all_outcomes(n, alpha):
    lower = np.array([two_valued_lower_bound(outcome(n, k), 0, 1, alpha) for k in range(n + 1)])
    upper = np.array([two_valued_upper_bound(outcome(n, k), 0, 1, alpha) for k in range(n + 1)])
    assert (np.diff(lower) > 0).all()
    assert (np.diff(upper) > 0).all()
    ways = np.array([comb(n, k) for k in range(n + 1)], float)
    k = np.arange(n + 1)

    def chances(p):
        return ways * p**k * (1 - p) ** (n - k)

    # The bounds' own ends are where an error is most probable.
    for p in (*np.linspace(0, 1, 401), *(lower[1:] - 1e-12), *(upper[:-1] + 1e-12)):
        assert chances(p)[lower > p].sum() <= alpha + 1e-9
        assert chances(p)[upper < p].sum() <= alpha + 1e-9
    # And there it is all of α: no valid bound that orders outcomes by k is tighter.
    assert max(chances(p)[lower > p].sum() for p in lower[1:] - 1e-12) == pytest.approx(alpha, abs=1e-6)


def test_mirrored_and_in_any_order():
    returns = np.random.default_rng(0).permutation(outcome(40, 31, -3, 5))
    lower = two_valued_lower_bound(returns, -3, 5)
    assert lower == two_valued_lower_bound(sorted(returns), -3, 5)
    assert two_valued_upper_bound(-returns, -5, 3) == pytest.approx(-lower, abs=1e-12)


def test_returns_in_single_precision_are_the_values_that_were_rounded():
    returns = np.array([0.1, 0.7, 0.7], np.float32)
    assert two_valued_lower_bound(returns, 0.1, 0.7) == two_valued_lower_bound([0.1, 0.7, 0.7], 0.1, 0.7)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.99])
def test_tighter_than_bets_on_average(n, chance):
    samples = (np.random.default_rng(1).random((40, n)) < chance).astype(float)
    exact = np.mean([two_valued_lower_bound(row, 0, 1) for row in samples])
    assert exact > np.mean([betting_lower_bound(row, 0, 1) for row in samples])
