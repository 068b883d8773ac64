"""Ratios of averages: known answers, and the jackknife against repeated sampling."""

import numpy as np
import pytest

from evarl.stats import ratio_of_means


def test_averages_are_divided_and_not_ratios_averaged():
    assert ratio_of_means([1.0, 3.0], [0.1, 7.9])[0] == 0.5


def test_the_standard_error_is_that_of_repeated_sampling():
    rng = np.random.default_rng(0)
    y = rng.gamma(4.0, size=(400, 20))
    x = 2 * y + rng.normal(size=y.shape)
    found = [ratio_of_means(*pair) for pair in zip(x, y, strict=True)]
    spread = np.std([ratio for ratio, _ in found])
    assert np.mean([error for _, error in found]) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(("x", "y"), [([1.0], [2.0]), ([1.0, 1.0], [3.0, -1.0])])
def test_no_standard_error_for_one_run_or_a_divisor_that_may_vanish(x, y):
    assert ratio_of_means(x, y)[1] is None


def test_negative_divisors_are_as_good_as_positive_ones():
    assert ratio_of_means([-2.0, -4.0], [-1.0, -3.0]) == ratio_of_means([2.0, 4.0], [1.0, 3.0])
