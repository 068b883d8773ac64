"""What is said of intervals that may not hold: few trajectories decide, or a Q function that refits cannot doubt."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.ope_coverage_cases import Case
from evarl import ope
from evarl.ope import importance
from evarl.ope.action_support import action_warnings
from evarl.ope.checks import fit_warnings
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.importance import Steps
from evarl.ope.resampling import Summed, jackknife
from evarl.ope.uncertainty import doubts, few, intervals_of, tail

SETTINGS = ope.Settings(resamples=200)
FEW = "few trajectories decide the variance of"


def bandit(rewards, log_prob=True, ends=False):
    """Two actions in two steps, by a uniform policy, and a policy that is uniform too."""
    count = len(rewards)
    action = np.random.default_rng(0).integers(2, size=(count, 2))
    seen = np.zeros((count, 2, 1))
    seen[:, 1] = 1.0
    data = ope.LoggedData.from_arrays(
        observation=seen,
        action=action,
        reward=np.stack([np.zeros(count), rewards], axis=1),
        log_prob=np.full((count, 2), np.log(0.5)) if log_prob else None,
        terminated=np.tile([False, ends], (count, 1)),
        final_observation=np.full((count, 1), 2.0),
    )
    return ope.Log(data, 1.0)


UNIFORM = ope.TargetPolicy.from_probabilities(lambda seen: jnp.full((len(seen), 2), 0.5))


@pytest.mark.parametrize("self_normalised", [False, True])
@pytest.mark.parametrize("form", ["trajectory_wise", "per_decision"])
def test_the_jackknife_leaves_out_one_trajectory_at_a_time(form, self_normalised):
    rng = np.random.default_rng(0)
    steps = Steps(rng.normal(size=(8, 3)), rng.normal(size=(8, 3)), rng.random((8, 3)) < [1.0, 0.8, 0.6], 0.9)
    steps = steps._replace(mask=np.logical_and.accumulate(steps.mask, axis=1))
    estimate = getattr(importance, form)
    whole = estimate(steps, self_normalised=self_normalised).value
    without = [
        estimate(Steps(*(np.delete(x, i, axis=0) for x in steps[:3]), 0.9), self_normalised=self_normalised).value
        for i in range(8)
    ]
    summed = getattr(importance, f"summed_{form}")(steps, self_normalised=self_normalised)
    np.testing.assert_allclose(jackknife(summed), 8 * whole - 7 * np.array(without), atol=1e-10)


def gaussian(rng, count, shift):
    """One action from N(0, 1), asked of N(shift, 1): log-normal weights, J = 1 + shift / 2."""
    action = rng.normal(size=(count, 1))
    reward = 1 + 0.5 * action + rng.normal(size=(count, 1))
    return Steps(reward, shift * action - shift**2 / 2, np.ones((count, 1), bool), 1.0)


@pytest.mark.parametrize("self_normalised", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_intervals_hold_or_are_warned_of_with_log_normal_weights(self_normalised):
    """σ = 1 holds; of σ = 1.5, t holds in nine of ten and nine in ten estimates carry a warning."""
    for shift, least in ((1.0, 0.92), (1.5, 0.88)):
        rng, held, warned = np.random.default_rng(4), [], []
        for _ in range(150):
            steps = gaussian(rng, 300, shift)
            one = importance.trajectory_wise(steps, self_normalised=self_normalised)
            reasons = doubts(steps, one, SETTINGS)
            size = one.effective_sample_size if self_normalised else None
            summed = importance.summed_trajectory_wise(steps, self_normalised=self_normalised)
            found = intervals_of(one, SETTINGS, None if reasons else summed, size, False, None)
            warned.append(bool(reasons or found.warnings or tail(steps, one.contribution)[1]))
            if not reasons:
                held.append(found.intervals["t"].low <= 1 + shift / 2 <= found.intervals["t"].high)
        assert np.mean(held) > least
        assert shift == 1.0 or np.mean(warned) > 0.9


def test_an_outlier_is_named_and_normal_numbers_are_not():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=200)
    assert few(normal, "x") == few(rng.normal(size=8), "x") == few(np.ones(3), "x") == ()
    for seen, said in ((3, True), (40, False)):
        rare = np.where(np.arange(200) < seen, -30.0, normal)
        assert bool(few(rare, "x")) == said
    assert few(np.where(np.arange(200) < 3, -30.0, normal), "x")[0].startswith(f"{FEW} x, which has 7")


def test_rare_returns_are_said_by_every_method_with_an_interval():
    """Skewness of opposite signs may cancel in contributions, as where returns have rare losses and weights rare large ones."""
    rewards = np.where(np.arange(400) < 4, -50.0, 1 + np.random.default_rng(1).random(400))
    for name, one in ope.estimate(bandit(rewards), UNIFORM, SETTINGS, ("pdis", "wis", "fqe-tabular")).items():
        assert any(f"{FEW} the logged returns" in line for line in one.warnings), name
    calm = ope.estimate(bandit(np.random.default_rng(1).random(400)), UNIFORM, SETTINGS, ("pdis", "wis", "fqe-tabular"))
    assert all(not one.warnings for one in calm.values())
    ranked = ope.rank_policies(bandit(rewards), {"a": UNIFORM})
    assert any("the logged returns" in line for line in ranked.warnings)
    assert any("the estimate of a" in line for line in ranked.warnings)
    assert not ope.rank_policies(bandit(np.random.default_rng(1).random(400)), {"a": UNIFORM}).warnings


@pytest.mark.parametrize("kind", ["smooth", "heavy"])
def test_actions_that_were_not_logged(kind):
    """In the heavy world the start state's last actions are hardly ever logged, and a fit to other states hides it."""
    case = Case(kind, 5, False)
    log = case.world.log(200, 3)
    said = action_warnings(log, case.world.policy, SETTINGS)
    assert bool(said) == (kind == "heavy")
    if said:
        assert said[0].startswith("at logged start states the policy takes, with probability 0.")
        found = ope.estimate(log, case.world.policy, SETTINGS, ("fqe-linear",))["fqe-linear"]
        low, high = found.intervals["t"].low, found.intervals["t"].high
        assert not low <= case.world.value <= high
        assert said[0] in found.warnings


