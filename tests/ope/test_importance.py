"""Importance sampling: what changes nothing, what must not overflow, and mistakes that the known answers would catch."""

import functools
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evarl.ope.doubly_robust import ModelValues, doubly_robust, summed_doubly_robust
from evarl.ope.importance import Steps, per_decision, summed_per_decision, summed_trajectory_wise, trajectory_wise
from evarl.ope.resampling import GROUPS, Summed, bootstrap, resampled_counts


def of_arrays(function, self_normalised):
    """A form as a function of reward, log-ratio, mask, discount and shares."""
    return lambda *steps_and_share: function(
        Steps(*steps_and_share[:4]), *steps_and_share[4:], self_normalised=self_normalised
    )


TIS, WIS = (of_arrays(trajectory_wise, x) for x in (False, True))
PDIS, WPDIS = (of_arrays(per_decision, x) for x in (False, True))
ALL = {"TIS": TIS, "WIS": WIS, "PDIS": PDIS, "WPDIS": WPDIS}
N, T, DISCOUNT = 6, 5, 0.9
SEED = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


def logged(seed: int, count: int = N, steps: int = T, spread: float = 0.7) -> tuple[np.ndarray, ...]:
    """Reward, log-ratio, mask of trajectories of all lengths, and shares; the padding holds rubbish."""
    rng = np.random.default_rng(seed)
    mask = np.arange(steps) < rng.integers(1, steps + 1, count)[:, None]
    mask[0] = True
    reward, log_ratio = rng.normal(size=(count, steps)), spread * rng.normal(size=(count, steps))
    return (*(np.where(mask, x, 1e3) for x in (reward, log_ratio)), mask, rng.dirichlet(np.ones(count)))


# --- What changes nothing, or everything by a known amount


@pytest.mark.parametrize("name", ALL)
@given(SEED)
@few
def test_order_does_not_matter(name, seed):
    reward, log_ratio, mask, share = logged(seed)
    order = np.random.default_rng(seed).permutation(N)
    ours = ALL[name](reward, log_ratio, mask, DISCOUNT, share)
    theirs = ALL[name](reward[order], log_ratio[order], mask[order], DISCOUNT, share[order])
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(ours.contribution)[order], theirs.contribution, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
@given(SEED, st.sampled_from([np.nan, np.inf, -np.inf, 1e300]))
@few
def test_padding_does_not_matter(name, seed, rubbish):
    """More steps that are not there, trajectories without a share, and anything at all where the mask is off."""
    reward, log_ratio, mask, share = logged(seed)
    wider = [np.pad(np.where(mask, x, rubbish), ((0, 2), (0, 3)), constant_values=rubbish) for x in (reward, log_ratio)]
    mask_wider = np.pad(mask, ((0, 2), (0, 3)))
    mask_wider[-1, :2] = True
    wider[0][-1, :2] = wider[1][-1, :2] = 3.0
    ours = ALL[name](reward, log_ratio, mask, DISCOUNT, share)
    theirs = ALL[name](*wider, mask_wider, DISCOUNT, np.append(share, [0.0, 0.0]))
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.contribution, np.asarray(theirs.contribution)[:N], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-9, atol=1e-12)


@given(SEED, st.floats(-5.0, 5.0))
@few
def test_adding_to_all_rewards(seed, shift):
    """Self-normalised forms: by c Σ γ^t when lengths are equal. Otherwise by c times the estimate for reward 1."""
    reward, log_ratio, mask, share = logged(seed)
    everywhere = np.ones_like(mask)
    for estimator in (WIS, WPDIS):
        before, after = (estimator(r, log_ratio, mask, DISCOUNT, share).value for r in (reward, reward + shift))
        of_one = estimator(np.ones_like(reward), log_ratio, mask, DISCOUNT, share).value
        np.testing.assert_allclose(after - before, shift * float(of_one), atol=1e-9)
        clean = np.where(mask, log_ratio, 0.1)
        before, after = (estimator(r, clean, everywhere, DISCOUNT, share).value for r in (reward, reward + shift))
        np.testing.assert_allclose(after - before, shift * np.sum(DISCOUNT ** np.arange(T)), atol=1e-9)


@given(SEED, st.floats(-800.0, 800.0))
@few
def test_adding_to_all_log_ratios_of_a_step(seed, shift):
    """Per-step self-normalisation over those alive does not see it, even with various lengths and beyond all floats.

    Whole weights of trajectories of equal lengths do not see it either.
    """
    reward, log_ratio, mask, share = logged(seed)
    moved = log_ratio + shift * (np.arange(T) == 2)
    ours, theirs = (WPDIS(reward, x, mask, DISCOUNT, share) for x in (log_ratio, moved))
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.contribution, theirs.contribution, rtol=1e-8, atol=1e-8)
    everywhere = np.ones_like(mask)
    log_ratio, moved = (np.where(mask, x, 0.1 + shift * (np.arange(T) == 2)) for x in (log_ratio, moved))
    log_ratio = np.where(mask, log_ratio, 0.1)
    ours, theirs = (WIS(reward, x, everywhere, DISCOUNT, share) for x in (log_ratio, moved))
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours[3:], theirs[3:], rtol=1e-8, atol=1e-12)


