"""How often intervals contain the true value, for estimates like those of importance sampling."""

import numpy as np
import pytest
from scipy import stats

from evarl.ope.importance import Steps, summed_trajectory_wise
from evarl.ope.resampling import resampled_counts
from evarl.stats import Interval, bernstein_interval, hoeffding_interval, percentile_interval, t_interval

REPETITIONS = 3000


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([x.low <= truth <= x.high for x in intervals]))


@pytest.fixture(scope="module")
def shares() -> np.ndarray:
    """Of 4000 bootstrap samples of 200; each repetition can use the same, since they know nothing of the data."""
    return np.concatenate(list(resampled_counts(np.random.default_rng(0), 200, 4000))) / 200


@pytest.mark.parametrize("confidence", [pytest.param(0.8, marks=pytest.mark.slow), 0.95])
def test_coverage_where_all_is_well(shares, confidence):
    """A smooth, slightly skewed distribution: bootstrap and t are within two points of what they say, on each side."""
    x = np.random.default_rng(1).gamma(9.0, size=(REPETITIONS, 200))
    boot = [percentile_interval(0.0, row, confidence) for row in x @ shares.T]
    t = [t_interval(row, confidence) for row in x]
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
    reward = action + rng.normal(size=action.shape)
    log_ratio = np.log(np.array([0.8, 0.2]) / 0.5)[action]
    steps = [Steps(r, x, np.ones((200, 1), bool), 1.0) for r, x in zip(reward, log_ratio, strict=True)]
    values = [summed_trajectory_wise(one, self_normalised=True).at(shares[:500]) for one in steps]
    assert coverage([percentile_interval(0.0, row, 0.9) for row in values], 0.2) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("size", [20, pytest.param(300, marks=pytest.mark.slow)])
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
        for bound in (bernstein_interval, hoeffding_interval):
            assert coverage([bound(row, 0.0, 1.0, confidence) for row in x], mean) >= confidence
    if mean == 0.004:
        assert coverage([t_interval(row, 0.9) for row in x], mean) < 0.75
