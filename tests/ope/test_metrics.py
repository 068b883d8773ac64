"""Metrics over policies, by hand and by what must not change them."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from evarl.errors import InputError
from evarl.ope.metrics import PolicyMetrics, mean_maximum_rank_violation, policy_metrics, regret_at_k

whole = st.integers(-9, 9).map(float)
policies = st.integers(1, 5).flatmap(
    lambda n: st.tuples(st.lists(whole, min_size=n, max_size=n), st.lists(whole, min_size=n, max_size=n))
)
few = settings(max_examples=60, deadline=None)


def spearman(estimated, true):
    return policy_metrics(estimated, true).spearman


def kendall(estimated, true):
    return policy_metrics(estimated, true).kendall


def test_everything_by_hand():
    # Pairs: (0,1) is turned around, all others are right. Differences: 1, 1, 0, 2.
    found = policy_metrics([-3.0, -4.0, -1.0, 1.0], [-4.0, -3.0, -1.0, 3.0])
    assert found == PolicyMetrics(
        policies=4,
        k=1,
        mean_absolute_error=1.0,
        root_mean_squared_error=np.sqrt(1.5),
        spearman=0.8,
        kendall=round(4 / 6, 12),
        regret_at_k=0.0,
        mean_maximum_rank_violation=(1 + 1 + 0 + 0) / 4,
    )


@pytest.mark.parametrize(
    ("k", "expected"), [(1, (9 - 4) / 9), (2, (9 - 6) / 9), (3, (9 - 6) / 9), (4, 0.0)], ids=["1", "2", "3", "all"]
)
def test_regret_of_negative_returns(k, expected):
    assert regret_at_k([5.0, 7.0, 1.0, 3.0], [-13.0, -15.0, -10.0, -19.0], k) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("estimated", "true", "k", "expected"),
    [
        ([1.0, 1.0], [0.0, 4.0], 1, 0.5),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 4.0], 2, (0 + 0 + 3) / 3 / 4),
        ([2.0, 1.0, 1.0], [1.0, 0.0, 4.0], 2, (3 + 0) / 2 / 4),
        ([2.0, 2.0, 1.0], [1.0, 0.0, 4.0], 2, 3 / 4),
        ([2.0, 1.0, 3.0], [5.0, 5.0, 5.0], 1, 0.0),
    ],
    ids=["one of two", "two of three", "one certain", "a tie that decides nothing", "all equally good"],
)
def test_regret_is_expected_over_ties(estimated, true, k, expected):
    assert regret_at_k(estimated, true, k) == pytest.approx(expected)


@few
@given(policies, st.data())
def test_regret_is_that_of_all_ways_to_break_ties(both, data):
    estimated, true = both
    k = data.draw(st.integers(1, len(true)))
    span = max(true) - min(true)
    regrets = []
    for order in permutations(range(len(true))):
        chosen = sorted(order, key=lambda i: -estimated[i])[:k]
        regrets.append((max(true) - max(true[i] for i in chosen)) / span if span else 0.0)
    assert regret_at_k(estimated, true, k) == pytest.approx(np.mean(regrets))


@pytest.mark.parametrize(
    ("estimated", "true", "expected"),
    [
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], (2 + 1 + 2) / 3),
        ([-1.0, -2.0, -3.0], [-7.0, -7.0, -7.0], 0.0),
        ([0.0, 0.0, 0.0], [0.0, 1.0, 3.0], (3 + 2 + 0) / 3),
        ([1.0, 0.0, 5.0], [-10.0, -9.0, -30.0], (20 + 21 + 21) / 3),
        ([4.0], [2.0], 0.0),
    ],
    ids=["reversed", "nothing to violate", "ties count for the worse", "negative", "one"],
)
def test_rank_violation_by_hand(estimated, true, expected):
    assert mean_maximum_rank_violation(estimated, true) == pytest.approx(expected)


def test_rank_correlations_are_scipys_with_ties():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 6, size=(2, 10)).astype(float)
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
        assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-9)


def test_kendall_with_ties_by_hand():
    # Of 6 pairs, (0,1) is tied in the estimates only, (1,2) in the truth only; the other 4 are right.
    assert kendall([1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 2.0]) == pytest.approx((4 - 0) / np.sqrt(5 * 5))
    assert kendall([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0


@pytest.mark.parametrize("correlation", [spearman, kendall])
def test_correlations_are_unknown_where_there_is_no_order(correlation):
    assert correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert correlation([1.0, 2.0, 3.0], np.float32([0.1, 0.1, 0.1]) + np.float32([0, 1e-8, 0])) is None


@few
@given(policies, whole, st.sampled_from([0.25, 2.0, 8.0]), st.data())
def test_shift_and_scale_of_either_side_change_no_order(both, shift, scale, data):
    estimated, true = (np.array(side) for side in both)
    k = data.draw(st.integers(1, len(true)))
    for other in ((estimated * scale + shift, true), (estimated, true * scale + shift)):
        assert regret_at_k(*other, k) == pytest.approx(regret_at_k(estimated, true, k), abs=1e-12)
        assert spearman(*other) == spearman(estimated, true)
        assert kendall(*other) == kendall(estimated, true)
    violation = mean_maximum_rank_violation(estimated, true)
    assert mean_maximum_rank_violation(estimated * scale + shift, true) == violation
    assert mean_maximum_rank_violation(estimated, true * scale + shift) == pytest.approx(scale * violation)


@few
@given(st.lists(whole, min_size=1, max_size=8), st.data())
def test_a_perfect_estimate_is_perfect(true, data):
    k = data.draw(st.integers(1, len(true)))
    found = policy_metrics(true, true, k)
    alone = len(true) < 3 or len(set(true)) == 1
    expected = None if alone else 1.0
    assert found == PolicyMetrics(len(true), k, 0.0, 0.0, expected, expected, 0.0, 0.0)


@few
@given(policies)
def test_regret_never_grows_with_k_and_stays_between_0_and_1(both):
    regrets = [regret_at_k(*both, k) for k in range(1, len(both[0]) + 1)]
    assert all(0 <= regret <= 1 for regret in regrets)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(regrets))
    assert regrets[-1] == 0


def test_errors_by_hand():
    assert policy_metrics([1.0, -2.0, 0.0], [-1.0, -2.0, -1.0]).mean_absolute_error == 1.0
    assert policy_metrics([1.0, -2.0], [-2.0, 2.0]).root_mean_squared_error == np.sqrt(12.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: policy_metrics([], []), "estimated: has length 0; must be at least 1 policies"),
        (lambda: spearman([1.0, 2.0], [1.0]), "true: has length 1; must be 2, the same policies as estimated"),
        (lambda: kendall([1.0, np.nan], [1.0, 2.0]), "estimated: is nan at [1]; must be finite"),
        (
            lambda: policy_metrics(1.0, 2.0),
            "estimated: has shape (); must be [policies], one number for each",
        ),
        (
            lambda: regret_at_k([1.0, 2.0], [1.0, 2.0], k=3),
            "k: 3 is not allowed; must be from 1 to 2, the number of policies",
        ),
        (
            lambda: regret_at_k([1.0, 2.0], [1.0, 2.0], k=0),
            "k: 0 is not allowed; must be from 1 to 2, the number of policies",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_line(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message


def test_small_returns_have_ranks_too():
    """Returns near 1e-7, whose differences are as clear as those of any other unit."""
    estimated, true = np.array([1.0, 3.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0])
    plain, small = policy_metrics(estimated, true), policy_metrics(1e-7 * estimated, 1e-7 * true)
    assert (small.spearman, small.kendall) == (plain.spearman, plain.kendall) == (0.8, pytest.approx(2 / 3))
    assert policy_metrics(np.zeros(4), true).spearman is None
