"""Intervals: formulas, what is refused, and how often they contain the truth."""

import jax
import numpy as np
import pytest
from scipy import stats

from evarl.errors import InputError
from evarl.ope.importance import Steps, resampled_shares, resampled_trajectory_wise
from evarl.ope.intervals import Interval, bernstein, hoeffding, percentile, student_t

REPETITIONS = 3000


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([x.low <= truth <= x.high for x in intervals]))


@pytest.fixture(scope="module")
def shares() -> np.ndarray:
    """Of 1000 bootstrap samples of 200; each repetition can use the same, since they know nothing of the data."""
    return np.asarray(resampled_shares(jax.random.PRNGKey(0), np.full(200, 1 / 200, np.float32), 1000), np.float64)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_coverage_where_all_is_well(shares, confidence):
    """A smooth, slightly skewed distribution: bootstrap and t are within two points of what they say, on each side."""
    x = np.random.default_rng(1).gamma(9.0, size=(REPETITIONS, 200))
    boot = [percentile(row, confidence) for row in x @ shares.T]
    t = [student_t(row, confidence) for row in x]
    for intervals in (boot, t):
        assert coverage(intervals, 9.0) == pytest.approx(confidence, abs=0.02)
        assert np.mean([i.high < 9.0 for i in intervals]) == pytest.approx((1 - confidence) / 2, abs=0.02)
    # the mistake: a one-sided quantile in a two-sided interval
    mean, error = x.mean(axis=1), x.std(axis=1, ddof=1) / 200**0.5
    reach = stats.t.ppf(confidence, 199) * error
    assert abs(np.mean(np.abs(mean - 9.0) <= reach) - confidence) > 0.02


def test_coverage_of_a_ratio(shares):
    """Self-normalised importance sampling, whose denominator is computed anew for each bootstrap sample."""
    rng = np.random.default_rng(2)
    action = rng.integers(0, 2, (REPETITIONS, 200, 1))
    reward = (action + rng.normal(size=action.shape)).astype(np.float32)
    log_ratio = np.log(np.array([0.8, 0.2], np.float32) / np.float32(0.5))[action]
    mask = np.ones((200, 1), bool)
    small = shares[:500].astype(np.float32)
    one = lambda r, x: resampled_trajectory_wise(Steps(r, x, mask, 1.0), small, self_normalised=True)  # noqa: E731
    values = np.asarray(jax.jit(jax.vmap(one))(reward, log_ratio))
    assert coverage([percentile(row, 0.9) for row in values], 0.2) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("size", [20, 300])
@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng, shape: rng.random(shape), 0.5),
        (lambda rng, shape: rng.beta(0.2, 3.8, shape), 0.05),
        (lambda rng, shape: (rng.random(shape) < 0.004) * 1.0, 0.004),
    ],
    ids=["smooth", "skewed", "rare"],
)
def test_bounds_hold_everywhere(draw, mean, size):
    """Where the t interval of rare events does not: with none of them seen it has no width."""
    x = draw(np.random.default_rng(3), (REPETITIONS, size))
    for confidence in (0.5, 0.9):
        for bound in (bernstein, hoeffding):
            assert coverage([bound(row, 0.0, 1.0, confidence) for row in x], mean) >= confidence
    if mean == 0.004:
        assert coverage([student_t(row, 0.9) for row in x], mean) < 0.75


def test_formulas():
    x = np.random.default_rng(4).random(5000)
    reach = {
        "t": stats.t.ppf(0.95, 4999) * x.std(ddof=1) / 5000**0.5,
        "hoeffding": 3.0 * (np.log(2 / 0.1) / 10000) ** 0.5,
        "bernstein": (2 * x.var(ddof=1) * np.log(4 / 0.1) / 5000) ** 0.5 + 7 * 3.0 * np.log(4 / 0.1) / (3 * 4999),
    }
    for interval in (student_t(x, 0.9), hoeffding(x, -1.0, 2.0, 0.9), bernstein(x, -1.0, 2.0, 0.9)):
        wanted = Interval(x.mean() - reach[interval.method], x.mean() + reach[interval.method], 0.9, interval.method)
        assert (interval.low, interval.high) == pytest.approx((wanted.low, wanted.high), rel=1e-12)


def test_bounds_stay_within_the_range():
    for bound in (bernstein, hoeffding):
        interval = bound(np.array([0.0, 1.0]), 0.0, 1.0, 0.99)
        assert (interval.low, interval.high) == (0.0, 1.0)


def test_shares():
    """Equal shares of some are those alone; others count by 1/Σp²."""
    x = np.random.default_rng(5).random(40)
    share = np.where(np.arange(40) < 30, 1 / 30, 0.0)
    assert student_t(x, 0.9, share).low == pytest.approx(student_t(x[:30], 0.9).low)
    assert bernstein(x, 0, 1, 0.9, share).low == pytest.approx(bernstein(x[:30], 0, 1, 0.9).low)
    p = np.arange(1.0, 41.0) / np.sum(np.arange(1.0, 41.0))
    interval = hoeffding(x, 0, 1, 0.9, p)
    assert (interval.high - interval.low) / 2 == pytest.approx((np.log(20) / 2 * np.sum(p**2)) ** 0.5)
    with pytest.raises(InputError, match="equal shares"):
        bernstein(x, 0, 1, 0.9, p)


def test_what_is_refused():
    x = np.array([0.0, 0.5, 1.25])
    for bound in (bernstein, hoeffding):
        with pytest.raises(InputError, match=r"1\.25 is outside \[0, 1\]"):
            bound(x, 0.0, 1.0)
    with pytest.raises(InputError, match="want at least 2"):
        student_t(x[:1])
    with pytest.raises(InputError, match="confidence: 95 is not allowed"):
        student_t(x, 95)
    with pytest.raises(InputError, match="contribution: is inf at 1"):
        student_t(np.array([0.0, np.inf]))
    with pytest.raises(InputError, match=r"sum to 0\.9"):
        student_t(x, 0.9, np.full(3, 0.3))
    with pytest.raises(InputError, match=r"want \[N\]"):
        percentile(np.zeros((2, 2)))
