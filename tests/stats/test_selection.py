"""SLOPE by hand, its guarantee in simulations, and rankings that name a best alternative only if it is separated."""

import numpy as np
import pytest
from scipy import stats

from evarl.errors import InputError
from evarl.stats import Candidate, rank_means, slope

REPETITIONS = 500


def candidates(values, errors, size=1e6):
    return [Candidate(f"{i}", float(v), float(e), size) for i, (v, e) in enumerate(zip(values, errors, strict=True))]


@pytest.mark.parametrize(
    ("values", "errors", "chosen"),
    [
        ([0.0, 0.0, 0.0], [4.0, 2.0, 1.0], "2"),
        ([0.0, 5.0, 100.0], [4.0, 2.0, 1.0], "1"),
        ([0.0, 50.0, 0.0], [4.0, 2.0, 1.0], "0"),  # a later one that agrees again does not count
        (
            [0.0, 100.0, 0.0],
            [1.0, 2.0, 4.0],
            "2",
        ),  # ordered by width, not as given: 2, 1, 0, and 1 does not agree with 2
        ([7.0], [1.0], "0"),
    ],
)
def test_by_hand(values, errors, chosen):
    found = slope(candidates(values, errors))
    assert found.chosen.name == chosen
    assert [one.standard_error for one in found.candidates] == sorted(errors, reverse=True)
    reach = stats.norm.ppf(1 - 0.05 / (2 * len(values)))
    first = found.candidates[0]
    assert found.first.high - first.value == pytest.approx(reach * first.standard_error, rel=1e-4)
    assert chosen in found.why


def test_intersection_of_all_and_not_of_neighbours():
    """0 and 1 agree, 1 and 2 agree, 0 and 2 do not."""
    reach = stats.norm.ppf(1 - 0.05 / 6)
    found = slope(candidates([0.0, 2 * reach * 1.6, 2 * reach * 1.6 + reach * 3.0], [1.0, 0.9, 0.8]))
    assert found.chosen.name == "1"


def test_more_bias_for_nothing_is_left_out():
    """In the order of biases, the second is wider than the first: it would be the anchor if widths made the order."""
    given = candidates([0.0, 50.0, 0.5, 9.0], [1.0, 2.0, 0.8, 0.9])
    found = slope(given, ordered=True)
    assert (found.chosen.name, [one.name for one in found.left_out]) == ("2", ["1", "3"])
    assert slope(given).chosen.name == "1"
    assert set(found.intervals) == set("0123")


def test_the_error_is_near_that_of_the_best_choice():
    """Error at most 6 (1 + 1/κ) min (bias + width), in 95 % of repetitions; and usually much nearer to the best."""
    generator = np.random.default_rng(0)
    bias, error = np.array([0.0, 0.02, 0.1, 0.5, 3.0]), 2.0 ** -np.arange(5)
    reach = stats.norm.ppf(1 - 0.05 / 10) * error
    best = (bias + reach).min()
    errors, first = [], []
    for noise in generator.normal(size=(REPETITIONS, 5)):
        found = slope(candidates(bias + error * noise, error))
        errors.append(abs(found.chosen.value))
        first.append(abs(noise[0]))
    assert np.mean(np.array(errors) <= 6 * (1 + 2) * best) >= 0.95
    assert np.mean(errors) < 0.7 * np.mean(first)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "there are none"),
        ([Candidate("a", 0.0, 1.0, 9.0)] * 2, "each with its own name"),
        ([Candidate("a", float("nan"), 1.0, 9.0)], "candidate a"),
        ([Candidate("a", 0.0, 1.0, 1.0)], "has size 1"),
    ],
)
def test_refusals(given, text):
    with pytest.raises(InputError, match=text):
        slope(given)


@pytest.mark.parametrize("span", [None, (0.0, 1.0)])
def test_the_best_is_seldom_named_where_there_is_none(span):
    """Four alternatives, of which two are equally good: naming either is an error, as is an interval that misses."""
    generator = np.random.default_rng(1)
    means, wrong, missed = np.array([0.3, 0.5, 0.5, 0.4]), [], []
    for _ in range(REPETITIONS):
        if span is None:
            rows = means[:, None] + generator.normal(0, 0.3, 60) + generator.normal(0, 0.3, (4, 60))
        else:
            rows = (generator.random((4, 60)) < means[:, None]).astype(float)
        found = rank_means(list("abcd"), rows, 0.9, span)
        wrong.append(found.best is not None)
        truth = dict(zip("abcd", means, strict=True))
        missed.append(
            not all(one.low <= truth[name] <= one.high for name, one in found.values.items())
            or not all(one.low <= truth[a] - truth[b] <= one.high for (a, b), one in found.differences.items())
        )
    limit = 0.1 + 2 * np.sqrt(0.09 / REPETITIONS)
    assert np.mean(wrong) <= limit
    assert np.mean(missed) <= limit


def test_the_best_is_named_where_it_is_separated():
    generator = np.random.default_rng(2)
    common = generator.normal(0.0, 50.0, 200)
    rows = common + np.array([[0.0], [1.0], [3.0]]) + generator.normal(size=(3, 200))
    found = rank_means(["a", "b", "c"], rows)
    assert found.order == ("c", "b", "a")
    assert found.best == "c"
    assert found.regret == 0.0
    assert (
        found.values["c"].low < found.values["a"].high
    )  # intervals of values overlap by far; those of differences do not
    alone = rank_means(["a"], rows[:1])
    assert alone.best == "a"


def test_regret_is_bounded():
    rows = np.random.default_rng(3).normal(size=(3, 50))
    found = rank_means(["a", "b", "c"], rows)
    assert found.best is None
    assert found.regret == pytest.approx(
        max(-one.low for (a, _), one in found.differences.items() if a == found.order[0])
    )
    assert "is not separated from" in found.why
