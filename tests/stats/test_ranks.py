"""Rank correlations with ties, constants and numbers that are not finite."""

import numpy as np
import pytest
from scipy.stats import kendalltau, rankdata, spearmanr

from evarl.errors import InputError
from evarl.stats import kendall, spearman


def test_they_are_scipys_with_ties():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 6, size=(2, 12)).astype(float)
        assert spearman(a, b) == round(np.corrcoef(rankdata(a), rankdata(b))[0, 1], 12)
        assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-9)
        assert kendall(a, b) == pytest.approx(kendalltau(a, b).statistic, abs=1e-9)


def test_kendall_with_ties_by_hand():
    # of 6 pairs 4 are in the same order, one is tied in a only and one in b only
    assert kendall([1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 2.0]) == pytest.approx((4 - 0) / np.sqrt(5 * 5))
    assert kendall([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0


@pytest.mark.parametrize("correlation", [spearman, kendall])
@pytest.mark.parametrize(
    "a",
    [[1.0, 2.0], [1.0, 1.0, 1.0], [1e6, 1e6 + 1e-3, 1e6], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0]],
    ids=["two", "constant", "constant in float32", "nan", "inf"],
)
def test_what_is_undefined_is_none(correlation, a):
    b = np.arange(float(len(a)))
    assert correlation(a, b) is None
    assert correlation(b, a) is None


@pytest.mark.parametrize("correlation", [spearman, kendall])
def test_sides_of_different_length_are_refused(correlation):
    with pytest.raises(InputError, match=r"b: has shape \(2,\); must be \(3,\), that of a"):
        correlation([1.0, 2.0, 3.0], [1.0, 2.0])
