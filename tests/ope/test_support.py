"""Support of query states in the log, and what fitted Q evaluation says of states that have none."""

import numpy as np
import pytest

from evarl import ope
from evarl.ope.settings import FQEConfig
from evarl.ope.support import support
from evarl.worlds.tabular import Tabular
from tests.ope.test_exact import numbered, table_policy
from tests.ope.test_fqe import logged

PLAIN, TIMED = FQEConfig(), FQEConfig(time_feature=True)


def log_of(observation: np.ndarray) -> ope.LoggedData:
    count, length = observation.shape[:2]
    return ope.LoggedData.from_arrays(
        observation=observation,
        action=np.zeros((count, length), int),
        reward=np.zeros((count, length)),
        truncated=np.eye(length, dtype=bool)[[-1] * count],
        final_observation=observation[:, -1],
    )


def test_states_like_the_logged_ones_are_supported_and_others_are_not():
    rng = np.random.default_rng(0)
    data = log_of(rng.normal(size=(60, 20, 3)) * [1.0, 100.0, 0.01])
    like = rng.normal(size=(400, 3)) * [1.0, 100.0, 0.01]
    found = support(PLAIN, data, like, None, rng)
    assert found.missing.mean() < 0.05
    assert np.quantile(found.p_value, 0.5) == pytest.approx(0.5, abs=0.1)
    far = support(PLAIN, data, np.array([[0.0, 0.0, 0.1], [0.0, 1000.0, 0.0]]), None, rng)
    assert far.missing.all()
    assert "V is extrapolated at 2 of 2 states" in far.warnings()[0]


def test_neighbours_of_the_own_trajectory_do_not_count():
    """Each trajectory stays near its own centre: a state between two centres is as far as trajectories are from one another."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(200, 1, 2))
    data = log_of(centre + 1e-3 * rng.normal(size=(200, 10, 2)))
    assert not support(PLAIN, data, rng.normal(size=(1, 2)) * 0.5, None, rng).missing.any()


def test_numbers_of_states():
    rng = np.random.default_rng(0)
    data = log_of(rng.choice([1, 2, 5, 9], size=(30, 10)))
    found = support(PLAIN, data, np.array([1, 9, 0, 3, 700, -2]), None, rng)
    assert found.missing.tolist() == [False, False, True, True, True, True]
    np.testing.assert_allclose(found.distance, [0, 0, 10, 10, 10, 10])


def test_time_counts_where_it_is_a_feature():
    """State 1 is logged at the last steps alone."""
    observation = np.zeros((40, 20), int)
    observation[:, 15:] = 1
    data, rng = log_of(observation), np.random.default_rng(0)
    assert support(TIMED, data, np.array([0, 1, 1]), np.array([0, 18, 0]), rng).missing.tolist() == [False, False, True]
    assert not support(PLAIN, data, np.array([1]), np.array([0]), rng).missing.any()


def test_some_trajectories_of_a_large_log(monkeypatch):
    monkeypatch.setattr("evarl.ope.support.MOST", 1000)
    rng = np.random.default_rng(0)
    data = log_of(rng.normal(size=(200, 20, 1)))
    found = support(PLAIN, data, np.array([[0.1], [50.0]]), None, rng)
    assert found.missing.tolist() == [False, True]
    assert len(found.usual) <= 1000


def test_one_trajectory():
    data, rng = log_of(np.arange(50.0)[None, :, None] / 7), np.random.default_rng(0)
    assert support(PLAIN, data, np.array([[3.0], [40.0]]), None, rng).missing.tolist() == [False, True]


def test_fitted_values_come_with_errors_and_a_warning_where_nothing_was_logged():
    """A walk on 8 states of which the last two are never reached; numbers of states have a one-hot code."""
    moves = np.zeros((8, 2, 8))
    for s in range(8):
        moves[s, 0, max(s - 1, 0)], moves[s, 1, min(s + 1, 5) if s < 6 else s] = 1.0, 1.0
    world = Tabular(
        moves, np.tile(np.array([3.0, 0, 1, 5, 0, 2, 9, 9])[:, None], 2), np.eye(8)[:6].mean(axis=0), discount=0.8
    )
    data = numbered(logged(world, np.full((8, 2), 0.5), 200, 12))
    config = FQEConfig(hidden_sizes=(32, 32), steps=1500, learning_rate=1e-3)
    log, uniform = ope.Log(data, 0.8, np.arange(8)), table_policy(np.full((8, 2), 0.5))
    found = ope.estimate(
        log, uniform, ope.Settings(fqe=config, fqe_refits=4, horizon="endless"), ("fqe", "fqe-tabular")
    )
    one, exact = found["fqe"], found["fqe-tabular"].state_values
    np.testing.assert_allclose(one.state_values[:6], exact[:6], atol=0.5)
    assert np.isnan(one.state_errors).tolist() == [False] * 6 + [True] * 2
    assert (one.state_errors[:6] > 0).all()
    inside = one.state_intervals[:6]
    assert (inside[:, 0] < one.state_values[:6]).all()
    assert (one.state_values[:6] < inside[:, 1]).all()
    assert one.state_support[:6].min() > 0.1 > 0.02 > one.state_support[6:].max()
    assert any("V is extrapolated at 2 of 8 states" in note for note in one.warnings)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_observations_at_other_steps_are_other_points_whatever_their_type(dtype):
    """A pair of observation and step that is logged is at distance 0; steps do not become numbers of the observations' type."""
    observation = np.zeros((40, 300, 2), dtype)
    observation[:, 150:, 1] = 1
    found = support(
        TIMED, log_of(observation), np.array([[0, 0], [0, 1]], dtype), np.array([140, 290]), np.random.default_rng(0)
    )
    np.testing.assert_array_equal(found.distance, 0.0)
