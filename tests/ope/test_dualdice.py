"""DualDICE: its exact last layers against the tabular solution, and linear-Gaussian worlds whose values are known."""

import dataclasses

import jax
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.dualdice import Steps, solve
from evarl.ope.marginal import marginal
from evarl.ope.settings import DICEConfig
from tests.ope.test_estimate import chain_log, one_hot, switching
from tests.ope.test_marginal import random_world

DISCOUNT, LENGTH, COUNT = 0.95, 30, 200
SHORT = DICEConfig(steps=200)
FORGETS, MOVES, NOISE = 0.8, 0.5, 0.3
"""s′ = 0.8 s + 0.5 a + 0.3 ε from s ~ N(0, 1), with the reward −(s − 1)² − a²/10."""
GAIN, OFFSET, SPREAD = -0.4, 0.3, 0.5
"""The policy N(−0.4 s + 0.3, 0.5²); that of the log is N(−0.2 s, 0.7²)."""


def gaussian_log(seed: int, count: int = COUNT) -> ope.LoggedData:
    rng = np.random.default_rng(seed)
    states, actions, state = [], [], rng.normal(size=count)
    for _ in range(LENGTH):
        states.append(state)
        actions.append(-0.2 * state + 0.7 * rng.normal(size=count))
        state = FORGETS * state + MOVES * actions[-1] + NOISE * rng.normal(size=count)
    seen, done = np.stack(states, axis=1), np.stack(actions, axis=1)
    return ope.LoggedData.from_arrays(
        observation=seen[..., None],
        action=done[..., None],
        reward=-((seen - 1) ** 2) - 0.1 * done**2,
        final_observation=state[:, None],
    )


def gaussian(offset: float = OFFSET) -> ope.TargetPolicy:
    mean = lambda observation: GAIN * observation + offset  # noqa: E731
    return ope.TargetPolicy(
        log_prob=lambda observation, action: -0.5 * (((action - mean(observation)) / SPREAD) ** 2)[:, 0],
        probabilities=None,
        sample=lambda key, observation: mean(observation) + SPREAD * jax.random.normal(key, observation.shape),
        mode=mean,
    )


def true_value(steps: int, mean: float = 0.0, variance: float = 1.0) -> float:
    """J from s ~ N(mean, variance), by the moments of s_t."""
    value, along = 0.0, FORGETS + MOVES * GAIN
    for t in range(steps):
        act, spread = GAIN * mean + OFFSET, GAIN**2 * variance + SPREAD**2
        value -= DISCOUNT**t * ((mean - 1) ** 2 + variance + 0.1 * (act**2 + spread))
        mean, variance = along * mean + MOVES * OFFSET, along**2 * variance + (MOVES * SPREAD) ** 2 + NOISE**2
    return value


def estimate(data, policy, horizon="endless", states=None, discount=DISCOUNT, dice=SHORT):
    settings = ope.Settings(horizon=horizon, dice=dice)
    return ope.estimate(ope.Log(data, discount, states), policy, settings, ("dualdice",))["dualdice"]


@pytest.mark.parametrize(("ends", "discount"), [(False, 0.9), (True, 0.9), (True, 1.0)])
def test_with_a_feature_for_each_state_and_action_it_is_the_tabular_solution(ends, discount):
    """Weights, value, Q function and influence, on a sampled log."""
    world, count = random_world(ends), 400
    visits = world.visits(world.sample(10, count, seed=1), discount, None)
    wanted = marginal(visits, np.full(count, 1 / count))
    states, actions = world.target.shape
    table = np.eye(states * actions)
    here = table[visits.state * actions + visits.action]
    expected = np.einsum("sa,saf->sf", world.target, table.reshape(states, actions, -1))
    expected = np.concatenate([expected, np.zeros((1, states * actions))])  # 0 after termination
    ended = visits.following == states
    steps = Steps(
        nu=here,
        change=here - discount * expected[visits.following],
        zeta=here,
        start=expected[visits.start],
        gains=np.stack([visits.reward, visits.unit + discount * ended], axis=1),
        trajectory=visits.trajectory,
        whole=1.0,
        scale=0.1,
    )
    found = solve(steps, ridge=0.0)
    assert found.value == pytest.approx(wanted.value, abs=1e-8)
    assert found.weight * count / len(visits.state) == pytest.approx(wanted.weight, abs=1e-8)
    assert expected[:-1] @ found.coefficients[:, 0] == pytest.approx(wanted.state_values[0], abs=1e-8)
    assert found.influence == pytest.approx(wanted.influence, abs=1e-8)


@pytest.mark.parametrize("horizon", [pytest.param("endless", marks=pytest.mark.slow), "finite"])
@pytest.mark.slow
def test_continuous_states_and_actions(horizon):
    """Within 4 standard errors and 8 %; the mean of the log is 40 % away."""
    steps = LENGTH if horizon == "finite" else 2000
    data, queries = gaussian_log(0), np.array([[0.0], [1.0]], np.float32)
    found = estimate(data, gaussian(), horizon, queries)
    true = true_value(steps)
    assert found.converged
    assert found.warnings == ()
    assert abs(found.value - true) < min(4 * found.standard_error, 0.08 * abs(true))
    assert found.intervals["t"].low < found.value < found.intervals["t"].high
    assert found.state_values == pytest.approx([true_value(steps, s, 0.0) for s in (0.0, 1.0)], rel=0.12)
    assert 0.4 * COUNT < found.effective_sample_size < 0.8 * COUNT
    logged = (np.asarray(data.reward) @ DISCOUNT ** np.arange(LENGTH)).mean()
    assert abs(logged - true_value(LENGTH)) > 0.3 * abs(true_value(LENGTH))


