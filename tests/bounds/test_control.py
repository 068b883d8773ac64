"""The evaluator as a control variate."""

import numpy as np
import pytest

from evarl.bounds import (
    SHARES,
    EvaluatedRollouts,
    Range,
    StoppingRule,
    betting_lower_bound,
    controlled_returns,
    mixture_e_process,
    mixture_lower_bound,
    mixture_sequential_test,
)
from tests.bounds import slow


def sample(seed, n, low=-2.0, high=4.0):
    rng = np.random.default_rng(seed)
    start, fresh = rng.random(n), rng.random((n, 5))
    returns = low + (high - low) * np.clip(0.7 * start + 0.3 * rng.beta(2, 2, n), 0, 1)
    return returns, 5 * start - 1, 5 * fresh - 1


@pytest.mark.parametrize("n", [3, 30])
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("values", [(None, None), (-1.0, 3.0)])
def test_plain_loops_agree(n, sequential, values):
    returns, value, fresh = sample(n, n)
    c, d = (-2.0, 4.0) if values[0] is None else values
    streams = [
        (slow.controlled(returns, value, fresh, k, c, d), -2 - k * (d - c), 4 + k * (d - c), share)
        for k, share in SHARES.items()
    ]
    rollouts, limits = EvaluatedRollouts(returns, value, fresh), Range(-2, 4, *values)
    found = mixture_lower_bound(rollouts, limits, 0.1, sequential=sequential)
    assert found == pytest.approx(slow.lower_bound(streams, -2, 4, 0.1, sequential), abs=1e-9)
    for m in (-2.0, 0.5, 4.0):
        expected = np.minimum(slow.mixture(streams, m, 0.1, sequential), 1e300)
        found = np.minimum(mixture_e_process(rollouts, m, limits, 0.1, sequential=sequential), 1e300)
        assert found == pytest.approx(expected, rel=1e-9)
    for k in SHARES:
        expected = slow.controlled(returns, value, fresh, k, c, d)
        assert controlled_returns(returns, value, fresh, k, c, d) == pytest.approx(expected, abs=1e-12)


def test_raw_returns_alone_are_the_plain_bound():
    returns, value, fresh = sample(0, 40)
    found = mixture_lower_bound(EvaluatedRollouts(returns, value, fresh), Range(-2, 4), shares={0.0: 1.0})
    assert found == betting_lower_bound(returns, -2, 4)


def test_controlled_returns_have_the_same_mean_and_a_good_evaluator_less_variance():
    rng = np.random.default_rng(1)
    start, fresh = rng.random(20_000), rng.random((20_000, 20))
    returns = np.clip(start + rng.normal(0, 0.05, 20_000), 0, 1)
    for evaluator, ratio in ((lambda s: s, 0.1), (lambda s: 1000 * s % 1, 3)):
        found = controlled_returns(returns, evaluator(start), evaluator(fresh), 1.0, 0, 1)
        assert abs(found.mean() - 0.5) < 4 * found.std() / np.sqrt(20_000)
        assert found.var() < ratio * returns.var()


def test_a_good_evaluator_pays_and_a_useless_one_costs_little():
    rng = np.random.default_rng(2)
    start, fresh = rng.random(1000), rng.random((1000, 32))
    raw = betting_lower_bound(start, 0, 1)
    good = mixture_lower_bound(EvaluatedRollouts(start, start, fresh), Range(0, 1))
    useless = mixture_lower_bound(EvaluatedRollouts(start, 1000 * start % 1, 1000 * fresh % 1), Range(0, 1))
    reach = start.mean() - raw
    assert start.mean() - useless < reach * 1.2
    assert good > raw


@pytest.mark.parametrize("seed", range(8))
def test_sequential_decisions_are_those_of_the_e_process(seed):
    returns, value, fresh = sample(seed, 120)
    threshold = (0.0, 2.0)[seed % 2]
    rollouts = list(zip(returns, value, fresh, strict=True))
    found = mixture_sequential_test(rollouts, threshold, Range(-2, 4), StoppingRule(0.1, 0.05))
    forth = mixture_e_process(EvaluatedRollouts(returns, value, fresh), threshold, Range(-2, 4), 0.1, sequential=True)
    # The mirror image of the returns has the mirror image of the evaluator.
    mirrored = EvaluatedRollouts(-returns, -value, -fresh)
    back = mixture_e_process(mirrored, -threshold, Range(-4, 2), 0.05, sequential=True)
    last = found.rollouts - 1
    assert (found.e_certified, found.e_rejected) == pytest.approx((forth[last], back[last]), rel=1e-9)
    assert (forth[:last] < 10).all()
    assert (back[:last] < 20).all()
    assert found.outcome == ("certified" if forth[last] >= 10 else "rejected" if back[last] >= 20 else "out of budget")