# --- Shares, maps, bootstrap, standard errors


@pytest.mark.parametrize("name", ALL)
def test_a_share_of_some_is_the_estimate_from_those(name):
    reward, log_ratio, mask, _ = logged(1)
    some = np.array([0, 2, 5])
    share = np.zeros(N)
    share[some] = 1 / 3
    ours = ALL[name](reward, log_ratio, mask, DISCOUNT, share)
    theirs = ALL[name](reward[some], log_ratio[some], mask[some], DISCOUNT)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(ours[2:], theirs[2:], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_contributions_are_derivatives(name):
    """Moving a little share ε to trajectory i changes the value by ε (x_i − value)."""
    reward, log_ratio, mask, share = logged(3)
    estimate = ALL[name](reward, log_ratio, mask, DISCOUNT, share)
    value, x = float(estimate.value), np.asarray(estimate.contribution)
    assert share @ x == pytest.approx(value, abs=1e-12)
    for i in range(N):
        moved = [
            ALL[name](reward, log_ratio, mask, DISCOUNT, share + e * (np.eye(N)[i] - share)) for e in (1e-5, -1e-5)
        ]
        assert float(moved[0].value - moved[1].value) / 2e-5 == pytest.approx(x[i] - value, rel=1e-6, abs=1e-7)


def test_resampled_values_are_estimates_from_what_was_drawn():
    reward, log_ratio, mask, _ = logged(4)
    share = np.full(N, 1 / N)
    q, v = np.random.default_rng(4).normal(size=(2, N, T))
    drawn = np.array([[0, 0, 3, 3, 3, 1], [5, 4, 3, 2, 1, 0], [2, 2, 2, 2, 2, 2]])
    shares = np.stack([np.bincount(row, minlength=N) / N for row in drawn])
    for normalised in (False, True):
        option = {"self_normalised": normalised}
        steps = Steps(reward, log_ratio, mask, DISCOUNT)
        values = [
            summed_trajectory_wise(steps, **option).at(shares),
            summed_per_decision(steps, **option).at(shares),
            summed_doubly_robust(steps, ModelValues(q, v), **option).at(shares),
        ]
        for b, row in enumerate(drawn):
            again = Steps(reward[row], log_ratio[row], mask[row], DISCOUNT)
            expected = [
                trajectory_wise(again, share, **option).value,
                per_decision(again, share, **option).value,
                doubly_robust(again, ModelValues(q[row], v[row]), share, **option).value,
            ]
            np.testing.assert_allclose([x[b] for x in values], expected, rtol=1e-9)


def test_bootstrap_samples():
    """Counts are multinomial: mean 1, variance 1 − 1/N; those without a share are never drawn."""
    counts = np.concatenate(list(resampled_counts(np.random.default_rng(1), N, 4000)))
    assert (counts.sum(axis=1) == N).all()
    np.testing.assert_allclose(counts.mean(axis=0), 1.0, atol=0.08)
    np.testing.assert_allclose(counts.var(axis=0), 1 - 1 / N, atol=0.1)
    share = np.array([0.0, 0.25, 0.25, 0.0, 0.5, 0.0])
    values = bootstrap(Summed.mean(np.eye(N) @ np.arange(6.0)), 2000, np.random.default_rng(0), share)
    drawn = np.array(list(itertools.product([1, 2, 4], repeat=3)))
    exact = {round(float(share[row] @ row / share[row].sum()), 9) for row in drawn}
    assert set(np.round(values, 9)) == exact


def test_blocks_and_groups_change_nothing_but_the_draw(monkeypatch):
    x = np.random.default_rng(0).gamma(2.0, size=3 * GROUPS + 1)
    found = bootstrap(Summed.mean(x), 2000, np.random.default_rng(1))
    assert found.mean() == pytest.approx(x.mean(), abs=4 * x.std() / (2000 * len(x)) ** 0.5)
    assert found.std() == pytest.approx(x.std() / len(x) ** 0.5, rel=0.06)  # 4 standard errors of 2 000 draws
    monkeypatch.setattr("evarl.ope.resampling.BLOCK", 8 * GROUPS * 50)
    np.testing.assert_allclose(bootstrap(Summed.mean(x), 2000, np.random.default_rng(1)), found, rtol=1e-12)


def test_standard_errors_are_right():
    """For every form, the spread of estimates over repetitions is what one repetition says it is."""
    rng = np.random.default_rng(5)
    repetitions, count, steps = 1000, 200, 3
    action = rng.integers(0, 2, (repetitions, count, steps))
    mask = np.cumsum(np.roll(action, 1, axis=2) * (np.arange(steps) > 0), axis=2) == 0  # action 1 ends it
    reward, log_ratio = action + rng.normal(size=action.shape), np.log(np.array([1.2, 0.8]))[action]
    for estimator in ALL.values():
        value, error = np.array(
            [estimator(*one, DISCOUNT)[:3:2] for one in zip(reward, log_ratio, mask, strict=True)]
        ).T
        assert np.mean(np.square(error)) ** 0.5 == pytest.approx(float(np.std(value)), rel=0.1)


def test_one_trajectory_has_no_standard_error():
    reward, log_ratio, mask, _ = logged(6)
    for estimator in ALL.values():
        assert estimator(reward, log_ratio, mask, DISCOUNT, np.eye(N)[0]).standard_error == np.inf


def test_concentration():
    log_ratio = np.log(np.array([[1.0, 1.0], [1.0, 3.0], [2.0, 7.0]]))
    mask = np.array([[True, True], [True, True], [True, False]])
    whole = TIS(np.ones((3, 2)), log_ratio, mask, 1.0)  # weights 1, 3, 2
    assert float(whole.effective_sample_size) == pytest.approx(36 / 14)
    assert float(whole.largest_weight_share) == pytest.approx(0.5)


# --- Numbers at the limits


@pytest.mark.parametrize("name", ALL)
def test_impossible_actions(name):
    """Log-ratio −∞: the trajectory is as if it had not earned anything from there on."""
    reward, log_ratio, mask, share = logged(7)
    log_ratio[0, 1:] = log_ratio[2, 0] = -np.inf
    nearly = np.maximum(log_ratio, -600.0)
    ours, theirs = (ALL[name](reward, x, mask, DISCOUNT, share) for x in (log_ratio, nearly))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), ours, theirs)
    never = ALL[name](reward, np.full_like(log_ratio, -np.inf), mask, DISCOUNT, share)
    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in never])).all()
    assert never.value == never.effective_sample_size == never.largest_weight_share == 0.0