@pytest.mark.parametrize(
    ("horizon", "values"),
    [
        pytest.param("finite", [1.27102392, 2.82407608], marks=pytest.mark.slow),
        ("endless", [4.21875, 5.78125]),
    ],
)
def test_discrete_actions(horizon, values):
    """The two-state chain over 5 steps and without end."""
    states = np.stack([one_hot(0), one_hot(1)])
    found = estimate(chain_log().replace(log_prob=None), switching(0.3), horizon, states, 0.9)
    assert found.converged
    assert found.value == pytest.approx(np.mean(values), rel=0.02)
    assert found.state_values == pytest.approx(values, rel=0.03)
    assert abs(found.value - np.mean(values)) < 4 * found.standard_error + 1e-3


@pytest.mark.slow
def test_terminations_end_the_value():
    """A coin that ends an episode with tails (action 0); each step is worth 1, and the policy tosses heads with 0.6."""
    action = np.random.default_rng(0).random((2000, 12)) < 0.5
    alive = np.cumprod(np.pad(action, ((0, 0), (1, 0)), constant_values=True)[:, :-1], axis=1).astype(bool)
    data = ope.LoggedData.from_arrays(
        observation=np.zeros((2000, 12, 1)),
        action=action.astype(int),
        reward=np.ones((2000, 12)),
        terminated=alive & ~action,
        mask=alive,
        final_observation=np.zeros((2000, 1)),
    )
    heads = switching(0.6)
    assert estimate(data, heads, discount=1.0).value == pytest.approx(1 / 0.4, rel=0.02)
    assert estimate(data, heads, discount=0.9).value == pytest.approx(1 / (1 - 0.54), rel=0.02)
    assert estimate(data, heads, "finite", discount=1.0).value == pytest.approx((1 - 0.6**12) / 0.4, rel=0.03)


def test_a_constant_reward_is_exact():
    data = gaussian_log(1)
    ones = data.replace(reward=np.ones_like(data.reward))
    found = estimate(ones, gaussian(), "finite")
    assert found.value == pytest.approx((1 - DISCOUNT**LENGTH) / (1 - DISCOUNT), rel=1e-10)


@pytest.mark.slow
def test_a_policy_that_the_log_does_not_cover_is_said():
    """It moves four deviations away from what was logged."""
    with pytest.warns(ope.CollapsedWeights, match="dualdice: DualDICE has not converged"):
        found = estimate(gaussian_log(2), gaussian(offset=3.0))
    assert not found.converged
    assert "DualDICE has not converged" in found.warnings[0]
    assert found.standard_error is None
    assert not found.intervals


def test_few_steps_have_no_standard_error():
    found = estimate(gaussian_log(3, count=10), gaussian())
    assert "are too few for a standard error" in " ".join(found.warnings)
    assert found.standard_error is None


@pytest.mark.slow
def test_one_compilation_serves_logs_of_all_lengths():
    from evarl.ope.dice_networks import _program

    estimate(gaussian_log(4), gaussian())
    program = _program(SHORT.hidden_sizes)
    before = program.train._cache_size(), program.logged._cache_size(), program.expected._cache_size()
    estimate(gaussian_log(5, count=77), gaussian())
    estimate(gaussian_log(5, count=77), gaussian(), dice=dataclasses.replace(SHORT, steps=120, learning_rate=1e-4))
    assert (program.train._cache_size(), program.logged._cache_size(), program.expected._cache_size()) == before


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers():
    once, again = (estimate(gaussian_log(6), gaussian()) for _ in range(2))
    assert once.value == again.value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount": 1.0}, "discount: 1 is not allowed where no step ends the value"),
        ({"dice": DICEConfig(ridge=0.0)}, "dice.ridge: 0.0 is not allowed"),
        ({"dice": DICEConfig(steps=10**9)}, "dice.steps: 1000000000 is not allowed"),
        ({"dice": DICEConfig(batch_size=10**9)}, "dice.batch-size: 1000000000 is not allowed"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError) as caught:
        estimate(gaussian_log(0, count=4), gaussian(), **changes)
    assert str(caught.value).startswith(message)


def test_numbered_states_are_seen():
    """The second reward is 1 if its action is the state, which the first action chose, and −1 if not: J = 0.9² + 0.1² − 0.18."""
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=(1000, 2))
    seen = np.zeros((1000, 2, 1), int)
    seen[:, 1, 0] = 1 + action[:, 0]
    data = ope.LoggedData.from_arrays(
        observation=seen,
        action=action,
        reward=np.stack([rng.normal(size=1000), np.where(action[:, 0] == action[:, 1], 1.0, -1.0)], axis=1),
        final_observation=np.full((1000, 1), 3),
    )
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.tile([0.1, 0.9], (len(seen), 1)))
    settings = ope.Settings(dice=ope.DICEConfig(steps=200, hidden_sizes=(16,)))
    log = ope.Log(data, 1.0, np.array([[1], [2]]), np.array([1, 1]))
    found = ope.estimate(log, policy, settings, ("dualdice",))["dualdice"]
    assert found.value == pytest.approx(0.64, abs=4 * found.standard_error)
    np.testing.assert_allclose(found.state_values, [-0.8, 0.8], atol=0.2)
