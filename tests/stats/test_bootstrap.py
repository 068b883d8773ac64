"""The bootstrap against all resamples there are, and against how often it has to cover."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evarl.errors import InputError
from evarl.stats import bootstrap_distribution, bootstrap_interval, iqm


def all_resamples(*tasks: list[float]) -> np.ndarray:
    """Every way to draw the runs of every task again: [ways, runs of all tasks]."""
    within = [list(product(runs, repeat=len(runs))) for runs in tasks]
    return np.array([sum(way, ()) for way in product(*within)])


def frequencies(distribution: np.ndarray) -> dict[float, float]:
    values, counts = np.unique(distribution.round(9), return_counts=True)
    return dict(zip(values.tolist(), (counts / len(distribution)).tolist(), strict=True))


@pytest.mark.parametrize("statistic", [np.mean, np.median, np.max, iqm])
@pytest.mark.parametrize(
    ("scores", "tasks"),
    [
        ([0.0, 1.0, 5.0], [[0.0, 1.0, 5.0]]),
        ([[0.0, 10.0], [1.0, 20.0], [5.0, 70.0]], [[0.0, 1.0, 5.0], [10.0, 20.0, 70.0]]),
        ({"a": [0.0, 1.0, 5.0], "b": [10.0, 70.0]}, [[0.0, 1.0, 5.0], [10.0, 70.0]]),
    ],
    ids=["one task", "array", "unequal"],
)
def test_every_value_is_as_frequent_as_among_all_resamples(scores, tasks, statistic):
    everything = statistic(all_resamples(*tasks), axis=-1)
    wanted = frequencies(everything)
    found = frequencies(bootstrap_distribution(scores, statistic, resamples=40_000, seed=3))
    assert found.keys() <= wanted.keys(), "a task's runs are drawn from that task alone"
    for value, frequency in wanted.items():
        error = 4.5 * np.sqrt(frequency * (1 - frequency) / 40_000)
        assert found.get(value, 0.0) == pytest.approx(frequency, abs=error)


def test_the_interval_of_three_runs_is_that_of_all_27_resamples():
    means = np.sort(all_resamples([0.0, 1.0, 5.0]).mean(axis=1))
    for confidence in (0.5, 0.8, 0.95):
        found = bootstrap_interval([0.0, 1.0, 5.0], np.mean, confidence, resamples=100_000)
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf")
        assert (found.estimate, found.low, found.high) == pytest.approx((2.0, low, high))
    assert (found.low, found.high) == (0.0, 5.0), "the same run three times is one resample in 27, above 2.5 %"


def test_a_mapping_with_as_many_runs_of_each_task_is_an_array():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    mapping = {name: scores[:, i] for i, name in enumerate("abc")}
    assert bootstrap_interval(mapping, iqm, resamples=200) == bootstrap_interval(scores, iqm, resamples=200)


def test_a_statistic_may_treat_tasks_one_by_one():
    def worst(scores: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
        return scores.mean(axis=-2).min(axis=-1)

    found = bootstrap_interval([[5.0, 2.0], [9.0, 2.0], [7.0, 2.0]], worst)
    assert (found.estimate, found.low, found.high) == (2.0, 2.0, 2.0)
    with pytest.raises(InputError, match="returned shape"):
        bootstrap_interval({"a": [5.0, 9.0, 7.0], "b": [2.0, 2.0]}, worst)


def test_the_seed_decides():
    scores = np.random.default_rng(0).normal(size=(10, 4))
    assert bootstrap_interval(scores, iqm, seed=1) == bootstrap_interval(scores, iqm, seed=1)
    assert bootstrap_interval(scores, iqm, seed=1) != bootstrap_interval(scores, iqm, seed=2)


def test_scores_that_need_several_blocks():
    scores = np.random.default_rng(0).normal(size=5000)
    found = bootstrap_distribution(scores, np.mean, resamples=1500)
    assert found.shape == (1500,)
    assert found.std() == pytest.approx(scores.std() / np.sqrt(5000), rel=4 / np.sqrt(2 * 1500))


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "said"), [(5, 0.83), (10, 0.90), (30, 0.94)])
def test_coverage_of_a_normal_mean_is_what_the_docstring_says(runs, said):
    scores = np.random.default_rng(2).normal(1.0, 3.0, size=(1500, runs))
    intervals = [bootstrap_interval(row, np.mean, resamples=400, seed=i) for i, row in enumerate(scores)]
    covered = np.mean([interval.low <= 1 <= interval.high for interval in intervals])
    expected = 2 * stats.t.cdf(stats.norm.ppf(0.975) * np.sqrt((runs - 1) / runs), runs - 1) - 1
    assert expected == pytest.approx(said, abs=0.02), "the formula, which is for many resamples of many runs"
    assert covered == pytest.approx(said, abs=0.02)


def test_coverage_over_many_tasks_is_the_nominal_one():
    rng = np.random.default_rng(4)
    truth = np.arange(8.0)
    scores = truth + rng.normal(size=(600, 20, 8))
    intervals = [bootstrap_interval(table, np.mean, 0.9, resamples=400, seed=i) for i, table in enumerate(scores)]
    covered = np.mean([interval.low <= truth.mean() <= interval.high for interval in intervals])
    assert covered == pytest.approx(0.9, abs=0.035)
    width = np.mean([interval.high - interval.low for interval in intervals])
    plain = 2 * stats.norm.ppf(0.95) / np.sqrt(160)
    assert width == pytest.approx(plain, rel=0.05), "differences between tasks are no part of it"