def reference(reward, log_ratio, mask, discount) -> dict[str, float]:
    """The four forms in float64, as plainly as possible; weights in units of the largest at each step."""
    reward, log_ratio = (np.where(mask, x, 0).astype(np.float64) for x in (reward, log_ratio))
    powers, log_weight = discount ** np.arange(reward.shape[1]), np.cumsum(log_ratio, axis=1)
    whole = np.exp(log_weight[:, -1] - log_weight[:, -1].max())
    living = np.where(mask, log_weight, -np.inf)
    weight = np.exp(living - living.max(axis=0))
    before = np.concatenate([np.ones_like(weight[:, :1]), weight[:, :-1]], axis=1)
    alive = np.cumprod((before * mask).sum(axis=0) / before.sum(axis=0))
    return {
        "TIS": np.mean(np.exp(log_weight[:, -1]) * (reward @ powers)),
        "WIS": whole @ (reward @ powers) / whole.sum(),
        "PDIS": np.mean((np.exp(log_weight) * reward) @ powers),
        "WPDIS": np.sum(powers * alive * (weight * reward).sum(axis=0) / weight.sum(axis=0)),
    }


@pytest.mark.parametrize("same_length", [True, False])
@pytest.mark.parametrize("target", [(0.3, 0.28, 0.22, 0.2), (0.97, 0.01, 0.01, 0.01)])
def test_a_thousand_steps(target, same_length):
    """Four uniform actions: 4^−1000 is no float64, and log-weights here go down to −2000."""
    rng = np.random.default_rng(9)
    action = rng.integers(0, 4, (200, 1000))
    reward = action + rng.normal(size=action.shape)
    log_ratio = np.log(np.array(target) / 0.25)[action]
    mask = np.arange(1000) < np.where(same_length | (np.arange(200) == 0), 1000, rng.integers(1, 1001, 200))[:, None]
    wanted = reference(reward, log_ratio, mask, 0.99)
    for name, estimator in ALL.items():
        estimate = estimator(reward, log_ratio, mask, 0.99)
        np.testing.assert_allclose(estimate.value, wanted[name], rtol=1e-11, atol=1e-300, err_msg=name)
        assert all(np.isfinite(leaf).all() for leaf in estimate)


def test_a_thousand_steps_on_policy_are_the_mean_of_the_returns():
    reward = np.random.default_rng(10).normal(size=(200, 1000))
    log_prob, mask = np.full(reward.shape, np.log(0.25)), np.ones(reward.shape, bool)
    assert np.prod(np.exp(log_prob.astype(np.float64)), axis=1).max() == 0.0  # what products of probabilities give
    mean = (reward.astype(np.float64) @ 0.99 ** np.arange(1000)).mean()
    for estimator in ALL.values():
        assert float(estimator(reward, log_prob - log_prob, mask, 0.99).value) == pytest.approx(mean, rel=1e-12)


