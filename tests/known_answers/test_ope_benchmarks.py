"""Public benchmark worlds through `ope.estimate`, against exact values and exact variances by dynamic programming.

Estimates must lie within four exact standard errors, and the standard errors that they report must be those.
"""

import warnings
from dataclasses import dataclass, fields, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.ope_worlds import World, epsilon_greedy
from evarl import ope
from tests.known_answers.ope_cases import WORLDS, chain, cliff, graph, grid, model_fail, model_win, taxi, toy_mc

WEIGHTED = ("tis", "pdis", "wis", "wpdis")
EXACT_FITS = tuple(name for name in ("fqe-tabular", "fqe-linear") if name in ope.estimators())
"""Fitted Q evaluation without a network, whose error on a table is that of the data."""


def fitted(steps: int, **options) -> ope.FQEConfig:
    """A small network that sees the time, so that it values the logged number of steps."""
    small = {"hidden_sizes": (32,), "learning_rate": 3e-3, "target_interval": 50, "steps": steps, "time_feature": True}
    known = {field.name for field in fields(ope.FQEConfig)}
    return ope.FQEConfig(**{name: value for name, value in (small | options).items() if name in known})


HEAVY = {"ModelWin"}
"""So few trajectories have any weight that neither the spread nor the limit of self-normalised forms shows in a log."""
COUNT = {"ModelWin": 20_000, "Taxi": 3000, "grid": 2000}


@dataclass
class Sampled:
    """A world, one log of it and what `ope.estimate` found."""

    world: World
    count: int
    found: dict[str, ope.Estimate]


@cache
def sampled(name: str) -> Sampled:
    world, count = WORLDS[name](), COUNT.get(name, 4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ope.CollapsedWeights)
        found = ope.estimate(world.log(count, seed=11), world.policy, ope.Settings(resamples=50), WEIGHTED)
    return Sampled(world, count, found)


# --- The tables themselves


def test_known_values():
    """Values and variances by dynamic programming are those that enumeration gave (see the design page's cases)."""
    fail, win, short = model_fail(), model_win(), chain(3)
    assert fail.value == pytest.approx(-0.76, abs=1e-12)
    assert [fail.variances[m] for m in ("tis", "pdis")] == pytest.approx([41.279379] * 2, abs=5e-7)
    assert win.value == pytest.approx(0.92, abs=1e-12)
    assert [win.variances[m] for m in ("tis", "pdis")] == pytest.approx([19014.8, 2922.81], rel=5e-6)
    assert short.value == pytest.approx(0.6102, abs=1e-12)
    assert [short.variances[m] for m in ("tis", "pdis")] == pytest.approx([0.39069384, 0.32248277], abs=5e-9)
    assert short.variances["dr"] == pytest.approx(0.0, abs=1e-12)  # nothing is random but the actions
    assert grid().value == pytest.approx(-72.4127, abs=5e-5)


def test_known_values_of_the_graph():
    """Upper states are entered independently with q = p (1 − slip) + (1 − p) slip: J = (2q − 1) Σ γ^t."""
    q = 0.8 * 0.75 + 0.2 * 0.25
    powers = 0.98 ** np.arange(4)
    assert graph(4, (0.6, 0.8), slip=0.25).value == pytest.approx((2 * q - 1) * powers.sum())
    assert graph(4, (0.6, 0.8), slip=0.25, dense=False).value == pytest.approx((2 * q - 1) * powers[-1])
    # Q does not depend on the last action; before it two rewards of the same sign are one Bernoulli variable in the end
    square = (0.8**2 / 0.6 + 0.2**2 / 0.4) ** np.arange(1, 5)
    assert graph(4, (0.6, 0.8), slip=0.25).variances["weight"] == pytest.approx(square[-1])