def test_continuous_observations_support_the_actions_of_a_similar_policy():
    rng = np.random.default_rng(0)
    seen, action = rng.normal(size=(200, 4, 2)), rng.integers(2, size=(200, 4))
    never = np.where(seen[..., 0] > -0.5, 0, action)  # one region in which action 1 is not tried
    for done, said in ((action, False), (never, True)):
        data = ope.LoggedData.from_arrays(
            observation=seen, action=done, reward=np.zeros((200, 4)), final_observation=np.zeros((200, 2))
        )
        policy = ope.TargetPolicy.from_probabilities(lambda seen: jnp.tile(jnp.asarray([0.3, 0.7]), (len(seen), 1)))
        assert bool(action_warnings(ope.Log(data, 1.0), policy, SETTINGS)) == said


def test_residuals_of_a_fitted_function():
    rewards = 1 + np.random.default_rng(1).random(400)
    log, right = bandit(rewards), np.full((400, 2), 1.5)
    assert fit_warnings(log, UNIFORM, SETTINGS, ModelValues(right, right)) == ()
    assert "put the value 0.6" in fit_warnings(log, UNIFORM, SETTINGS, ModelValues(right, right - 0.45 * right))[0]
    rounded = ModelValues(right * (1 + 1e-8), right)  # of a deterministic world, where residuals are all the same
    assert fit_warnings(bandit(np.full(400, 1.5)), UNIFORM, SETTINGS, rounded) == ()
    blind = bandit(rewards, log_prob=False)
    said = fit_warnings(blind, UNIFORM, SETTINGS, ModelValues(right, right))
    assert "the log has no log-probabilities to check by" in said[0]
    assert fit_warnings(blind, UNIFORM, SETTINGS, ModelValues(right, right), tabular=True) == ()


def test_a_distinct_end_is_no_time_limit():
    """All trajectories end in an observation from which none goes on; if it is one of those on the way, it may be a limit."""
    log, said = bandit(np.random.default_rng(1).random(50), ends=True), "if that is a time limit"
    assert not any(said in line for line in ope.estimate(log, UNIFORM, SETTINGS, ("pdis",))["pdis"].warnings)
    limit = ope.Log(log.data.replace(final_observation=np.ones((50, 1), np.float32)), 1.0)
    assert any(said in line for line in ope.estimate(limit, UNIFORM, SETTINGS, ("pdis",))["pdis"].warnings)


