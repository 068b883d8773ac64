"""The estimator along the trajectory, over all trajectories of a small world."""

from itertools import product

import numpy as np
import pytest

from evarl.bounds import Trajectories, trajectory_estimate

STATES, ACTIONS, DISCOUNT = 3, 2, 0.9
END = STATES


def world(seed):
    """Start, policy, transitions (the last state ends the episode) and rewards."""
    rng = np.random.default_rng(seed)
    return (
        rng.dirichlet(np.ones(STATES)),
        rng.dirichlet(np.ones(ACTIONS), STATES),
        rng.dirichlet(np.ones(STATES + 1), (STATES, ACTIONS)),
        rng.normal(size=(STATES, ACTIONS)),
    )


def truth(seed, limit):
    """V [limit + 1, STATES + 1] and Q [limit, STATES, ACTIONS] by going back from the time limit."""
    _, policy, step, reward = world(seed)
    V, Q = np.zeros((limit + 1, STATES + 1)), np.zeros((limit, STATES, ACTIONS))
    for t in reversed(range(limit)):
        Q[t] = reward + DISCOUNT * step @ V[t + 1]
        V[t, :STATES] = np.sum(policy * Q[t], axis=1)
    return V, Q


def trajectories(seed, limit, v_hat, q_hat):
    """Probabilities, returns and the arguments of the estimator for every trajectory there is."""
    start, policy, step, reward = world(seed)
    rows, chances, returns = [], [], []
    for first in range(STATES):
        for path in product(range(ACTIONS), range(STATES + 1), repeat=limit):
            s, chance, ended, total = first, start[first], False, 0.0
            # What stands behind the end must not matter, nor what V̂ says of the state that ends.
            row = np.full((7, limit), 99.0)
            row[1] = 0.0
            row[6] = 0.0
            for t in range(limit):
                a, after = path[2 * t : 2 * t + 2]
                if ended:
                    chance *= (a, after) == (0, 0)
                    continue
                chance *= policy[s, a] * step[s, a, after]
                expected = step[s, a, :STATES] @ v_hat[t + 1, :STATES]
                v = 99.0 if after == END else v_hat[t + 1, after]
                row[:, t] = reward[s, a], 1, q_hat[t, s, a], policy[s] @ q_hat[t, s], v, expected, after == END
                total += DISCOUNT**t * reward[s, a]
                s, ended = after, after == END
            if chance > 0:
                rows.append((first, row))
                chances.append(chance)
                returns.append(total)
    firsts, table = np.array([f for f, _ in rows]), np.stack([row for _, row in rows], axis=1)
    arguments = {
        "rewards": table[0],
        "mask": table[1],
        "v0": v_hat[0, firsts],
        "mean_v0": start @ v_hat[0, :STATES],
        "q": table[2],
        "expected_q": table[3],
        "v_next": table[4],
        "expected_v_next": table[5],
        "terminated": table[6],
    }
    return np.array(chances), np.array(returns), Trajectories(**arguments)


def variance(chances, values):
    return chances @ values**2 - (chances @ values) ** 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_unbiased_for_any_frozen_estimates(seed, limit):
    rng = np.random.default_rng(seed)
    V, Q = rng.normal(0, 5, (limit + 1, STATES + 1)), rng.normal(0, 5, (limit, STATES, ACTIONS))
    chances, returns, arguments = trajectories(seed, limit, V, Q)
    start, true = world(seed)[0], truth(seed, limit)[0]
    J = start @ true[0, :STATES]
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert chances @ returns == pytest.approx(J, abs=1e-10)
    for horizon in (None, limit, limit + 5):
        assert chances @ trajectory_estimate(arguments, DISCOUNT, horizon=horizon) == pytest.approx(J, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_true_values_leave_no_noise_and_wrong_ones_little(seed, limit):
    V, Q = truth(seed, limit)
    chances, returns, arguments = trajectories(seed, limit, V, Q)
    J = world(seed)[0] @ V[0, :STATES]
    for horizon in (None, limit):
        assert trajectory_estimate(arguments, DISCOUNT, horizon=horizon) == pytest.approx(
            np.full(len(chances), J), abs=1e-10
        )
    rng = np.random.default_rng(seed)
    wrong = [x * (1 + 0.3 * rng.choice([-1, 1], x.shape)) for x in (V, Q)]
    chances, returns, arguments = trajectories(seed, limit, *wrong)
    found = trajectory_estimate(arguments, DISCOUNT, horizon=limit)
    assert chances @ found == pytest.approx(J, abs=1e-10)
    assert variance(chances, found) < 0.5 * variance(chances, returns)


def test_behind_the_time_limit_nothing_is_subtracted():
    V, Q = truth(0, 2)
    V = V + 7.0  # also behind the last step, where the true value is 0
    chances, _, arguments = trajectories(0, 2, V, Q)
    cut, kept = (variance(chances, trajectory_estimate(arguments, DISCOUNT, horizon=h)) for h in (2, None))
    assert cut < kept