def test_known_values_of_a_way_that_leads_right():
    """With probability 1 for "right", Toy-MC is 11 steps from the middle, and on average 11 from a random place."""
    for random_start in (False, True):
        world = toy_mc((0.6, 1.0), random_start)
        steps = np.arange(1, 22) if random_start else np.array([11])
        assert world.value == pytest.approx(np.mean(-(1 - 0.99**steps) / 0.01))


def test_known_values_of_gymnasium_worlds():
    """Best policies without ε: 13 steps along the cliff, and Taxi's mean optimal return of about 7.9 without discount."""
    best = cliff()
    straight = replace(best, target=epsilon_greedy(best.target.argmax(axis=1), 4, 0.0), discount=1.0)
    assert straight.value == pytest.approx(-13.0)
    driver = taxi()
    driven = replace(driver, target=epsilon_greedy(driver.target.argmax(axis=1), 6, 0.0), discount=1.0)
    lengths = 21.0 - driven.value  # −1 for each step but the last, which is worth 20
    assert 7.8 < driven.value < 8.0
    assert 13.0 < lengths < 13.2


@pytest.mark.parametrize("name", ["graph", "Toy-MC of 25 steps", "ModelWin, near policies"])
def test_variances_of_many_small_logs(name):
    """n·Var of the forms over 400 logs of 100 trajectories, in NumPy alone, is what dynamic programming says."""
    world = WORLDS[name]() if name in WORLDS else toy_mc((0.6, 0.65), random_start=True, horizon=25)
    logs, count = 400, 100
    data = world.sample(logs * count, seed=5)
    reward, mask = np.asarray(data.reward, np.float64), np.asarray(data.mask)
    state = np.rint(np.asarray(data.observation, np.float64) @ np.arange(len(world.start))).astype(int)
    ratio = np.where(mask, world.ratio[state, np.asarray(data.action)], 1.0)
    weight, powers = np.cumprod(ratio, axis=1), world.discount ** np.arange(world.horizon)
    weight, reward, mask = (x.reshape(logs, count, -1) for x in (weight, reward, mask))
    before = np.concatenate([np.ones_like(weight[..., :1]), weight[..., :-1]], axis=2)
    was = np.concatenate([np.ones_like(mask[..., :1]), mask[..., :-1]], axis=2)
    alive = np.cumprod((before * mask).sum(axis=1) / np.maximum((before * was).sum(axis=1), 1e-300), axis=1)
    mean = (weight * mask * reward).sum(axis=1) / np.maximum((weight * mask).sum(axis=1), 1e-300)
    returns, last = reward @ powers, weight[..., -1]
    by_hand = {
        "tis": (last * returns).mean(axis=1),
        "wis": (last * returns).sum(axis=1) / last.sum(axis=1),
        "pdis": (weight * reward).mean(axis=1) @ powers,
        "wpdis": (alive * mean) @ powers,
    }
    for method, estimates in by_hand.items():
        # a mean of 400 squares is known to √(2/400) = 7 %, more with heavy tails
        assert count * estimates.var() == pytest.approx(world.variances[method], rel=0.3), method
        assert abs(estimates.mean() - world.value) < 4 * estimates.std() / logs**0.5 + 0.05 * estimates.std(), method


# --- Importance sampling


MORE = ("graph of 16 steps", "CliffWalking", "Taxi", "Toy-MC", "ModelWin")
"""Worlds of kinds that others are of too: `make test-slow` only."""


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow if one in MORE else []) for one in WORLDS])
def test_importance_sampling_is_within_four_exact_standard_errors(name):
    one = sampled(name)
    for method in WEIGHTED:
        if name in HEAVY and method in ("wis", "wpdis"):
            continue
        error = (one.world.variances[method] / one.count) ** 0.5
        assert abs(one.found[method].value - one.world.value) < 4 * error, method


