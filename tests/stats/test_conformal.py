"""Conformal quantiles and p-values, by hand and by counting all orders."""

from itertools import permutations

import pytest

from evarl.errors import InputError
from evarl.stats import conformal_p_value, conformal_quantile


@pytest.mark.parametrize(
    ("count", "confidence", "expected"),
    [(9, 0.9, 9.0), (8, 0.9, None), (10, 0.9, 10.0), (19, 0.9, 18.0), (20, 0.9, 19.0), (4, 0.8, 4.0), (3, 0.5, 2.0)],
)
def test_the_quantile_by_hand(count, confidence, expected):
    """The ⌈(n + 1) · confidence⌉-th of the scores 1 … n."""
    assert conformal_quantile(range(count, 0, -1), confidence) == expected


def test_over_all_orders_of_exchangeable_scores_the_quantile_covers_as_often_as_it_says():
    """Each of 1 … 5 is the new score equally often: of k = ⌈5 · 0.7⌉ = 4 of 4 scores, one new score in five is larger."""
    covered = [new <= conformal_quantile(rest, 0.7) for *rest, new in permutations([1.0, 2.0, 3.0, 4.0, 5.0])]
    assert sum(covered) / len(covered) == 4 / 5


def test_p_values_by_hand():
    assert conformal_p_value([1.0, 2.0, 3.0], 3.5) == 1 / 4
    assert conformal_p_value([1.0, 2.0, 3.0], 3.0) == 2 / 4
    assert conformal_p_value([1.0, 2.0, 3.0], 0.0) == 1.0
    orders = list(permutations([1.0, 2.0, 3.0, 4.0]))
    assert sum(conformal_p_value(rest, new) <= 0.25 for *rest, new in orders) / len(orders) == 0.25


def test_a_confidence_that_cannot_be_is_refused():
    with pytest.raises(InputError):
        conformal_quantile([1.0], 1.5)
