"""Off-policy estimators against exact answers, in float64.

The share of a trajectory can be its probability under the behaviour policy. Then `value` is an expectation over all
trajectories, without sampling, and the spread of the contributions is the exact n·Var. For self-normalised forms the value
is what the estimate tends to, and the spread of the influences is the limit of n·MSE.
"""

import itertools
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evarl.errors import InputError
from evarl.ope.doubly_robust import ModelValues, doubly_robust, least_quadratic, magic, residuals
from evarl.ope.importance import Steps, per_decision, trajectory_wise
from tests.known_answers.ope_cases import grid_tables


def of_arrays(function, self_normalised):
    """A form as a function of reward, log-ratio, mask, discount and shares."""
    return lambda *steps_and_share: function(
        Steps(*steps_and_share[:4]), *steps_and_share[4:], self_normalised=self_normalised
    )


def with_model(self_normalised):
    """A doubly robust form as a function of reward, log-ratio, mask, q, v, discount, shares and last values."""

    def call(reward, log_ratio, mask, q, v, discount, share=None, last_value=None):
        steps = Steps(reward, log_ratio, mask, discount)
        return doubly_robust(steps, ModelValues(q, v, last_value), share, self_normalised=self_normalised)

    return call


TIS, WIS = (of_arrays(trajectory_wise, x) for x in (False, True))
PDIS, WPDIS = (of_arrays(per_decision, x) for x in (False, True))
ALL = {"TIS": TIS, "WIS": WIS, "PDIS": PDIS, "WPDIS": WPDIS}
DR, WDR = (with_model(x) for x in (False, True))


class Log(NamedTuple):
    """Trajectories, each with its probability."""

    reward: np.ndarray
    log_ratio: np.ndarray
    mask: np.ndarray
    probability: np.ndarray
    state: np.ndarray
    """[N, T + 1], the last one being where it ended."""
    action: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.reward, self.log_ratio, self.mask


class World(NamedTuple):
    """P(s'|s, a), r(s, a, s'), which states end it, and two policies."""

    transition: np.ndarray
    reward: np.ndarray
    end: np.ndarray
    target: np.ndarray
    behaviour: np.ndarray

    def all(self, start: int, horizon: int) -> Log:
        """Every trajectory from `start` that the behaviour policy can make."""
        done, states, actions = [], len(self.transition), self.transition.shape[1]
        open_ = [(1.0, [start], [], [])]
        while open_:
            probability, visited, chosen, earned = open_.pop()
            s = visited[-1]
            if len(chosen) == horizon or self.end[s]:
                done.append((probability, visited, chosen, earned))
                continue
            for a, s1 in itertools.product(range(actions), range(states)):
                p = self.behaviour[s, a] * self.transition[s, a, s1]
                if p > 0:
                    open_.append((probability * p, [*visited, s1], [*chosen, a], [*earned, self.reward[s, a, s1]]))
        return self._log(done, horizon)

    def sample(self, start: int, horizon: int, count: int, seed: int) -> Log:
        """Independent trajectories of the behaviour policy."""
        rng = np.random.default_rng(seed)
        state = np.full((count, horizon + 1), start)
        action, reward, mask = np.zeros((count, horizon), int), np.zeros((count, horizon)), np.zeros((count, horizon))
        for t in range(horizon):
            s = state[:, t]
            mask[:, t] = ~self.end[s]
            a = action[:, t] = _choose(rng, self.behaviour[s])
            state[:, t + 1] = np.where(self.end[s], s, _choose(rng, self.transition[s, a]))
            reward[:, t] = self.reward[s, a, state[:, t + 1]]
        with np.errstate(divide="ignore"):
            ratio = np.log(self.target) - np.log(self.behaviour)
        log_ratio = ratio[state[:, :-1], action]
        return Log(reward, log_ratio, mask.astype(bool), np.full(count, 1 / count), state, action)

    def _log(self, done: list, horizon: int) -> Log:
        count = len(done)
        reward, log_ratio = np.zeros((2, count, horizon))
        mask, action = np.zeros((count, horizon), bool), np.zeros((count, horizon), int)
        state = np.zeros((count, horizon + 1), int)
        for i, (_, visited, chosen, earned) in enumerate(done):
            steps = len(chosen)
            state[i], state[i, :steps] = visited[-1], visited[:-1]
            reward[i, :steps], action[i, :steps], mask[i, :steps] = earned, chosen, True
            log_ratio[i, :steps] = np.log(self.target[visited[:-1], chosen] / self.behaviour[visited[:-1], chosen])
        return Log(reward, log_ratio, mask, np.array([p for p, *_ in done]), state, action)

    def values(self, policy: np.ndarray, horizon: int, discount: float) -> tuple[np.ndarray, np.ndarray]:
        """Exact V [T + 1, S] and Q [T, S, A] of a finite horizon, by backward induction."""
        v, q = np.zeros((horizon + 1, len(self.end))), np.zeros((horizon, *policy.shape))
        for t in reversed(range(horizon)):
            q[t] = np.einsum("saz,saz->sa", self.transition, self.reward + discount * v[t + 1][None, None])
            q[t][self.end] = 0.0
            v[t] = np.sum(policy * q[t], axis=1)
        return v, q


