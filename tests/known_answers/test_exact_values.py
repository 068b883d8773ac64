"""Exact values of finite worlds."""

import numpy as np
import pytest

from evarl.truth.exact import action_values, best_return, optimal_values, policy_values, reachable_mdp
from evarl.worlds.navigation import Navigation
from evarl.worlds.tabular import Tabular, chain

SWITCH = np.array([[0.7, 0.3], [0.7, 0.3]])


def test_two_state_chain():
    world = chain()
    values = policy_values(world, SWITCH)
    np.testing.assert_allclose(values, [4.21875, 5.78125], rtol=1e-12)
    expected = [[3.796875, 5.203125], [6.203125, 4.796875]]
    np.testing.assert_allclose(action_values(world, values), expected, rtol=1e-12)
    np.testing.assert_allclose(policy_values(world, SWITCH, 5), [1.27102392, 2.82407608], rtol=1e-12)


def test_linear_algebra_is_the_limit_of_the_backups():
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(6), size=(6, 3))
    world = Tabular(transitions, rng.normal(size=(6, 3)), np.ones(6) / 6, terminal=np.arange(6) == 4)
    policy = rng.dirichlet(np.ones(3), size=6)
    np.testing.assert_allclose(policy_values(world, policy), policy_values(world, policy, 600), rtol=1e-10)


def test_grid_of_the_ope_literature():
    """4 × 4, start (1,1), end (4,4): the uniform policy's undiscounted return over 100 steps is −72.4127."""
    reward_of = {(1, 1): -10.0, (1, 3): 1.0, (3, 3): 10.0}
    transitions, rewards = np.zeros((16, 4, 16)), np.zeros((16, 4))
    for row in range(4):
        for column in range(4):
            for action, (down, right) in enumerate([(0, 1), (1, 0), (0, -1), (-1, 0)]):
                to = (min(max(row + down, 0), 3), min(max(column + right, 0), 3))
                transitions[4 * row + column, action, 4 * to[0] + to[1]] = 1.0
                rewards[4 * row + column, action] = reward_of.get(to, -1.0)
    world = Tabular(transitions, rewards, np.eye(16)[0], terminal=np.arange(16) == 15, horizon=100, discount=1.0)
    assert policy_values(world, np.full((16, 4), 0.25), 100)[0] == pytest.approx(-72.4127, abs=5e-5)


@pytest.mark.parametrize(("discount", "best"), [(1.0, -3.7520), (0.99, -3.7135)])
def test_best_return_of_navigation(discount, best):
    assert best_return(Navigation(), discount) == pytest.approx(best, abs=5e-5)


def test_navigation_reaches_110_positions_and_the_goal_in_eight_steps():
    table, positions = reachable_mdp(Navigation())
    assert len(positions) == 111
    assert table.terminal.sum() == 1
    steps = Tabular(
        table.transitions, np.where(table.terminal, 0.0, -1.0)[:, None].repeat(4, 1), table.start, table.terminal
    )
    undiscounted = Tabular(steps.transitions, steps.rewards, steps.start, steps.terminal, discount=1.0)
    assert optimal_values(undiscounted, 50)[0] == -8.0
