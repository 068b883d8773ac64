"""Bands around distribution functions: classical, weighted, cut, with policies that change and with missing support."""

import numpy as np
import pytest
from scipy import stats

from evarl.bounds import Band, dkw_band, weighted_dkw_band, weighted_grid_band
from evarl.errors import InputError
from evarl.stats import Distribution, weighted_distribution

REPETITIONS, N = 600, 100


def steps(generator, probability, shape):
    """Numbers of 0 … 3, each with its probability."""
    return np.searchsorted(np.cumsum(probability), generator.random(shape)).astype(float)


TARGET = np.array([0.1, 0.2, 0.3, 0.4])
TRUTH = Distribution(np.arange(4.0), np.cumsum(TARGET))


def logged(case, generator, count):
    """Values [count, N] and weights of a log, for each of several cases."""
    if case == "smooth":
        logging = np.array([0.25, 0.25, 0.25, 0.25])
    elif case == "rare":  # a crash that the log hardly ever shows
        logging = np.array([0.005, 0.295, 0.3, 0.4])
    elif case == "missing":  # the log never takes what ends at 3
        logging = np.array([0.4, 0.3, 0.3, 0.0])
    else:  # the policy changes after every value, towards those that were good
        x, w = np.empty((2, count, N))
        belief = np.ones((count, 4))
        for i in range(N):
            chance = belief / belief.sum(axis=1, keepdims=True)
            found = (np.cumsum(chance, axis=1) < generator.random((count, 1))).sum(axis=1).clip(0, 3)
            x[:, i], w[:, i] = found, TARGET[found] / chance[np.arange(count), found]
            belief[np.arange(count), found] += found / 5
        return x, w
    x = steps(generator, logging, (count, N)).clip(0, 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        return x, (TARGET / logging)[x.astype(int)]


def test_without_weights_it_is_the_dkw_band():
    x = np.random.default_rng(0).normal(size=50)
    found, reach = dkw_band(x, 0.05), np.sqrt(np.log(2 / 0.05) / 100)
    share = np.arange(51) / 50
    assert np.array_equal(found.points, np.concatenate([[-np.inf], np.sort(x), [np.inf]]))
    assert np.allclose(found.lower[:-1], np.maximum(share - reach, 0.0))
    assert np.allclose(found.upper[:-1], np.minimum(share + reach, 1.0))
    assert found.lower[-1] == found.upper[-1] == 1.0
    wider = weighted_dkw_band(x, np.ones(50), 1.0, 0.05 * np.e)  # the price for weights is a factor of e in the level
    assert np.allclose(found.lower, wider.lower)
    assert np.allclose(found.upper, wider.upper)


@pytest.mark.parametrize(
    ("case", "limit"), [("smooth", 1.6), ("smooth", 1.2), ("rare", 3.0), ("missing", 2.0), ("adaptive", 5.0)]
)
def test_coverage(case, limit):
    """At 80 %, for weights that are bounded, cut, unbounded, adapted to the past, or zero on the best values."""
    x, w = logged(case, np.random.default_rng(1), REPETITIONS)
    held = [weighted_dkw_band(a, b, limit, 0.2, 0.0, 3.0).contains(TRUTH) for a, b in zip(x, w, strict=True)]
    assert np.mean(held) >= 0.8


@pytest.mark.parametrize("case", ["smooth", "rare", "missing", "adaptive"])
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_coverage_of_grids(case, count):
    x, w = logged(case, np.random.default_rng(2), count)
    found = [weighted_grid_band(a, b, 4.0, [0.0, 1.0, 2.0], 0.2, 0.0, 3.0) for a, b in zip(x, w, strict=True)]
    for one in found:
        assert (np.diff(one.lower) >= 0).all()
        assert (np.diff(one.upper) >= 0).all()
        assert (one.lower <= one.upper).all()
    assert np.mean([one.contains(TRUTH) for one in found]) >= 0.8


def test_dkw_is_not_much_too_wide():
    """For equal weights it holds about as often as it says, so that a narrower one would not be valid."""
    x = np.random.default_rng(3).normal(size=(REPETITIONS, N))
    below = np.arange(N) / N
    uniform = stats.norm.cdf(np.sort(x, axis=1))
    farthest = np.maximum(uniform - below, below + 1 / N - uniform).max(axis=1)
    reach = np.diff([dkw_band(x[0], 0.1).lower[50], 0.5])[0]
    assert np.mean(farthest <= reach) == pytest.approx(0.9, abs=0.04)


def test_unknown_support_widens_the_upper_side_only():
    x, w = logged("missing", np.random.default_rng(4), 1)
    found = weighted_dkw_band(x[0], w[0], 2.0, 0.05, 0.0, 3.0)
    assert found.upper[-2] == 1.0  # 3 may have all that is missing, or none: the worst case puts it on the least
    assert found.contains(TRUTH)
    assert found.mean()[0] <= TRUTH.mean <= found.mean()[1]
    assert found.cvar(0.3)[0] <= TRUTH.cvar(0.3) <= found.cvar(0.3)[1]


def test_the_grid_adapts_to_the_weights():
    """Weights that are seldom near their bound: the grid's band is narrower where it matters."""
    generator = np.random.default_rng(5)
    x = generator.random(4000)
    w = np.where(generator.random(4000) < 0.999, 1.0 - 0.049 / 0.999, 50.0)
    grid, plain = (
        weighted_grid_band(x, w, 50.0, [0.25, 0.5, 0.75], 0.05, 0.0, 1.0),
        weighted_dkw_band(x, w, 50.0, 0.05, 0.0, 1.0),
    )
    assert plain.mean()[1] - plain.mean()[0] > 0.95
    assert grid.mean()[1] - grid.mean()[0] < 0.7


def test_a_distribution_outside_is_noticed():
    band = Band(np.array([0.0, 1.0]), np.array([0.4, 1.0]), np.array([0.6, 1.0]), 0.95, "dkw")
    assert band.contains(weighted_distribution([0.0, 1.0]))
    assert not band.contains(weighted_distribution([0.0, 0.0, 0.0, 1.0]))
    assert not band.contains(weighted_distribution([0.5, 1.0]))
    assert not band.contains(weighted_distribution([-1.0, 0.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([1.0], [1.0], 0.5), "limit: 0.5 is not allowed"),
        (([1.0], [1.0], np.inf), "limit: inf is not allowed"),
        (([1.0], [-1.0], 2.0), "weights: the least is -1"),
        (([1.0], [1.0], 2.0, 0.05, 2.0, 3.0), r"range: \[2, 3\] is not allowed; must contain all values"),
        (([1.0], [1.0, 2.0], 2.0), "weights: has length 2"),
    ],
)
def test_refusals(arguments, text):
    with pytest.raises(InputError, match=text):
        weighted_dkw_band(*arguments)
    if len(arguments) == 3:
        with pytest.raises(InputError, match="grid: has no point"):
            weighted_grid_band([1.0], [1.0], 2.0, [5.0], low=0.0, high=2.0)
