"""Switch-DR and DR with optimistic shrinkage: limits, one step by hand, and the choice of the limit."""

import numpy as np
import pytest

from evarl import ope
from evarl.ope.doubly_robust import ModelValues, doubly_robust
from evarl.ope.importance import Steps
from evarl.ope.shrunk import shrink
from tests.ope.test_estimate import chain_log, switching


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    mask = np.arange(6)[None] < rng.integers(1, 7, size=(40, 1))
    steps = Steps(rng.normal(size=(40, 6)), rng.normal(size=(40, 6)), mask, 0.9)
    return steps, ModelValues(rng.normal(size=(40, 6)), rng.normal(size=(40, 6)), np.zeros(40))


@pytest.mark.parametrize("kind", ["switch", "optimistic"])
def test_limits_are_the_model_and_dr(log, kind):
    steps, values = log
    np.testing.assert_allclose(shrink(steps, values, kind, 0.0).contribution, values.v[:, 0])
    whole = doubly_robust(steps, values)
    np.testing.assert_allclose(shrink(steps, values, kind, np.inf).contribution, whole.contribution, rtol=1e-12)
    np.testing.assert_allclose(shrink(steps, values, kind, 1e-14).contribution, values.v[:, 0], atol=1e-5)
    np.testing.assert_allclose(shrink(steps, values, kind, 1e14).contribution, whole.contribution, rtol=1e-6)


def test_one_step_by_hand():
    steps = Steps(np.array([[1.0], [3.0]]), np.log([[0.5], [4.0]]), np.ones((2, 1), bool), 1.0)
    values = ModelValues(np.array([[2.0], [2.0]]), np.array([[2.5], [2.5]]))
    np.testing.assert_allclose(shrink(steps, values, "switch", 2.0).contribution, [2.0, 2.5])  # the second is left out
    np.testing.assert_allclose(shrink(steps, values, "switch", 4.0).contribution, [2.0, 6.5])
    # λ w / (w² + λ) = 2 · 0.5 / 2.25 and 2 · 4 / 18
    np.testing.assert_allclose(shrink(steps, values, "optimistic", 2.0).contribution, [2.5 - 1 / 2.25, 2.5 + 8 / 18])
    assert shrink(steps, values, "switch", 2.0).changed == 0.5


def test_weights_are_those_of_all_steps_so_far():
    """Two steps of ratio 3 have weight 9 at the second, which a threshold of 5 leaves out although each ratio is below it."""
    steps = Steps(np.ones((1, 2)), np.log(np.full((1, 2), 3.0)), np.ones((1, 2), bool), 1.0)
    none = ModelValues(np.zeros((1, 2)), np.zeros((1, 2)))
    assert shrink(steps, none, "switch", 5.0).contribution[0] == pytest.approx(3.0)
    assert shrink(steps, none, "switch", 10.0).contribution[0] == pytest.approx(12.0)


@pytest.mark.parametrize("kind", ["switch", "optimistic"])
def test_the_chosen_limit_has_the_least_estimated_error(kind):
    """With an exact model and one huge weight, little is left of that weight; with a wrong model and even weights, all is."""
    rng = np.random.default_rng(1)
    log_ratio = np.zeros((200, 1))
    log_ratio[0] = 8.0
    noise, mask = rng.normal(size=(200, 1)), np.ones((200, 1), bool)
    exact = ModelValues(np.zeros((200, 1)), np.zeros((200, 1)))
    heavy = Steps(noise, log_ratio, mask, 1.0)
    found = shrink(heavy, exact, kind, None)
    assert abs(found.contribution.mean()) < 0.3 < abs(doubly_robust(heavy, exact).value)
    wrong = ModelValues(np.full((200, 1), 5.0), np.full((200, 1), 5.0))
    even = Steps(0.1 * noise, np.zeros((200, 1)), mask, 1.0)
    assert shrink(even, wrong, kind, None).contribution.mean() == pytest.approx(0.0, abs=0.1)


def test_what_was_left_out_is_said():
    log = ope.Log(chain_log(400), 0.9)
    settings = ope.Settings(switch_threshold=1.0, fqe=ope.FQEConfig(hidden_sizes=(16,), steps=200, learning_rate=3e-3))
    found = ope.estimate(log, switching(0.3), settings, ("switch-dr",))["switch-dr"]
    assert any("τ = 1 makes the weights of" in note for note in found.warnings)