@pytest.mark.parametrize(("final", "told"), [(0.0, True), (-1.0, True), (2.0, False)])
def test_a_placeholder_is_no_distinct_end(final, told):
    """Final observations that were not logged are often 0: nothing tells such an end from a time limit."""
    log = bandit(np.random.default_rng(1).random(50), ends=True)
    seen = np.asarray(log.data.observation) + 5
    data = log.data.replace(observation=seen, final_observation=np.full((50, 1), final, np.float32))
    wide = data.replace(observation=np.repeat(seen, 3, axis=2), final_observation=np.full((50, 3), final, np.float32))
    for one, said in ((data, told), (wide, True)):
        notes = ope.estimate(ope.Log(one, 1.0), UNIFORM, SETTINGS, ("pdis",))["pdis"].warnings
        assert any("which may stand for one that was not logged; if that is a time limit" in x for x in notes) == said
    ends = wide.final_observation.copy()
    ends[:, 0] = 7.0
    notes = ope.estimate(ope.Log(wide.replace(final_observation=ends), 1.0), UNIFORM, SETTINGS, ("pdis",))[
        "pdis"
    ].warnings
    assert not any("if that is a time limit" in x for x in notes)


def test_means_have_their_usual_standard_error():
    x = np.random.default_rng(0).normal(size=50)
    one = importance.trajectory_wise(Steps(x[:, None], np.zeros((50, 1)), np.ones((50, 1), bool), 1.0))
    found = intervals_of(one, SETTINGS, Summed.mean(x), None, False, None)
    assert found.standard_error == pytest.approx(x.std(ddof=1) / 50**0.5)


@pytest.mark.parametrize(("steps_each", "said"), [(3, True), (30, False)])
def test_pairs_of_numbered_states_and_actions_that_were_not_logged(steps_each, said):
    """Few steps for each pair of 50 states and 2 actions: a fit has no value of the best action where it was not logged."""
    rng = np.random.default_rng(0)
    best, state = rng.integers(2, size=50), rng.integers(50, size=(steps_each * 50, 1))
    action = rng.integers(2, size=state.shape)
    data = ope.LoggedData.from_arrays(
        observation=state[..., None],
        action=action,
        reward=(action == best[state]).astype(float) + 0.1 * rng.normal(size=state.shape),
        log_prob=np.full(state.shape, np.log(0.5)),
        final_observation=np.zeros((len(state), 1), int),
    )
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.eye(2)[best[np.asarray(seen)[:, 0].astype(int)]])
    for name in ("fqe", "fqe-linear"):
        settings = ope.Settings(fqe=ope.FQEConfig(steps=200, hidden_sizes=(16,)), fqe_refits=2)
        notes = ope.estimate(ope.Log(data, 1.0), policy, settings, (name,))[name].warnings
        assert any("actions that were not logged at any observation as near as usual" in one for one in notes) == said


@pytest.mark.parametrize("aliased", [True, False])
def test_observations_that_are_no_states_are_said_of_weights_of_states(aliased):
    """The second reward is 1 if both actions are the same and −1 if not: J = 0.64, of which a constant observation sees −0.04."""
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=(1000, 2))
    seen = np.zeros((1000, 2, 1), int)
    if not aliased:
        seen[:, 1, 0] = 1 + action[:, 0]
    data = ope.LoggedData.from_arrays(
        observation=seen,
        action=action,
        reward=np.stack([rng.normal(size=1000), np.where(action[:, 0] == action[:, 1], 1.0, -1.0)], axis=1),
        log_prob=np.full((1000, 2), np.log(0.5)),
        final_observation=np.full((1000, 1), 0 if aliased else 3),
    )
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.tile([0.1, 0.9], (len(seen), 1)))
    settings = ope.Settings(resamples=20, dice=ope.DICEConfig(steps=200, hidden_sizes=(16,)))
    per_step = ope.Settings(resamples=20, marginal=ope.MarginalConfig(transitions="per-step"))
    for name, chosen in (("mis-tabular", settings), ("mis-tabular", per_step), ("dualdice", settings)):
        one = ope.estimate(ope.Log(data, 1.0), policy, chosen, (name,))[name]
        assert one.value == pytest.approx(-0.04 if aliased else 0.64, abs=4 * one.standard_error)
        assert any("observations may be no states" in note for note in one.warnings) == aliased
    silent = ope.estimate(ope.Log(data.replace(log_prob=None), 1.0), policy, settings, ("mis-tabular",))["mis-tabular"]
    assert not any("no states" in note for note in silent.warnings)
