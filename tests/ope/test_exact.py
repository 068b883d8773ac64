"""Tabular and linear fitted Q evaluation against dynamic programming."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.linear import prepare_linear, solve_linear
from evarl.ope.settings import FQEConfig
from evarl.ope.tabular import prepare_tabular, solve_tabular
from evarl.truth.exact import action_values, policy_values
from evarl.worlds.tabular import Tabular, chain
from tests.ope.test_fqe import gaussian_log, gaussian_policy, grid, logged

STATES, ACTIONS = 6, 3


def table_policy(table: np.ndarray) -> ope.TargetPolicy:
    """A policy of observations that are numbers of states."""
    chances = jnp.asarray(table, jnp.float32)
    index = lambda seen: jnp.asarray(seen).reshape(-1).astype(jnp.int32)  # noqa: E731
    return ope.TargetPolicy(
        log_prob=lambda seen, action: jnp.log(chances)[index(seen), action],
        probabilities=lambda seen: chances[index(seen)],
        sample=lambda key, seen: jax.random.categorical(key, jnp.log(chances)[index(seen)]),
        mode=lambda seen: chances[index(seen)].argmax(axis=1),
    )


def numbered(data: ope.LoggedData) -> ope.LoggedData:
    """One-hot observations as numbers of states."""
    return data.replace(
        observation=np.asarray(data.observation).argmax(axis=-1),
        final_observation=np.asarray(data.final_observation).argmax(axis=-1),
    )


def whole_world(seed: int) -> tuple[Tabular, np.ndarray, ope.LoggedData, np.ndarray]:
    """A random world with an end, a policy, and a log of every transition with its probability as its weight."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
    terminal = np.arange(STATES) == STATES - 1
    world = Tabular(moves, rng.normal(size=(STATES, ACTIONS)), np.eye(STATES)[0], terminal=terminal, discount=0.9)
    policy = rng.dirichlet(np.ones(ACTIONS), size=STATES).astype(np.float32).astype(np.float64)
    before, action, after = (x.reshape(-1) for x in np.indices((STATES, ACTIONS, STATES)))
    data = ope.LoggedData.from_arrays(
        observation=before[:, None],
        action=action[:, None],
        reward=np.asarray(world.rewards)[before, action][:, None],
        terminated=terminal[after][:, None],
        truncated=~terminal[after][:, None],
        final_observation=after,
    )
    return world, policy / policy.sum(axis=1, keepdims=True), data, moves.reshape(-1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("horizon", [None, 1, 7])
def test_a_log_of_the_whole_world_has_its_values(seed, horizon):
    """With transitions weighted by their probabilities, the values of the world, by dynamic programming; linear ones too."""
    world, policy, data, weight = whole_world(seed)
    alive = np.arange(STATES - 1)
    exact = policy_values(world, policy, horizon)[alive]
    distinct, transitions, chances = prepare_tabular(FQEConfig(), data, table_policy(policy), 0.9)
    timed = transitions._replace(horizon=horizon)
    found = solve_tabular(distinct, timed, chances, weight)
    np.testing.assert_allclose(found.at(alive, np.zeros(len(alive), int)), exact, rtol=1e-6)  # policies have 32 bits
    if horizon is None:
        np.testing.assert_allclose(
            found.q[0, alive], action_values(world, policy_values(world, policy))[alive], rtol=1e-6
        )
    prepared = prepare_linear(FQEConfig(), data, table_policy(policy), 0.9)._replace(transitions=timed)
    linear = solve_linear(prepared, 1e-12, weight)
    np.testing.assert_allclose(
        linear.at(alive, np.zeros(len(alive), int)), found.at(alive, np.zeros(len(alive), int)), rtol=1e-9
    )


def estimate(data, policy, methods, discount, states=None, **options):
    return ope.estimate(ope.Log(data, discount, states), policy, ope.Settings(**options), methods)


def test_two_state_chain_in_both_horizons():
    """Rewards and moves are functions of state and action, so that every log with all of these pairs has the exact values."""
    data = numbered(logged(chain(), np.full((2, 2), 0.5), 40, 5))
    policy, states = table_policy(np.array([[0.7, 0.3], [0.7, 0.3]])), np.arange(2)
    for horizon, exact in (("finite", [1.27102392, 2.82407608]), ("endless", [4.21875, 5.78125])):
        found = estimate(data, policy, ("fqe-tabular", "fqe-linear"), 0.9, states, horizon=horizon, ridge=1e-10)
        for one in found.values():
            np.testing.assert_allclose(one.state_values, exact, rtol=1e-6)
            assert not one.warnings
            assert one.estimand


def test_grid_and_model_win():
    uniform = table_policy(np.full((16, 4), 0.25))
    found = estimate(numbered(logged(grid(), np.full((16, 4), 0.25), 1000, 100)), uniform, ("fqe-tabular",), 1.0)
    assert found["fqe-tabular"].value == pytest.approx(-72.4127, abs=1e-4)  # moves are functions of state and action
    moves = np.zeros((3, 2, 3))
    moves[0] = [[0, 0.4, 0.6], [0, 0.6, 0.4]]
    moves[1:, :, 0] = 1.0
    # the reward is that of the state that is entered, and so here of the expected one: J is the same
    rewards = np.array([[-0.2, 0.2], [0.0, 0.0], [0.0, 0.0]])
    win = Tabular(moves, rewards, np.eye(3)[0], discount=1.0)
    behaviour, target = (np.array([[p, 1 - p]] * 3) for p in (0.73, 0.27))
    found = estimate(numbered(logged(win, behaviour, 500, 20)), table_policy(target), ("fqe-tabular",), 1.0)
    assert found["fqe-tabular"].value == pytest.approx(0.92, rel=1e-6)


def test_linear_values_of_gaussian_actions():
    """Q is linear in observation and action, so that the linear fixed point is the value: V(s) = 10 + s / 2."""
    log = ope.Log(gaussian_log(), 0.9, np.array([[-1.0], [0.0], [1.0]]))
    settings = ope.Settings(horizon="endless", fqe=FQEConfig(action_samples=16), fqe_refits=10)
    found = ope.estimate(log, gaussian_policy(1.0), settings, ("fqe-linear",))["fqe-linear"]
    np.testing.assert_allclose(found.state_values, [9.5, 10.0, 10.5], atol=0.5)
    assert found.state_errors.max() < 0.3
    with pytest.raises(InputError, match="action: is continuous; fqe-tabular requires"):
        ope.estimate(log, gaussian_policy(1.0), settings, ("fqe-tabular",))


def test_what_was_never_logged_is_said():
    data = numbered(logged(chain(), np.array([[0.5, 0.5], [1.0, 0.0]]), 40, 5))  # never switches in state 1
    policy = table_policy(np.full((2, 2), 0.5))
    found = estimate(data, policy, ("fqe-tabular",), 0.9, np.array([0, 1, 7]))["fqe-tabular"]
    assert "were never logged together" in found.warnings[0]
    assert np.isnan(found.state_values).tolist() == [False, False, True]
    assert "V is extrapolated at 1 of 3 states, such as number 2" in found.warnings[1]
    assert np.isnan(found.state_errors[2])


def test_observations_that_do_not_repeat():
    rng = np.random.default_rng(0)
    data = ope.LoggedData.from_arrays(
        observation=rng.normal(size=(20, 4, 1)),
        action=rng.integers(2, size=(20, 4)),
        reward=np.ones((20, 4)),
        truncated=np.eye(4, dtype=bool)[[3] * 20],
        final_observation=np.zeros((20, 1)),
    )
    coin = table_policy(np.full((1, 2), 0.5))
    with pytest.raises(InputError, match="observation: there are 81 distinct ones in 80 steps"):
        estimate(data, coin, ("fqe-tabular",), 0.9)
    found = estimate(data, coin, ("fqe-linear",), 0.9)
    assert found["fqe-linear"].value == pytest.approx((1 - 0.9**4) / 0.1, rel=1e-4)


def test_errors_are_those_of_the_sampling():
    """The standard errors of many logs against the deviation of their estimates; rewards are noisy."""
    values, errors = [], []
    policy = table_policy(np.array([[0.7, 0.3], [0.7, 0.3]]))
    for seed in range(60):
        data = numbered(logged(chain(), np.full((2, 2), 0.5), 30, 5, seed))
        noise = np.random.default_rng(seed).normal(size=data.reward.shape)
        noisy = data.replace(reward=np.asarray(data.reward) + noise)
        one = estimate(noisy, policy, ("fqe-tabular",), 0.9, fqe_refits=30)["fqe-tabular"]
        values.append(one.value)
        errors.append(one.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.3)