@pytest.mark.parametrize("name", [name for name in WORLDS if name not in HEAVY])
def test_reported_standard_errors_and_sample_sizes_are_the_exact_ones(name):
    one = sampled(name)
    for method in WEIGHTED:
        exact = (one.world.variances[method] / one.count) ** 0.5
        within = (
            0.15 if method in ("tis", "pdis") else 0.25
        )  # the jackknife is larger than the limit, which is for many
        assert one.found[method].standard_error == pytest.approx(exact, rel=within), method
        interval = one.found[method].intervals["t"]
        # more than the normal quantile where contributions are skewed, or few trajectories leave few degrees of freedom
        assert 1.959 < (interval.high - interval.low) / 2 / one.found[method].standard_error < 2.3, method
    size = one.count / one.world.variances["weight"]
    assert one.found["tis"].effective_sample_size == pytest.approx(size, rel=0.1)


def test_collapsed_weights_of_model_win_are_said():
    """E[w²] = 1458: the log of 20 000 is worth 14 trajectories."""
    one = sampled("ModelWin")
    assert one.world.variances["weight"] == pytest.approx(2.0735**10, rel=1e-3)
    for method in WEIGHTED:
        assert any("collapsed" in text for text in one.found[method].warnings), method


def test_on_policy_in_taxi_every_form_is_the_mean_return():
    world = replace(taxi(), target=taxi().behaviour)
    log = world.log(500, seed=3)
    found = ope.estimate(log, world.policy, ope.Settings(resamples=10), WEIGHTED)
    rewards = np.asarray(log.data.reward, np.float64)
    mean = (rewards @ world.discount ** np.arange(world.horizon)).mean()
    for method in WEIGHTED:
        assert found[method].value == pytest.approx(mean, rel=1e-4), method  # log-probabilities have 32 bits


# --- Fitted Q evaluation and doubly robust estimates


@pytest.mark.skipif(not EXACT_FITS, reason="there is no fitted Q evaluation without a network")
@pytest.mark.parametrize(
    "name",
    [
        "graph",
        "ModelFail",
        "ModelWin, near policies",
        "chain",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Toy-MC, random start", "grid")),
    ],
)
def test_fits_of_a_table_reach_the_least_variance(name):
    world, count = WORLDS[name](), 4000
    found = ope.estimate(
        world.log(count, seed=12), world.policy, ope.Settings(fqe=fitted(100), fqe_refits=2), EXACT_FITS
    )
    for method, one in found.items():
        error = (world.variances["dr"] / count) ** 0.5
        assert abs(one.value - world.value) < 5 * error + 1e-4 * abs(world.value), method


@pytest.mark.parametrize(("name", "steps"), [pytest.param("graph", 1500, marks=pytest.mark.slow), ("ModelFail", 1000)])
@pytest.mark.slow
def test_networks_and_doubly_robust_estimates(name, steps):
    """FQE within 5 % of the returns' deviation; DR within four of its standard errors, which are near the least there are."""
    world, count = WORLDS[name](), 4000
    log = world.log(count, seed=13)
    settings = ope.Settings(fqe=fitted(steps), resamples=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ope.CollapsedWeights)  # ModelFail's weights are worth 2 % of the log
        found = ope.estimate(log, world.policy, settings, ("fqe", "dr", "wdr"))
    spread = (np.asarray(log.data.reward) @ world.discount ** np.arange(world.horizon)).std()
    least = (world.variances["dr"] / count) ** 0.5
    assert abs(found["fqe"].value - world.value) < 4 * least + 0.05 * spread
    for method in ("dr", "wdr"):
        one = found[method]
        assert abs(one.value - world.value) < 4 * max(one.standard_error, least) + 1e-3, method
        assert 0.8 * least < one.standard_error < max(1.3 * least, 0.02), method
        assert one.standard_error < (world.variances["pdis"] / count) ** 0.5, method


# --- Gaussian actions

BEHAVIOUR_MEAN, TARGET_MEAN, DEVIATION, STEPS, GAMMA = 0.3, 0.0, 0.8, 4, 0.9


