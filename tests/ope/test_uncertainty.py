"""When standard errors and intervals are given, withheld or warned of, and how often those that are given hold."""

import numpy as np
import pytest
from scipy import stats

from evarl import ope
from evarl.ope.importance import Steps, per_decision, trajectory_wise
from evarl.ope.resampling import Summed
from evarl.ope.tails import pareto_k
from evarl.ope.uncertainty import doubts, intervals_of, tail

SETTINGS = ope.Settings(resamples=200)


def gaussian(rng: np.random.Generator, count: int, shift: float) -> Steps:
    """One action from N(0, 1), asked of N(shift, 1): log-normal weights, J = shift."""
    action = rng.normal(size=(count, 1))
    reward = action + rng.normal(size=(count, 1))
    return Steps(reward, shift * action - shift**2 / 2, np.ones((count, 1), bool), 1.0)


@pytest.mark.parametrize("shape", [0.25, 0.5, 1.0])
def test_pareto_k_of_pareto_tails(shape):
    """x = u^−k has the tail index k; the prior of ten observations at 0.5 pulls a little."""
    rng = np.random.default_rng(0)
    found = [pareto_k(rng.random(2000) ** -shape) for _ in range(100)]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)
    assert pareto_k(rng.random(2000) ** -shape * 1e-200) == pytest.approx(shape, abs=0.5)


def test_pareto_k_of_no_tail():
    assert pareto_k(np.ones(500)) is None
    assert pareto_k(np.arange(10.0)) is None
    assert pareto_k(np.repeat([1.0, 2.0], 250)) is None
    assert pareto_k(np.random.default_rng(0).random(2000)) < 0


def test_light_and_heavy_tails():
    rng = np.random.default_rng(0)
    assert tail(light := gaussian(rng, 2000, 0.3), trajectory_wise(light).contribution)[1] == ()
    heavy = gaussian(rng, 2000, 2.5)
    k, warnings = tail(heavy, trajectory_wise(heavy).contribution)
    assert k > 0.7
    assert "neither the estimate nor its error is reliable" in warnings[0]


def runs(shift: float, self_normalised: bool, count: int = 300, repetitions: int = 200):
    """For each repetition: whether there is a t interval, whether it holds J, and whether the estimate carries a warning."""
    rng, found = np.random.default_rng(1), []
    for _ in range(repetitions):
        steps = gaussian(rng, count, shift)
        one = trajectory_wise(steps, self_normalised=self_normalised)
        reasons, (_, notes) = doubts(steps, one, SETTINGS), tail(steps, one.contribution)
        size = one.effective_sample_size if self_normalised else None
        t = intervals_of(one, SETTINGS, None if reasons else _mean(one), size, False, None)[0].get("t")
        found.append((t is not None, t is not None and t.low <= shift <= t.high, bool(reasons or notes)))
    return np.array(found).mean(axis=0)


def _mean(one):
    return Summed.mean(one.contribution)


@pytest.mark.parametrize("self_normalised", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_coverage_of_the_intervals_that_are_given(self_normalised):
    """Light tails: nearly all are given, and hold. Heavy tails: few are given, and most estimates carry a warning."""
    given, hold, warned = runs(0.5, self_normalised)
    assert given > 0.95
    assert hold / given > 0.9
    assert warned < 0.25
    given, hold, warned = runs(1.5, self_normalised)
    assert hold / given > 0.83
    assert warned > 0.85
    given, _, warned = runs(2.5, self_normalised)
    assert given < 0.3
    assert warned > 0.98


def test_the_count_of_self_normalised_forms_is_the_effective_sample_size():
    steps = gaussian(np.random.default_rng(2), 400, 0.8)
    one = per_decision(steps, self_normalised=True)
    size = one.effective_sample_size
    symmetric = Summed.mean(
        np.tile([-1.0, 1.0], 200) + one.value
    )  # its variance is known, so that only the size limits
    interval = intervals_of(one, SETTINGS, symmetric, size, False, None).intervals["t"]
    assert (interval.high - interval.low) / 2 == pytest.approx(stats.t.ppf(0.975, size - 1) / 399**0.5, rel=1e-9)


def test_collapse():
    steps = gaussian(np.random.default_rng(3), 1000, 3.0)
    one = trajectory_wise(steps)
    assert one.effective_sample_size < 30
    assert "the effective sample size" in doubts(steps, one, SETTINGS)[0]
    few = Steps(np.arange(5.0)[:, None], np.zeros((5, 1)), np.ones((5, 1), bool), 1.0)
    assert (
        doubts(few, trajectory_wise(few), SETTINGS) == ()
    )  # five trajectories without weights are as good as any five


def test_wrong_log_probabilities_are_noticed():
    steps = gaussian(np.random.default_rng(4), 1000, 0.2)
    wrong = steps._replace(log_ratio=steps.log_ratio + 0.2)
    assert doubts(steps, trajectory_wise(steps), SETTINGS) == ()
    assert "the weights have mean 1.2" in doubts(wrong, trajectory_wise(wrong), SETTINGS)[0]


def test_overflow_is_blamed_on_what_overflows():
    ones = np.ones((50, 1), bool)
    weights = Steps(np.ones((50, 1)), np.full((50, 1), 800.0), ones, 1.0)
    rewards = Steps(np.full((50, 1), 1e308), np.full((50, 1), 1.0), ones, 1.0)
    assert "some weights overflow" in doubts(weights, trajectory_wise(weights), SETTINGS)[0]
    assert "some weighted rewards overflow" in doubts(rewards, trajectory_wise(rewards), SETTINGS)[0]
