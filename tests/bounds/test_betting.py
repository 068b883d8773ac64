"""The betting bound beside plain loops, by hand, and what must be true of it."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evarl.bounds import StoppingRule, betting_lower_bound, betting_upper_bound, e_process, sequential_test
from evarl.bounds.betting import Stream, lower_bound, mixture
from tests.bounds import slow

SAMPLES = {
    "smooth": lambda rng, n: rng.beta(4, 4, n),
    "skewed": lambda rng, n: rng.beta(0.3, 2, n),
    "crashes": lambda rng, n: (rng.random(n) > 0.04) * rng.uniform(0.8, 1, n),
    "coins": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "zeros": lambda rng, n: np.zeros(n),
    "ones": lambda rng, n: np.ones(n),
}


def test_nothing_of_jax_is_needed():
    code = "import sys, evarl.bounds; assert not {'jax', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("sequential", [False, True])
def test_plain_loops_agree(kind, n, sequential):
    rng = np.random.default_rng(n)
    for low, high, alpha, cap in ((0.0, 1.0, 0.05, 0.95), (-3.0, 5.0, 0.2, 0.4)):
        returns = low + (high - low) * SAMPLES[kind](rng, n)
        options = {"alpha": alpha, "sequential": sequential, "cap": cap}
        tolerance = 1e-9
        expected = slow.betting_lower(returns, low, high, **options)
        assert betting_lower_bound(returns, low, high, **options) == pytest.approx(expected, abs=tolerance)
        expected = slow.betting_upper(returns, low, high, **options)
        assert betting_upper_bound(returns, low, high, **options) == pytest.approx(expected, abs=tolerance)
        for m in (low, low + 0.3 * (high - low), high):
            expected = slow.mixture([(returns, low, high, 1.0)], m, **options)
            found = e_process(returns, m, low, high, **options)
            assert np.minimum(found, 1e300) == pytest.approx(np.minimum(expected, 1e300), rel=1e-9)


def test_by_hand():
    # A low cap binds in all rounds: each of 50 ones multiplies K by 1 − c + c/m, and ℓ has that to the 50th power = 20.
    c = 0.05
    assert betting_lower_bound(np.ones(50), 0, 1, cap=c) == pytest.approx(c / (20**0.02 - 1 + c), abs=1e-9)
    assert betting_upper_bound(np.zeros(50), 0, 2, cap=c) == pytest.approx(2 - 2 * c / (20**0.02 - 1 + c), abs=1e-9)
    # α = 1/e, n = 2: λ_1 = (√2 − ¼)/(½ √2), y_2 = 1 − ln K_1 is small, μ_1 = ¾, s²_1 = (9/16 + 1/16)/2, so λ_2 = 1/s_1.
    first = 1 + 0.9 * (np.sqrt(2) - 0.25) / np.sqrt(0.5)
    found = e_process([1.0, 0.0], 0.1, 0, 1, alpha=np.exp(-1.0))
    assert found == pytest.approx([first, first * (1 - 0.1 / np.sqrt(0.3125))])
    # With n open, m = ½: ¾ at ½/m = 1 and ¼ at .95/m = 1.9.
    assert e_process([1.0, 0.0], 0.5, 0, 1, sequential=True) == pytest.approx(
        [0.75 * 1.5 + 0.25 * 1.95, 0.75 * 1.5 * 0.5 + 0.25 * 1.95 * 0.05]
    )
    assert betting_lower_bound([0.4], 0, 1) == 0.0, "one rollout rejects nothing here"


def test_nothing_is_bet_once_the_level_is_reached():
    found = e_process(np.r_[np.ones(40), np.zeros(10)], 0.5, 0, 1)
    reached = int(np.argmax(found >= 20))
    assert 0 < reached < 20
    assert (found[reached:] == found[reached]).all()


@pytest.mark.parametrize("sequential", [False, True])
def test_expected_wealth_is_at_most_one_over_all_outcomes(sequential):
    # All 2^10 outcomes of coins with the mean that is tested: the wealth is a martingale, so its expectation is 1 in each round.
    outcomes = np.array(np.meshgrid(*[[0.0, 1.0]] * 10)).reshape(10, -1).T
    for p in (0.1, 0.5, 0.9):
        chances = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
        wealth = np.array([e_process(x, p, 0, 1, 0.2, sequential=sequential) for x in outcomes])
        assert (wealth >= 0).all()
        assert chances @ wealth == pytest.approx(np.ones(10), abs=1e-12)
        assert chances @ (wealth.max(axis=1) >= 5) <= 0.2


def test_a_rejected_mean_stays_rejected_below():
    rng = np.random.default_rng(3)
    grid = np.linspace(0, 1, 301)
    for sample in SAMPLES.values():
        for cap, sequential in ((0.5, False), (0.95, False), (0.999, False), (0.95, True)):
            raw, noise = sample(rng, 60), rng.uniform(-0.5, 0.5, 60)
            streams = [Stream(raw, 0, 1, 0.5), Stream(np.clip(raw + noise, -0.5, 1.5), -0.5, 1.5, 0.5)]
            for some in (streams[:1], streams):
                wealth = mixture(some, 0.05, sequential, cap)
                rejected = np.array([wealth(m).max() >= 20 for m in grid])
                found = lower_bound(some, 0.05, sequential, cap)
                assert rejected[grid <= found].all() or found == 0
                assert not rejected[grid > found + 1e-9].any()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    x=st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=40),
    alpha=st.floats(0.001, 0.5),
    cap=st.floats(0.1, 0.999),
    sequential=st.booleans(),
)
def test_wealth_does_not_increase_in_the_mean_until_the_level_is_reached(x, alpha, cap, sequential):
    wealth = mixture([Stream(np.array(x), 0, 1)], alpha, sequential, cap)
    logs = np.log([np.minimum(wealth(m), 1e300) for m in np.linspace(0, 1, 101)])
    top = np.log(1 / alpha)
    reached = np.maximum.accumulate(logs >= top, axis=1)
    stopped = logs if sequential else np.where(reached, top, logs)
    assert (np.diff(stopped, axis=0) <= 1e-9).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    x=st.lists(st.floats(0, 1), min_size=1, max_size=60),
    alpha=st.floats(0.001, 0.5),
    sequential=st.booleans(),
    shift=st.floats(-100, 100),
    scale=st.floats(0.1, 100),
)
def test_within_the_range_and_carried_along_by_rescaling(x, alpha, sequential, shift, scale):
    found = betting_lower_bound(x, 0, 1, alpha, sequential=sequential)
    assert 0 <= found <= 1
    low, high = shift, shift + scale
    moved = np.clip(shift + scale * np.array(x), low, high)
    other = betting_lower_bound(moved, low, high, alpha, sequential=sequential)
    assert (other - shift) / scale == pytest.approx(found, abs=1e-8)
    turned = betting_upper_bound(1 - np.array(x), 0, 1, alpha, sequential=sequential)
    assert 1 - turned == pytest.approx(found, abs=1e-9)


def test_less_confidence_gives_a_higher_bound():
    rng = np.random.default_rng(4)
    for sample in SAMPLES.values():
        returns = sample(rng, 80)
        bounds = [betting_lower_bound(returns, 0, 1, alpha) for alpha in (0.001, 0.01, 0.05, 0.1, 0.3)]
        assert bounds == sorted(bounds)


def test_many_rollouts_need_no_more_memory_and_lose_nothing():
    returns = np.random.default_rng(5).beta(2, 2, 50_000)
    found = betting_lower_bound(returns, 0, 1)
    assert 0.48 < found < returns.mean()
    assert max(e_process(returns, found, 0, 1)) >= 20 > max(e_process(returns, found + 1e-9, 0, 1))


@pytest.mark.parametrize("seed", range(30))
def test_sequential_decisions_are_those_of_the_e_processes(seed):
    rng = np.random.default_rng(seed)
    returns = 10 * rng.beta(4, 4, 80) - 5
    threshold = rng.uniform(-2, 2)
    x, m = (returns + 5) / 10, (threshold + 5) / 10
    above = slow.wealths(x, m, 0.1, sequential=True)
    below = slow.wealths(1 - x, 1 - m, 0.02, sequential=True)
    crossed = [t for t in range(80) if above[t] >= 10 or below[t] >= 50]
    last = crossed[0] if crossed else 79
    found = sequential_test(iter(returns), threshold, -5, 5, StoppingRule(alpha=0.1, alpha_reject=0.02))
    assert found.rollouts == last + 1
    assert (found.e_certified, found.e_rejected) == pytest.approx((above[last], below[last]), rel=1e-9)
    outcome = "out of budget" if not crossed else "certified" if above[last] >= 10 else "rejected"
    assert found.outcome == outcome
    bound = betting_lower_bound(returns[: last + 1], -5, 5, 0.1, sequential=True)
    assert (bound >= threshold) == (outcome == "certified"), "test and bound are one"


def test_no_more_rollouts_are_made_than_are_needed():
    made = []

    def rollouts():
        while True:
            made.append(1.0)
            yield 1.0

    found = sequential_test(rollouts(), 0.5, 0, 1)
    assert found.outcome == "certified"
    assert len(made) == found.rollouts == 6, "¾ 1.5^6 + ¼ 1.95^6 is the first above 20"
    assert sequential_test(rollouts(), 0.5, 0, 1, StoppingRule(budget=5)).outcome == "out of budget"
    assert len(made) == 11