def _choose(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    drawn = rng.random((len(probability), 1))
    return np.minimum((probability.cumsum(axis=1) < drawn).sum(axis=1), probability.shape[1] - 1)


def spread(estimate, log: Log, around: float) -> float:
    """n·E[(x − J)²]."""
    return float(log.probability @ (np.asarray(estimate.contribution) - around) ** 2)


def model(log: Log, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q̂ of the logged actions and V̂, from tables that may depend on time."""
    steps = np.arange(log.action.shape[1])[None]
    return q[steps, log.state[:, :-1], log.action], v[steps, log.state[:, :-1]]


# --- ModelFail


def model_fail(*, same_policy_twice: bool) -> World:
    """Left, up, down, end."""
    transition, reward = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    transition[0, 0, 1] = transition[0, 1, 2] = 1.0
    transition[1:, :, 3] = 1.0
    reward[1, :, 3], reward[2, :, 3] = 1.0, -1.0
    behaviour, target = np.tile([0.88, 0.12], (4, 1)), np.tile([0.12, 0.88], (4, 1))
    if not same_policy_twice:
        behaviour[1:], target[1:] = 0.5, 0.5
    return World(transition, reward, np.arange(4) == 3, target, behaviour)


@pytest.mark.parametrize(("twice", "variance"), [(True, 41.279379), (False, 5.892097)])
def test_model_fail(twice, variance):
    world = model_fail(same_policy_twice=twice)
    assert world.values(world.target, 2, 1.0)[0][0, 0] == pytest.approx(-0.76, abs=1e-12)
    log = world.all(0, 2)
    for name, estimator in ALL.items():
        estimate = estimator(*log.arrays, 1.0, log.probability)
        assert estimate.value == pytest.approx(-0.76, abs=1e-10), name
        if name in ("TIS", "PDIS"):
            assert spread(estimate, log, -0.76) == pytest.approx(variance, abs=5e-7), name
    sampled = world.sample(0, 2, 20_000, seed=1)
    for estimator in (TIS, PDIS):
        assert abs(estimator(*sampled.arrays, 1.0).value + 0.76) < 4 * (variance / 20_000) ** 0.5


def test_model_fail_self_normalised_doubly_robust():
    """A model that cannot tell up from down says 0: WDR's n·MSE is that of self-normalised importance sampling."""
    world = model_fail(same_policy_twice=False)
    log = world.all(0, 2)
    zeros = np.zeros_like(log.reward)
    estimate = WDR(*log.arrays, zeros, zeros, 1.0, log.probability)
    assert estimate.value == pytest.approx(-0.76, abs=1e-10)
    assert spread(estimate, log, -0.76) == pytest.approx(0.4224, abs=5e-5)
    errors = []
    for seed in range(400):
        sampled = world.sample(0, 2, 500, seed)
        zeros = np.zeros_like(sampled.reward)
        errors.append(float(WDR(*sampled.arrays, zeros, zeros, 1.0).value) + 0.76)
    assert 500 * np.mean(np.square(errors)) == pytest.approx(0.4224, rel=0.25)  # 3.5 standard errors of a mean of 400


# --- ModelWin


def model_win() -> World:
    transition, reward = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    transition[0] = [[0, 0.4, 0.6], [0, 0.6, 0.4]]
    transition[1:, :, 0] = 1.0
    reward[0, :, 1], reward[0, :, 2] = 1.0, -1.0
    behaviour, target = np.full((3, 2), 0.5), np.full((3, 2), 0.5)
    behaviour[0], target[0] = [0.73, 0.27], [0.27, 0.73]
    return World(transition, reward, np.zeros(3, bool), target, behaviour)


def test_model_win():
    world = model_win()
    assert world.values(world.target, 20, 1.0)[0][0, 0] == pytest.approx(0.92, abs=1e-12)
    # 4^10 courses of ten visits to s1: all continuations of length 7 for each course of the first 3
    one = [(a, r) for a in (0, 1) for r in (1.0, -1.0)]
    chance = np.array([0.73 * 0.4, 0.73 * 0.6, 0.27 * 0.6, 0.27 * 0.4])
    ratio = np.log(np.array([0.27, 0.73]) / np.array([0.73, 0.27]))[[a for a, _ in one]]
    earned = np.array([r for _, r in one])
    rest = np.stack(np.meshgrid(*[np.arange(4)] * 7, indexing="ij"), axis=-1).reshape(-1, 7)
    moments = np.zeros((2, 2))
    on_policy = np.zeros(2)
    for begin in itertools.product(range(4), repeat=3):
        course = np.concatenate([np.tile(begin, (len(rest), 1)), rest], axis=1)
        probability = chance[course].prod(axis=1)
        reward, log_ratio = np.zeros((2, len(rest), 20))
        reward[:, ::2], log_ratio[:, ::2] = earned[course], ratio[course]
        mask = np.ones(reward.shape, bool)
        for k, estimator in enumerate((TIS, PDIS)):
            x = np.asarray(estimator(reward, log_ratio, mask, 1.0).contribution)
            moments[k] += probability @ x, probability @ x**2
        weight = np.exp(log_ratio.sum(axis=1))
        on_policy += (probability * weight) @ reward.sum(axis=1), (probability * weight) @ reward.sum(axis=1) ** 2
    np.testing.assert_allclose(moments[:, 0], 0.92, atol=1e-10)
    variance = moments[:, 1] - 0.92**2
    assert variance[0] == pytest.approx(19014.8, abs=0.05)
    assert variance[1] == pytest.approx(2922.81, abs=0.005)
    assert on_policy[1] - on_policy[0] ** 2 == pytest.approx(9.9154, abs=5e-5)
    sampled = world.sample(0, 20, len(rest), seed=2)
    for estimator, nvar in ((TIS, 19014.8), (PDIS, 2922.81)):
        assert abs(estimator(*sampled.arrays, 1.0).value - 0.92) < 4 * (nvar / len(rest)) ** 0.5


# --- The two-state chain

CHAIN_Q = np.array([[0.3, -0.7], [1.1, 0.4]])


def chain() -> World:
    transition, reward = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    transition[[0, 1], 0, [0, 1]] = transition[[0, 1], 1, [1, 0]] = 1.0
    reward[1] = 1.0
    return World(transition, reward, np.zeros(2, bool), np.tile([0.7, 0.3], (2, 1)), np.full((2, 2), 0.5))


@pytest.mark.parametrize(("start", "value"), [(0, 0.6102), (1, 2.0998)])
def test_chain_of_three_steps(start, value):
    world = chain()
    log = world.all(start, 3)
    assert len(log.reward) == 8
    q, v = model(log, np.tile(CHAIN_Q, (3, 1, 1)), np.tile((world.target * CHAIN_Q).sum(axis=1), (4, 1)))
    estimates = {name: estimator(*log.arrays, 0.9, log.probability) for name, estimator in ALL.items()}
    estimates["DR"] = DR(*log.arrays, q, v, 0.9, log.probability)
    estimates["WDR"] = WDR(*log.arrays, q, v, 0.9, log.probability)
    for name, estimate in estimates.items():
        assert estimate.value == pytest.approx(value, abs=1e-10), name
    if start == 0:
        variances = [spread(estimates[name], log, value) for name in ("TIS", "PDIS", "DR")]
        np.testing.assert_allclose(variances, [0.39069384, 0.32248277, 1.00445145], atol=5e-9)


def test_chain_of_five_steps():
    world = chain()
    np.testing.assert_allclose(world.values(world.target, 5, 0.9)[0][0], [1.27102392, 2.82407608], atol=5e-9)
    for start, value in ((0, 1.27102392), (1, 2.82407608)):
        log = world.all(start, 5)
        for estimator in ALL.values():
            assert estimator(*log.arrays, 0.9, log.probability).value == pytest.approx(value, abs=5e-9)


def test_chain_without_end_is_cut_and_goes_on_with_the_models_value():
    """Exact Q of the infinite horizon, dynamics without chance: DR of a log of three steps is exact for every trajectory."""
    world = chain()
    q_table, v_table = np.array([[3.796875, 5.203125], [6.203125, 4.796875]]), np.array([4.21875, 5.78125])
    np.testing.assert_allclose((world.target * q_table).sum(axis=1), v_table, atol=1e-12)
    np.testing.assert_allclose([[0.9 * v_table[0], 0.9 * v_table[1]], 1 + 0.9 * v_table[::-1]], q_table, atol=1e-12)
    for start in (0, 1):
        log = world.all(start, 3)
        q, v = model(log, np.tile(q_table, (3, 1, 1)), np.tile(v_table, (4, 1)))
        for estimator in (DR, WDR):
            estimate = estimator(*log.arrays, q, v, 0.9, last_value=v_table[log.state[:, -1]])
            np.testing.assert_allclose(estimate.contribution, v_table[start], atol=1e-12)
            ended = estimator(*log.arrays, q, v, 0.9, log.probability)
            assert ended.value == pytest.approx(
                [0.6102, 2.0998][start], abs=1e-10
            )  # by default the value ends with the log


# --- The grid, whose trajectories have all lengths


def grid(behaviour: np.ndarray) -> World:
    return World(*grid_tables(), np.arange(16) == 15, np.full((16, 4), 0.25), np.tile(behaviour, (16, 1)))


def test_grid():
    world = grid(np.array([0.23, 0.26, 0.24, 0.27]))
    v, q = world.values(world.target, 100, 1.0)
    assert v[0, 0] == pytest.approx(-72.4127, abs=5e-5)
    log = world.sample(0, 100, 4000, seed=3)
    assert not log.mask.all()
    for estimator in ALL.values():
        estimate = estimator(*log.arrays, 1.0)
        assert abs(estimate.value - v[0, 0]) < 4 * estimate.standard_error
    for estimator in (DR, WDR):
        exact = estimator(*log.arrays, *model(log, q, v), 1.0)
        np.testing.assert_allclose(exact.contribution, v[0, 0], rtol=1e-9)
        assert exact.standard_error < 1e-9
        rough = estimator(*log.arrays, *model(log, 0.9 * q, 0.9 * v), 1.0)
        assert abs(rough.value - v[0, 0]) < 4 * rough.standard_error < 4 * WPDIS(*log.arrays, 1.0).standard_error


def test_grid_on_policy():
    world = grid(np.full(4, 0.25))
    log = world.sample(0, 100, 4000, seed=4)
    mean = TIS(*log.arrays, 1.0)
    assert mean.value == pytest.approx(log.reward[log.mask].sum() / 4000, rel=1e-12)
    assert abs(mean.value + 72.4127) < 4 * mean.standard_error


# --- Gaussian actions


def test_gaussian_actions():
    """By Gauss–Hermite quadrature: r = a, J = m_e Σ γ^t, E[w²] = exp((m_e − m_b)²/σ²) for each step."""
    behaviour_mean, target_mean, deviation, discount, horizon = 0.3, -0.2, 0.8, 0.9, 2
    node, weight = np.polynomial.hermite_e.hermegauss(40)
    action = behaviour_mean + deviation * np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1).reshape(-1, 2)
    probability = np.outer(weight, weight).reshape(-1) / (2 * np.pi)
    log_ratio = ((action - behaviour_mean) ** 2 - (action - target_mean) ** 2) / (2 * deviation**2)
    mask = np.ones(action.shape, bool)
    value = target_mean * (1 + discount)
    for estimator in ALL.values():
        assert estimator(action, log_ratio, mask, discount, probability).value == pytest.approx(value, abs=1e-10)
    square = np.exp((target_mean - behaviour_mean) ** 2 / deviation**2)
    for t in range(horizon):
        reward = np.zeros_like(action)
        reward[:, t] = 1.0
        x = np.asarray(PDIS(reward, log_ratio, mask, 1.0).contribution)
        assert probability @ x**2 == pytest.approx(square ** (t + 1), rel=1e-10)


# --- Identities


def random_world(seed: int, *, deterministic: bool = False) -> World:
    """Four states, of which the last ends it: trajectories of all lengths, under policies that differ in how long they live."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(4), (4, 3))
    if deterministic:
        transition = np.eye(4)[rng.integers(0, 4, (4, 3))]
    target, behaviour = rng.dirichlet(np.ones(3), (2, 4))
    return World(transition, rng.normal(size=(4, 3, 4)), np.arange(4) == 3, target, 0.3 / 3 + 0.7 * behaviour)


@pytest.mark.parametrize("seed", range(3))
def test_expectations_with_various_lengths(seed):
    world = random_world(seed)
    log = world.all(0, 4)
    rng = np.random.default_rng(seed)
    q_table = rng.normal(size=(4, 4, 3))
    v_table = (world.target * q_table).sum(axis=2)
    exact = world.values(world.target, 4, 0.8)[0][0, 0]
    q, v = model(log, q_table, v_table)
    for estimator in ALL.values():
        assert estimator(*log.arrays, 0.8, log.probability).value == pytest.approx(exact, abs=1e-10)
    for estimator in (DR, WDR):
        # a model says 0 of the state that ends it, and nothing is logged there
        assert estimator(*log.arrays, q, v, 0.8, log.probability).value == pytest.approx(exact, abs=1e-10)


def test_the_logged_share_alive_would_be_inconsistent():
    """The mutant: R_t times how many logged trajectories are alive. The target policy's live longer or shorter."""
    world = random_world(0)
    log = world.all(0, 4)
    exact = world.values(world.target, 4, 0.8)[0][0, 0]
    weight = np.exp(np.cumsum(log.log_ratio, axis=1)) * log.mask
    p = log.probability
    mutant = np.sum(0.8 ** np.arange(4) * (p @ log.mask) * (p @ (weight * log.reward)) / (p @ weight))
    assert abs(mutant - exact) > 1e-2
    assert WPDIS(*log.arrays, 0.8, p).value == pytest.approx(exact, abs=1e-10)


def test_on_policy_every_form_is_the_monte_carlo_mean():
    world = random_world(5)
    log = world._replace(behaviour=world.target).sample(0, 6, 40, seed=6)
    assert len(set(log.mask.sum(axis=1))) == 6
    returns = (log.reward * log.mask) @ 0.9 ** np.arange(6)
    for estimator in ALL.values():
        estimate = estimator(log.reward, np.zeros_like(log.reward), log.mask, 0.9)
        assert estimate.value == pytest.approx(returns.mean(), abs=1e-12)
        np.testing.assert_allclose(estimate.contribution, returns, atol=1e-12)
        assert estimate.standard_error == pytest.approx(returns.std(ddof=1) / 40**0.5, rel=1e-10)
        assert estimate.effective_sample_size == pytest.approx(40)
        assert estimate.largest_weight_share == pytest.approx(1 / 40)


def test_doubly_robust_without_a_model_is_per_decision():
    log = random_world(7).sample(0, 6, 40, seed=8)
    zeros = np.zeros_like(log.reward)
    for left, right in ((DR, PDIS), (WDR, WPDIS)):
        ours, theirs = left(*log.arrays, zeros, zeros, 0.9), right(*log.arrays, 0.9)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12), ours, theirs)