def gaussian_log(count: int, seed: int) -> ope.Log:
    """Reward a for action a of a Gaussian policy, in every one of four steps; nothing else happens."""
    rng = np.random.default_rng(seed)
    action = BEHAVIOUR_MEAN + DEVIATION * rng.normal(size=(count, STEPS))
    scaled = (action - BEHAVIOUR_MEAN) / DEVIATION
    truncated = np.zeros(action.shape, bool)
    truncated[:, -1] = True
    data = ope.LoggedData.from_arrays(
        observation=np.ones((count, STEPS, 1)),
        action=action[..., None],
        reward=action,
        log_prob=-0.5 * scaled**2 - np.log(DEVIATION * np.sqrt(2 * np.pi)),
        truncated=truncated,
        final_observation=np.ones((count, 1)),
    )
    return ope.Log(data, GAMMA)


def gaussian_policy() -> ope.TargetPolicy:
    def log_prob(observation: jax.Array, action: jax.Array) -> jax.Array:
        scaled = (action[:, 0] - TARGET_MEAN) / DEVIATION
        return -0.5 * scaled**2 - float(np.log(DEVIATION * np.sqrt(2 * np.pi)))

    return ope.TargetPolicy(
        log_prob=log_prob,
        probabilities=None,
        sample=lambda key, seen: TARGET_MEAN + DEVIATION * jax.random.normal(key, (len(seen), 1)),
        mode=lambda seen: jnp.full((len(seen), 1), TARGET_MEAN),
    )


def gaussian_variances() -> tuple[float, float, float, float]:
    """n·Var of TIS, PDIS, WIS and WPDIS. ρ² π_b is e^{(m_e − m_b)²/σ²} times the density of N(2 m_e − m_b, σ²)."""
    square = np.exp((TARGET_MEAN - BEHAVIOUR_MEAN) ** 2 / DEVIATION**2)
    mean = 2 * TARGET_MEAN - BEHAVIOUR_MEAN
    whole, first, second, per_decision, value, centred = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for _ in range(STEPS):
        moment = mean**2 + DEVIATION**2
        second = square * (moment * whole + 2 * GAMMA * mean * first + GAMMA**2 * second)
        first = square * (mean * whole + GAMMA * first)
        whole *= square
        per_decision = square * (moment + 2 * GAMMA * mean * value + GAMMA**2 * per_decision)
        # rewards minus their mean: what is to come has mean 0
        centred = square * ((mean - TARGET_MEAN) ** 2 + DEVIATION**2 + GAMMA**2 * centred)
        value = TARGET_MEAN + GAMMA * value
    normalised = second - 2 * value * first + value**2 * whole
    return second - value**2, per_decision - value**2, normalised, centred


def test_gaussian_actions():
    count = 20_000
    log, policy = gaussian_log(count, seed=4), gaussian_policy()
    exact = TARGET_MEAN * np.sum(GAMMA ** np.arange(STEPS))
    found = ope.estimate(log, policy, ope.Settings(resamples=50), WEIGHTED)
    for method, variance in zip(("tis", "pdis", "wis", "wpdis"), gaussian_variances(), strict=True):
        error = (variance / count) ** 0.5
        assert abs(found[method].value - exact) < 4 * error, method
        assert found[method].standard_error == pytest.approx(error, rel=0.1), method


@pytest.mark.slow
def test_gaussian_actions_with_a_network():
    """Q(a) = a + what follows; its draws of the policy's actions leave an error, which DR corrects."""
    log, policy = gaussian_log(4000, seed=6), gaussian_policy()
    exact = TARGET_MEAN * np.sum(GAMMA ** np.arange(STEPS))
    settings = ope.Settings(fqe=fitted(1500), resamples=50)
    found = ope.estimate(log, policy, settings, ("fqe", "dr"))
    spread = DEVIATION * np.sqrt(np.sum(GAMMA ** (2 * np.arange(STEPS))))
    assert abs(found["fqe"].value - exact) < 0.1 * spread
    assert abs(found["dr"].value - exact) < 4 * found["dr"].standard_error + 0.03 * spread
