"""Shortfall and error of evaluators."""

import numpy as np
import pytest

from evarl.bounds import Range, betting_upper_bound, risk_control, rmse_upper_bound
from tests.bounds import slow


def sample(seed, n):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 3, n)
    returns = np.clip(values + rng.normal(0, 0.5, (2, n)), -2, 4)
    return returns[0], returns[1], values + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("n", [10, 60])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("values", [(None, None), (-1.0, 2.0)])
def test_risk_control_is_that_of_plain_loops(n, epsilon, values):
    returns, _, predictions = sample(n, n)
    c, d = (-2.0, 4.0) if values[0] is None else values
    clipped = np.clip(predictions, c, d)
    for grid in (None, [0.0, 0.5, 1.0, 2.5], [0.2]):
        margins = np.linspace(0, d + 2, 101) if grid is None else grid
        found = risk_control(returns, predictions, Range(-2, 4, *values), epsilon, 0.1, grid=grid)
        expected = slow.risk_margin(returns, clipped, -2, d, epsilon, 0.1, list(margins))
        assert found.margin == (None if expected is None else pytest.approx(expected, abs=1e-12))
        if expected is not None and expected < d + 2:
            losses = np.maximum(clipped - expected - returns, 0)
            bound = slow.betting_upper(losses, 0, d - expected + 2, 0.1)
            assert found.bound == pytest.approx(min(bound, epsilon), abs=1e-9)
            assert bound <= epsilon + 1e-9 or d - expected + 2 <= epsilon
            assert found.at(predictions) == pytest.approx(clipped - expected)


def test_the_last_margin_of_the_usual_grid_is_always_safe():
    found = risk_control([0.0], [1.0], Range(0.0, 1.0), epsilon=1e-9)
    assert (found.margin, found.bound) == (1.0, 0.0)


@pytest.mark.parametrize("n", [10, 60])
@pytest.mark.parametrize("values", [(None, None), (1.5, 3.5), (-1.0, 0.5)])
def test_rmse_is_that_of_plain_loops(n, values):
    returns, other, predictions = sample(n, n)
    c, d = (-2.0, 4.0) if values[0] is None else values
    clipped = np.clip(predictions, c, d)
    # The extreme products over a fine grid of values, returns at the ends of their range.
    grid = np.linspace(c, d, 20_001)
    ends = [(a - grid) * (b - grid) for a in (-2, 4) for b in (-2, 4)]
    least, most = np.min(ends), np.max(ends)
    products = (returns - clipped) * (other - clipped)
    expected = np.sqrt(max(0, slow.betting_upper(products, least, most, 0.1)))
    found = rmse_upper_bound(returns, other, predictions, Range(-2, 4, *values), 0.1)
    assert found == pytest.approx(expected, abs=1e-9)


def test_noise_of_returns_is_no_error_of_the_evaluator():
    rng = np.random.default_rng(0)
    returns, other = rng.integers(0, 2, (2, 20_000)).astype(float)
    half = np.full(20_000, 0.5)
    assert rmse_upper_bound(returns, other, half, Range(0, 1)) < 0.1
    assert np.sqrt(betting_upper_bound((returns - half) ** 2, 0, 1)) > 0.49
