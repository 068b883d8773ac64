"""Numbers that are large against their differences: rewards with an offset, and observations that 32 bits merge."""

import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError

UNEVEN = ope.TargetPolicy.from_probabilities(lambda seen: np.tile([0.4, 0.6], (len(seen), 1)))
DOUBLY_ROBUST = ("dr", "wdr", "switch-dr", "dr-os")
CONFIG = ope.FQEConfig(steps=300, hidden_sizes=(16,), learning_rate=3e-3)


def noisy(seed, offset, count=400, **fields):
    """Five steps by a uniform policy, with rewards that are an offset plus noise, whatever is done."""
    rng = np.random.default_rng(seed)
    data = ope.LoggedData.from_arrays(
        observation=np.zeros((count, 5, 1)),
        action=rng.integers(2, size=(count, 5)),
        reward=offset + rng.normal(size=(count, 5)),
        log_prob=np.full((count, 5), np.log(0.5)),
        final_observation=np.zeros((count, 1)),
        **fields,
    )
    return data


def estimates(seed, offset, methods, horizon="finite"):
    settings = ope.Settings(
        fqe=CONFIG, resamples=50, fqe_refits=3, horizon=horizon, switch_threshold=1e9, shrinkage=1e9
    )
    log = ope.Log(noisy(seed, offset), 1.0 if horizon == "finite" else 0.8)
    return ope.estimate(log, UNEVEN, settings, methods)


@pytest.mark.parametrize("offset", [1e3, -1e7])
def test_an_offset_of_rewards_does_not_change_standard_errors(offset):
    plain, shifted = (estimates(0, one, ("fqe", *DOUBLY_ROBUST)) for one in (0.0, offset))
    for name, one in shifted.items():
        assert one.standard_error == pytest.approx(plain[name].standard_error, rel=0.02), name
        assert one.value - 5 * offset == pytest.approx(plain[name].value, abs=0.1 * one.standard_error), name
        assert one.converged


def test_an_offset_of_rewards_without_a_time_limit():
    plain, shifted = (estimates(0, one, ("fqe", "dr", "wdr"), "endless") for one in (0.0, 1e7))
    for name, one in shifted.items():
        assert one.standard_error == pytest.approx(plain[name].standard_error, rel=0.05), name
        assert one.value - 5e7 == pytest.approx(plain[name].value, abs=0.3 * one.standard_error), name


def test_intervals_hold_with_an_offset_of_rewards():
    held = []
    for seed in range(12):
        for one in estimates(seed, 1e7, ("dr", "wdr")).values():
            held.append(one.intervals["t"].low <= 5e7 <= one.intervals["t"].high)
    assert np.mean(held) > 0.8


def test_values_of_states_by_step_with_an_offset():
    """V with h steps to go is h times the offset; a log that is cut goes on with it."""
    mask = np.ones((400, 5), bool)
    mask[:200, 3:] = False
    states, times = np.zeros((5, 1)), np.arange(5)
    log = ope.Log(noisy(0, 1e6, mask=mask), 1.0, states, times)
    found = ope.estimate(log, UNEVEN, ope.Settings(fqe=CONFIG, resamples=50), ("fqe", "dr"))
    np.testing.assert_allclose(found["fqe"].state_values, 1e6 * (5 - times), atol=1.0)
    assert found["dr"].value == pytest.approx(5e6, abs=1.0)
    fitted = log.model(UNEVEN, ope.Settings(fqe=CONFIG, resamples=50)).fitted
    actions = np.tile(np.float32([0.4, 0.6]), (5, 1))
    np.testing.assert_allclose(fitted.v(states, actions, times), 1e6 * (5 - times), rtol=1e-5)
    np.testing.assert_allclose(fitted.q_values(states, times), np.tile(1e6 * (5 - times)[:, None], 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ([1e8, 1e8 + 1], True),
        (1e8 + np.arange(7), True),
        (1e8 + np.arange(0, 2000, 0.5), True),
        (1e6 + 1e-3 * np.random.default_rng(0).normal(size=2000), True),
        ([0.3, 0.1 + 0.2], False),
        ([0.1, 0.2], False),
        ([1.7e9, 1.7e9 + 86_400.0], False),
        ([0.1, 0.1], False),
        (np.random.default_rng(0).normal(size=2000), False),
        (1e3 + np.random.default_rng(0).normal(size=2000), False),
        (np.arange(2000), False),
    ],
)
def test_observations_that_32_bits_merge_are_refused(values, refused):
    rng = np.random.default_rng(0)
    seen = np.asarray(values)[rng.integers(len(values), size=(5000, 2))]
    if len(values) == 2000:  # all different
        seen = np.asarray(values).reshape(1000, 2)
    count = len(seen)
    seen = np.stack([np.zeros(seen.shape), seen], axis=-1)
    fields = {"action": np.zeros((count, 2), int), "reward": np.zeros((count, 2)), "final_observation": seen[:, 0]}
    if not refused:
        ope.LoggedData.from_arrays(observation=seen, **fields)
        return
    with pytest.raises(InputError, match=r"observation: entry 1 has values such as .* 32 bits do not tell apart; must"):
        ope.LoggedData.from_arrays(observation=seen, **fields)
