"""What is stated of J beside a threshold is false with probability at most α in all, though both sides are tested at α.

The statement, from bounds ℓ and u at level α each:

    certified   "J ≥ X"                            where J ≤ X is rejected
    refuted     "J < X"                            where J ≥ X is rejected
    neither     "min(ℓ, X) ≤ J ≤ max(u, X)"

If J ≥ X, it is false only where u < J; if J < X, only where ℓ > J. That J < ℓ is that J itself is rejected, so one e-process at
J stands for the bound.
"""

import numpy as np
import pytest

from evarl.bounds import StoppingRule, betting_lower_bound, betting_upper_bound, e_process, sequential_test

X, ROUNDS, REPETITIONS = 0.5, 150, 1200


def rejected_at(x, mean, alpha, sequential):
    """The first rounds in which J ≤ mean and J ≥ mean are rejected; ROUNDS where they are not."""
    forth = e_process(x, mean, 0, 1, alpha, sequential=sequential) >= 1 / alpha
    back = e_process(1 - x, 1 - mean, 0, 1, alpha, sequential=sequential) >= 1 / alpha
    return tuple(int(np.argmax(hit)) if hit.any() else ROUNDS for hit in (forth, back))


def outcomes(mean, alpha, sequential):
    """For each repetition: certified, refuted, ℓ > J and u < J at the time at which the test ends."""
    coins = (np.random.default_rng(round(1000 * mean)).random((REPETITIONS, ROUNDS)) < mean).astype(float)
    found = np.empty((REPETITIONS, 4), bool)
    for row, x in zip(found, coins, strict=True):
        above, below = rejected_at(x, X, alpha, sequential)
        end = min(above, below, ROUNDS - 1) if sequential else ROUNDS - 1
        # Should both be reached, neither is stated; a sequential test ends with the first.
        certified, refuted = above <= end and not below <= end, below <= end and not above <= end
        high, low = rejected_at(x, mean, alpha, sequential)
        row[:] = certified, refuted, high <= end, low <= end
    return found.T


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("alpha", [pytest.param(0.05, marks=pytest.mark.slow), 0.2])
@pytest.mark.parametrize(
    "mean", [X - 0.02, X, *(pytest.param(one, marks=pytest.mark.slow) for one in (X - 0.1, X + 0.02, X + 0.1))]
)
@pytest.mark.slow
def test_one_level_for_both_sides(mean, alpha, sequential):
    certified, refuted, too_high, too_low = outcomes(mean, alpha, sequential)
    neither = ~certified & ~refuted
    false = (certified & (mean < X)) | (refuted & (mean >= X)) | (neither & (too_low if mean >= X else too_high))
    assert false.mean() <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / REPETITIONS)
    if mean == X and alpha == 0.2:
        # To state ℓ ≤ J beside what was decided, as if it were one claim, is to be wrong more often than that.
        careless = refuted | (~refuted & too_high)
        assert careless.mean() > alpha + 3 * np.sqrt(alpha * (1 - alpha) / REPETITIONS)


@pytest.mark.parametrize("sequential", [False, True])
def test_the_bounds_say_what_the_e_processes_say(sequential):
    for x in (np.random.default_rng(1).random((40, ROUNDS)) < 0.55).astype(float):
        above, below = rejected_at(x, X, 0.2, sequential)
        assert (betting_lower_bound(x, 0, 1, 0.2, sequential=sequential) >= X) == (above < ROUNDS)
        assert (betting_upper_bound(x, 0, 1, 0.2, sequential=sequential) <= X) == (below < ROUNDS)
        if sequential:
            found = sequential_test(x, X, 0, 1, StoppingRule(0.2, 0.2))
            assert found.rollouts == min(above, below, ROUNDS - 1) + 1
