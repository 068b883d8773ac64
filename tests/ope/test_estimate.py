"""All methods through the one function that users call, on the two-state chain whose values are known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.log import shares

DISCOUNT, STEPS = 0.9, 5
EXACT = np.array([1.27102392, 2.82407608])
"""V after 5 steps of the policy that switches with probability 0.3."""
SMALL = ope.FQEConfig(hidden_sizes=(16,), steps=2500, target_interval=50, learning_rate=3e-3, time_feature=True)
QUICK = dataclasses.replace(SMALL, steps=100)
"""The same program, where values need not be right."""


def one_hot(state):
    return np.eye(2, dtype=np.float32)[state]


def chain_log(trajectories: int = 4000, seed: int = 0, switch: float = 0.5) -> ope.LoggedData:
    """Reward 1 in state 1; action 1 switches. Half of the trajectories start in each state.

    Most tests use logs of one size, for which the programs are compiled once.
    """
    generator = np.random.default_rng(seed)
    state = np.arange(trajectories) % 2
    action = (generator.random((trajectories, STEPS)) < switch).astype(int)
    seen = np.zeros((trajectories, STEPS), int)
    for t in range(STEPS):
        seen[:, t] = state
        state = np.where(action[:, t] == 1, 1 - state, state)
    return ope.LoggedData.from_arrays(
        observation=one_hot(seen),
        action=action,
        reward=(seen == 1).astype(float),
        log_prob=np.log(np.where(action == 1, switch, 1 - switch)),
        truncated=np.eye(STEPS, dtype=bool)[[STEPS - 1] * trajectories],
        final_observation=one_hot(state),
    )


def switching(probability: float) -> ope.TargetPolicy:
    table = jnp.asarray([1 - probability, probability])
    both = lambda observation: jnp.broadcast_to(table, (len(observation), 2))  # noqa: E731
    return ope.TargetPolicy(
        log_prob=lambda observation, action: jnp.log(table)[action],
        probabilities=both,
        sample=lambda key, observation: jax.random.categorical(key, jnp.log(both(observation))),
        mode=lambda observation: jnp.argmax(both(observation), axis=1),
    )


def estimate(data, policy, methods=None, discount=DISCOUNT, states=None, **options):
    return ope.estimate(ope.Log(data, discount, states), policy, ope.Settings(**options), methods)


@pytest.fixture(scope="module")
def found():
    states = np.stack([one_hot(0), one_hot(1), one_hot(0)])
    options = {"rule": "per-start", "fqe": SMALL, "range": (-1000.0, 1000.0), "resamples": 100}
    return estimate(chain_log(), switching(0.3), tuple(ope.estimators()), states=states, **options)


@pytest.mark.parametrize("method", ope.estimators())
def test_values_of_the_chain(found, method):
    one = found[method]
    wanted = EXACT[[0, 1, 0]]
    if method == "fqe-greedy-huber":
        # it values staying for ever, which the policy does not do
        assert np.allclose(one.state_values, [0.0, 4.0951, 0.0], atol=0.1)
        return
    assert np.allclose(one.state_values, wanted, rtol=0.06)
    assert one.state_values[0] == pytest.approx(one.state_values[2], rel=1e-5)
    if method == "magic":
        assert one.value == pytest.approx(EXACT.mean(), rel=0.03)
        assert one.standard_error is None
        assert not one.intervals
    elif one.standard_error is None:
        assert one.value == pytest.approx(EXACT.mean(), rel=0.03)
        assert one.converged
    else:
        assert abs(one.value - EXACT.mean()) < 4 * one.standard_error
        assert one.intervals["t"].low <= one.value <= one.intervals["t"].high
        if method in ("fqe-tabular", "fqe-linear"):
            assert (np.abs(one.state_values - wanted) < 4 * one.state_errors + 1e-6).all()  # 0.3 in 32 bits
            return
        if method in ("mis-tabular", "dualdice"):  # weights of steps: see their own tests
            return
        assert one.intervals["bootstrap"].low < one.intervals["bootstrap"].high
        # (Σw)²/Σw² → N / E[w²], and E[ρ²] = .3²/.5 + .7²/.5
        if method not in ("switch-dr", "dr-os"):
            assert one.effective_sample_size == pytest.approx(4000 / 1.16**STEPS, rel=0.05)


def test_bounds_only_where_they_hold(found):
    with_bounds = {method for method, one in found.items() if "hoeffding" in one.intervals}
    assert with_bounds == {"tis", "pdis", "dr", "mrdr"}
    for method in with_bounds:
        assert found[method].intervals["hoeffding"].high > found[method].intervals["t"].high


def test_on_policy_every_weighted_method_is_the_mean_return():
    data = chain_log(switch=0.3)
    found = estimate(data, switching(0.3), methods=("tis", "pdis", "wis", "wpdis"))
    mean = float((np.asarray(data.reward) * DISCOUNT ** np.arange(STEPS)).sum(axis=1).mean())
    assert [one.value for one in found.values()] == pytest.approx([mean] * 4, rel=1e-6)  # the policy is in float32


def test_collapsed_weights_are_warned_of():
    with pytest.warns(ope.CollapsedWeights, match="the weights have collapsed: effective sample size"):
        found = estimate(chain_log(), switching(0.999), methods=("pdis",))
    assert found["pdis"].effective_sample_size < 200
    assert any("collapsed" in warning for warning in found["pdis"].warnings)


@pytest.mark.slow
def test_refits_tell_the_error_of_fitted_q_evaluation(found):
    one = estimate(chain_log(), switching(0.3), ("fqe",), fqe=SMALL, fqe_refits=6)["fqe"]
    # all that is random in this log is what its doubly robust estimate knows of, give or take the noise of the fits
    assert 0.3 < one.standard_error / found["dr"].standard_error < 10
    interval = one.intervals["t"]
    assert (interval.high - interval.low) / 2 == pytest.approx(2.5706 * one.standard_error, rel=1e-3)


def test_errors_of_a_fit_that_was_stopped_early_include_what_is_left():
    """After few steps all refits are near their first value, and agree."""
    log, policy = ope.Log(chain_log(), DISCOUNT), switching(0.3)
    settings = ope.Settings(fqe=dataclasses.replace(SMALL, steps=10), fqe_refits=4)
    one = ope.estimate(log, policy, settings, ("fqe",))["fqe"]
    left = float(log.model(policy, settings).fitted.remainder)
    refits = log.model(policy, settings).refitted(4, np.random.default_rng(0))
    assert left > 5 * refits.std(ddof=1)
    assert left <= one.standard_error <= 1.1 * left


def test_a_fit_that_diverged_is_called_so_and_has_no_interval():
    """Rewards are 0 or 1, so that J is at most the number of steps."""
    wild = dataclasses.replace(SMALL, learning_rate=30.0, steps=2)
    both = estimate(chain_log(200), switching(0.3), ("fqe", "dr"), fqe=wild, fqe_refits=2, resamples=20)
    found = both["fqe"]
    assert abs(found.value) > 2 * STEPS
    assert found.diverged
    assert "is outside of what the logged rewards can add up to, 0 to" in found.warnings[0]
    assert (found.standard_error, found.intervals, found.converged) == (None, {}, False)
    assert any(one.startswith("the model has diverged: its J ") for one in both["dr"].warnings)
    assert both["dr"].converged is False
    for one in estimate(chain_log(), switching(0.3), ("fqe", "dr"), fqe=SMALL, resamples=20).values():
        assert not any("diverged" in line for line in one.warnings)


def test_rewards_whose_squares_overflow_have_no_standard_error():
    data = chain_log(200)
    data = data.replace(reward=1e200 * np.random.default_rng(0).normal(size=data.reward.shape))
    for name, one in estimate(data, switching(0.3), ("tis", "pdis", "wpdis")).items():
        assert (one.standard_error, "t" in one.intervals, "bootstrap" in one.intervals) == (None, False, False), name
        assert (
            "no standard error and no interval: squares of weighted rewards overflow; use smaller units"
            in one.warnings[0]
        )


def test_a_range_that_does_not_hold_gives_no_bound():
    found = estimate(chain_log(), switching(0.3), methods=("tis",), range=(0.0, 0.1))
    assert "hoeffding" not in found["tis"].intervals
    assert "since the range does not hold" in found["tis"].warnings[0]


def test_weights_beyond_64_bits():
    data = chain_log()
    rare = data.replace(log_prob=np.full_like(data.log_prob, -200.0))
    found = estimate(rare, switching(0.3), methods=("tis", "wis"), warn_below=0.0)
    assert "some weights overflow" in found["tis"].warnings[0]
    assert not found["tis"].intervals
    assert found["wis"].value == pytest.approx(EXACT.mean(), abs=0.1)
    assert "the weights have mean inf, and 1 is expected" in found["wis"].warnings[0]


def test_the_same_seed_gives_the_same_numbers():
    once, again, other = (
        estimate(chain_log(), switching(0.3), methods=("dr",), fqe=QUICK, random_seed=seed)["dr"] for seed in (0, 0, 1)
    )
    assert once.value == again.value
    assert once.intervals == again.intervals
    assert once.value != other.value


def test_rules():
    data = chain_log(4)
    queries = np.stack([one_hot(0), one_hot(1), np.array([0.5, 0.5], np.float32)])
    assert np.allclose(shares("pooled", data, queries), 0.25)
    assert np.allclose(shares("per-start", data, queries), [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 0]])
    near = shares("neighbours", data, queries)
    assert np.allclose(near.sum(axis=1), 1)
    assert near[0, 0] > near[0, 1]
    assert np.allclose(near[2], 0.25)
    missing = estimate(data, switching(0.3), ("pdis",), states=queries, rule="per-start")
    assert np.isnan(missing["pdis"].state_values).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ()}, "methods: there are none"),
        ({"methods": ("pdsi",)}, "method: unknown 'pdsi'; did you mean 'pdis'?"),
        ({"discount": 1.5}, "discount: 1.5 is not allowed"),
        ({"confidence": 95}, "confidence: 95 is not allowed"),
        ({"resamples": 0}, "resamples: 0 is not allowed"),
        ({"fqe_refits": 1}, "fqe-refits: 1 is not allowed"),
        ({"rule": "nearest"}, "rule: unknown 'nearest'"),
        ({"states": np.zeros((1, 3))}, "states: have shape (3,) each; must be (2,)"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(InputError) as caught:
        estimate(chain_log(4), switching(0.3), **{"methods": ("pdis",)} | changes)
    assert str(caught.value).startswith(message)


def test_ratios_are_clipped_from_above_alone():
    data = chain_log()
    log, policy = ope.Log(data, DISCOUNT), switching(0.0)  # never takes action 1
    ratio = np.asarray(log.steps(policy, clip=0.2).log_ratio)
    assert np.array_equal(np.isneginf(ratio), np.asarray(data.action) == 1)
    assert ratio.max() == 0.2 < np.asarray(log.log_ratio(policy)).max()


def test_what_methods_share_is_computed_once():
    log, policy = ope.Log(chain_log(), DISCOUNT), switching(0.3)
    settings = ope.Settings(fqe=QUICK)
    assert log.log_ratio(policy) is log.log_ratio(policy)
    assert log.model(policy, settings) is log.model(policy, settings, "sound")
    assert log.log_ratio(policy) is not log.log_ratio(switching(0.4))


@pytest.mark.slow
def test_magic_where_all_but_the_nearest_trajectories_are_negligible():
    """The longest trajectory starts so far from the query that a kernel gives it a share of 1e-37."""
    start = np.array([0.0, 0.01, 1.0])
    episode = lambda x, steps: {  # noqa: E731
        "observation": np.full((steps, 1), x),
        "action": np.arange(steps) % 2,
        "reward": np.ones(steps),
        "log_prob": np.full(steps, np.log(0.5)),
        "final_observation": np.full(1, x),
        "terminated": True,
    }
    data = ope.LoggedData.from_episodes([episode(x, steps) for x, steps in zip(start, (1, 2, 4), strict=True)])
    width = 3 ** (-1 / 5) * start.std()
    near = 0.5 * start[2] - 37 * np.log(10) * width**2 / start[2]  # exp(−(d₂² − d₀²) / 2w²) = 1e-37
    options = {"fqe": dataclasses.replace(SMALL, steps=50), "rule": "neighbours", "resamples": 10}
    found = estimate(data, switching(0.3), ("magic",), states=np.array([[near]]), warn_below=0.0, **options)
    assert np.isfinite(found["magic"].state_values).all()


def test_one_trajectory():
    """MAGIC has no covariance to mix by, and there is no standard error."""
    data = chain_log(2)
    log = ope.Log(data.rows(np.array([0])), DISCOUNT)
    settings = ope.Settings(fqe=dataclasses.replace(SMALL, steps=50, held_out=0.0))
    found = ope.estimate(log, switching(0.3), settings, ("wdr", "magic"))
    assert found["magic"].value == found["wdr"].value
    assert found["magic"].standard_error is None


def test_without_probabilities_only_fitted_q_evaluation():
    data = chain_log().replace(log_prob=None)
    with pytest.raises(InputError, match="log_prob: is missing in the log; dr requires it"):
        estimate(data, switching(0.3), methods=("dr",))
    assert "fqe" in estimate(data, switching(0.3), methods=("fqe",), fqe=QUICK)