def test_terms_that_cancel_leave_nothing():
    """ρ = 2, 3 or 7 in the first half and its inverse in the second: w = 1, though on the way it was e^970."""
    for ratio in (2.0, 3.0, 7.0):
        log_ratio = np.where(np.arange(1000) < 500, np.log(ratio), -np.log(ratio))[None].repeat(2, 0)
        reward = (np.arange(1000) == 999.0)[None].astype(float).repeat(2, 0)
        for estimator in ALL.values():
            found = estimator(reward, log_ratio, np.ones((2, 1000), bool), 1.0)
            assert float(found.value) == pytest.approx(1.0, rel=1e-9)


def test_a_state_whose_weights_are_all_small():
    """The unit of weight is that of the trajectories that are asked for: elsewhere it may be e^900 larger."""
    reward = np.array([[1.0, 1.0], [3.0, 3.0], [9.0, 9.0]])
    log_ratio = np.array([[-400.0, -500.0], [-400.0, -500.0], [0.0, 0.0]])
    share, mask = np.array([0.5, 0.5, 0.0]), np.ones((3, 2), bool)
    for estimator in (WIS, WPDIS):
        estimate = estimator(reward, log_ratio, mask, 1.0, share)
        assert float(estimate.value) == pytest.approx(4.0)
        assert float(estimate.effective_sample_size) == pytest.approx(2.0)


def test_large_rewards_leave_the_standard_errors_alone():
    """Rewards of 1e7 and noise, on-policy: all forms have the standard error of the mean return, and γ^t is exact."""
    rng = np.random.default_rng(12)
    noise = rng.normal(size=(300, 1000))
    mask = np.ones(noise.shape, bool)
    returns = noise @ 0.99 ** np.arange(1000)
    for estimator in ALL.values():
        found = estimator(1e7 + noise, np.zeros_like(noise), mask, 0.99)
        assert found.standard_error == pytest.approx(returns.std(ddof=1) / 300**0.5, rel=1e-5)
        assert found.value == pytest.approx(1e7 * (1 - 0.99**1000) / 0.01 + returns.mean(), rel=1e-13)


# --- Mistakes that others shipped. Each is written down, and differs from the known answer of the two-state chain.

TARGET, BEHAVIOUR, EXACT = np.array([0.7, 0.3]), np.array([0.5, 0.5]), 0.6102  # stay, switch; three steps from s0
ACTIONS = np.array(list(itertools.product((0, 1), repeat=3)))
REWARD = np.cumsum(np.pad(ACTIONS, ((0, 0), (1, 0)))[:, :-1], axis=1) % 2 * 1.0  # 1 in s1, where an odd number leads
POWERS = 0.9 ** np.arange(3)


def test_the_chain_itself():
    log_ratio = np.log(TARGET / BEHAVIOUR)[ACTIONS]
    for estimator in ALL.values():
        assert float(estimator(REWARD, log_ratio, np.ones((8, 3), bool), 0.9).value) == pytest.approx(EXACT, abs=1e-10)


def test_mistake_per_decision_without_a_cumulative_product():
    mutant = np.mean((TARGET / BEHAVIOUR)[ACTIONS] * REWARD @ POWERS)
    assert abs(mutant - EXACT) > 0.1


def test_mistake_log_probability_as_probability():
    mutant = np.mean(np.cumprod((np.log(TARGET) / np.log(BEHAVIOUR))[ACTIONS], axis=1) * REWARD @ POWERS)
    assert abs(mutant - EXACT) > 0.1


def test_mistake_ratio_of_a_resampled_action():
    """Its expectation over the action drawn anew is 1, so the estimate is of the behaviour policy."""
    pairs = list(itertools.product(range(8), repeat=2))
    logged_row, drawn_row = (np.array(x) for x in zip(*pairs, strict=True))
    log_ratio = np.log(TARGET / BEHAVIOUR)[ACTIONS[drawn_row]]
    mutant = TIS(REWARD[logged_row], log_ratio, np.ones((64, 3), bool), 0.9).value
    assert float(mutant) == pytest.approx(np.mean(REWARD @ POWERS))
    assert abs(float(mutant) - EXACT) > 0.1


def test_mistake_clip_by_default():
    """The largest ratio here is 1.4; a customary clip of 1 would be biased, and none is the default."""
    log_ratio = np.log(TARGET / BEHAVIOUR)[ACTIONS]
    mutant = PDIS(REWARD, np.minimum(log_ratio, 0.0), np.ones((8, 3), bool), 0.9).value
    assert abs(float(mutant) - EXACT) > 0.1