def test_one_step():
    log = random_world(9).sample(0, 1, 40, seed=10)
    for left, right in ((TIS, PDIS), (WIS, WPDIS)):
        ours, theirs = left(*log.arrays, 0.9), right(*log.arrays, 0.9)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12), ours, theirs)


def test_constant_reward():
    """With equal lengths both self-normalised forms are exact, and have no variance; with others WPDIS is c Σ γ^t S_t."""
    log = chain().sample(0, 6, 40, seed=11)
    constant = np.full_like(log.reward, 2.5)
    exact = 2.5 * np.sum(0.9 ** np.arange(6))
    for estimator in (WIS, WPDIS):
        estimate = estimator(constant, log.log_ratio, log.mask, 0.9)
        assert estimate.value == pytest.approx(exact, abs=1e-12)
        np.testing.assert_allclose(estimate.contribution, exact, atol=1e-11)


@pytest.mark.parametrize("cut", [False, True])
def test_forward_sum_is_backward_recursion(cut):
    log = random_world(12).sample(0, 6, 40, seed=13)
    rng = np.random.default_rng(14)
    q, v = rng.normal(size=(2, *log.reward.shape))
    last = rng.normal(size=40) if cut else np.zeros(40)
    following = last
    for t in reversed(range(6)):
        ratio = np.exp(log.log_ratio[:, t])
        value = v[:, t] + ratio * (log.reward[:, t] + 0.9 * following - q[:, t])
        following = np.where(log.mask[:, t], value, following)
    ours = DR(*log.arrays, q, v, 0.9, last_value=last if cut else None)
    np.testing.assert_allclose(ours.contribution, following, rtol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_exact_model_of_deterministic_dynamics_leaves_no_variance(seed):
    world = random_world(seed, deterministic=True)
    v, q = world.values(world.target, 6, 0.9)
    log = world.sample(0, 6, 40, seed)
    for estimator in (DR, WDR):
        estimate = estimator(*log.arrays, *model(log, q, v), 0.9)
        np.testing.assert_allclose(estimate.contribution, v[0, 0], atol=1e-11)


# --- MAGIC


def test_blend_of_an_exact_model_is_exact():
    world = random_world(0, deterministic=True)
    v, q = world.values(world.target, 6, 0.9)
    log = world.sample(0, 6, 40, seed=0)
    blend = magic(np.random.default_rng(0), Steps(*log.arrays, 0.9), ModelValues(*model(log, q, v)))
    np.testing.assert_allclose(blend.candidates, v[0, 0], atol=1e-11)
    np.testing.assert_allclose(blend.estimate.contribution, v[0, 0], atol=1e-11)
    assert blend.lengths == tuple(range(7))


def test_blend_goes_from_the_model_to_the_data():
    """A good model is believed, a bad one is not; what is blended are the partial sums of WDR."""
    world = random_world(1)
    v, q = world.values(world.target, 6, 0.9)
    log, key = world.sample(0, 6, 40, seed=1), np.random.default_rng(1)
    steps, shifted = Steps(*log.arrays, 0.9), ModelValues(*model(log, q + 50.0, v + 50.0))
    good = magic(key, steps, ModelValues(*model(log, q, v)))
    wdr = WDR(*log.arrays, *model(log, q, v), 0.9)
    assert good.weights[0] > 0.9
    assert good.estimate.value == pytest.approx(v[0, 0], abs=1e-6)
    assert good.estimate.standard_error < wdr.standard_error / 100
    assert good.candidates[-1] == pytest.approx(float(wdr.value), abs=1e-12)
    assert good.covariance[-1, -1] ** 0.5 == pytest.approx(float(wdr.standard_error), rel=1e-9)

    bad = magic(key, steps, shifted)
    assert bad.candidates[0] == pytest.approx(v[0, 0] + 50.0)
    assert bad.bias[0] > 10.0
    assert bad.weights[0] < 0.05
    assert bad.bias[-1] == 0.0
    assert abs(bad.estimate.value - v[0, 0]) < 4.0
    for blend in (good, bad):
        assert blend.weights.min() >= 0.0
        assert blend.weights.sum() == pytest.approx(1.0)
        assert blend.estimate.value == pytest.approx(blend.weights @ blend.candidates, rel=1e-9)
        assert blend.estimate.standard_error**2 == pytest.approx(
            blend.weights @ blend.covariance @ blend.weights, rel=1e-6, abs=1e-20
        )
    # j steps of correction, by hand: what is left of the log after j steps is the model's
    weight = np.exp(np.cumsum(log.log_ratio * log.mask, axis=1)) * log.mask
    delta = np.asarray(residuals(steps, shifted))
    before = np.concatenate([np.ones((40, 1)), weight[:, :-1]], axis=1)
    alive = np.cumprod((before * log.mask).sum(axis=0) / before.sum(axis=0))
    corrections = 0.9 ** np.arange(6) * alive * (weight * delta).sum(axis=0) / weight.sum(axis=0)
    np.testing.assert_allclose(np.diff(bad.candidates), corrections, rtol=1e-9)


def test_blend_refuses():
    log = chain().all(0, 3)
    zeros, key, steps = np.zeros_like(log.reward), np.random.default_rng(0), Steps(*log.arrays, 0.9)
    with pytest.raises(InputError, match="one trajectory"):
        magic(key, steps, ModelValues(zeros, zeros), np.eye(8)[0])
    with pytest.raises(InputError, match="4 is not allowed"):
        magic(key, steps, ModelValues(zeros, zeros), lengths=(4,))


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_least_quadratic_form_on_the_simplex(seed, size, rank):
    """The conditions of optimality: no corner is better than where we are, and those in use are as good."""
    root = np.random.default_rng(seed).normal(size=(rank, size))
    matrix = root.T @ root
    x = least_quadratic(matrix)
    assert x.min() >= 0.0
    assert x.sum() == pytest.approx(1.0)
    slope, least = matrix @ x, x @ matrix @ x
    tolerance = 1e-8 * np.trace(matrix)
    assert (slope >= least - tolerance).all()
    np.testing.assert_allclose(slope[x > 1e-9], least, atol=tolerance)
