"""Fitted Q evaluation against exact values, and the mistakes that exact values catch."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe import fit, fit_policy, select
from evarl.ope.fqe_table import prepare, row_observations, rows, target_actions
from evarl.ope.fqe_training import train
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.truth.exact import policy_values
from evarl.worlds.tabular import Tabular, chain

QUICK = FQEConfig(hidden_sizes=(16, 16), steps=200)
SMALL = FQEConfig(hidden_sizes=(32, 32), learning_rate=1e-3, steps=4000)
"""Finds what the defaults find, in a fifth of the time. What is left to chance by keys or by rounding, which training
amplifies, moves values by up to half of the tolerances below; the mistakes move them by 5 % or more."""
GREEDY = dataclasses.replace(SMALL, convention="greedy-huber")
CHAIN_Q = np.array([[3.796875, 5.203125], [6.203125, 4.796875]])
SWITCH = np.array([[0.7, 0.3], [0.7, 0.3]])


def draw(rng, probabilities):
    """One index for each row of probabilities."""
    return (rng.random((len(probabilities), 1)) > probabilities.cumsum(axis=1)).sum(axis=1)


def logged(world: Tabular, behaviour: np.ndarray, count: int, length: int, seed: int = 0) -> LoggedData:
    """Trajectories of a finite world, with one-hot observations; those that do not end are cut by the time limit."""
    rng = np.random.default_rng(seed)
    states, eye = len(world.start), np.eye(len(world.start))
    episodes, state = [], draw(rng, np.tile(world.start, (count, 1)))
    seen, acted, paid = [state], [], []
    for _ in range(length):
        acted.append(draw(rng, behaviour[state]))
        paid.append(np.asarray(world.rewards)[state, acted[-1]])
        state = draw(rng, np.asarray(world.transitions)[state, acted[-1]]).clip(max=states - 1)
        seen.append(state)
    for observed, action, reward in zip(*(np.stack(x, axis=1) for x in (seen, acted, paid)), strict=True):
        ended = np.asarray(world.terminal)[observed]
        last = int(ended.argmax()) if ended.any() else length
        episodes.append(
            {
                "observation": eye[observed[:last]],
                "action": action[:last],
                "reward": reward[:last],
                "log_prob": np.log(behaviour[observed[:last], action[:last]]),
                "final_observation": eye[observed[last]],
                "terminated": ended.any(),
                "truncated": not ended.any(),
            }
        )
    return LoggedData.from_episodes(episodes)


def tabular(probabilities: np.ndarray) -> TargetPolicy:
    table = jnp.asarray(probabilities, jnp.float32)

    def unused(*arguments):
        raise AssertionError("fitted Q evaluation of discrete actions asks for probabilities alone")

    return TargetPolicy(log_prob=unused, probabilities=lambda seen: seen @ table, sample=unused, mode=unused)


def ended_by_time(data: LoggedData) -> LoggedData:
    """The mistake of taking time limits for ends."""
    return data.replace(terminated=data.terminated | data.truncated, truncated=np.zeros_like(data.truncated))


@pytest.fixture(scope="module")
def chain_log():
    return logged(chain(), np.full((2, 2), 0.5), 200, 20)


@pytest.fixture(scope="module")
def random_world():
    """20 states, 4 actions; the target policy likes rewards, so that what it does depends on where it is."""
    rng = np.random.default_rng(1)
    rewards = 0.6 + rng.normal(size=(20, 4)) / 2
    world = Tabular(rng.dirichlet(np.full(20, 0.3), size=(20, 4)), rewards, np.full(20, 0.05), discount=0.9)
    target = np.exp(2 * rewards)
    target /= target.sum(axis=1, keepdims=True)
    data = logged(world, np.full((20, 4), 0.25), 500, 50)
    exact = policy_values(world, target)
    return data, target, exact, float(exact[np.asarray(data.observation)[:, 0].argmax(axis=1)].mean())


class TestKnownAnswers:
    def test_two_state_chain(self, chain_log, key):
        fitted = fit_policy(dataclasses.replace(SMALL, steps=2000), chain_log, tabular(SWITCH), 0.9, key)
        np.testing.assert_allclose(fitted.q_values(np.eye(2)), CHAIN_Q, rtol=0.01)
        np.testing.assert_allclose(fitted.v(np.eye(2), SWITCH), [4.21875, 5.78125], rtol=0.01)
        assert fitted.converged
        assert fitted.bellman_error < 0.02  # nothing is random but the actions

    def test_two_state_chain_over_five_steps(self, key):
        world = dataclasses.replace(chain(), start=np.array([0.5, 0.5]))
        data = logged(world, np.full((2, 2), 0.5), 400, 5)
        fitted = fit_policy(dataclasses.replace(SMALL, steps=2000, time_feature=True), data, tabular(SWITCH), 0.9, key)
        np.testing.assert_allclose(fitted.v(np.eye(2), SWITCH), [1.27102392, 2.82407608], rtol=0.01)
        np.testing.assert_allclose(fitted.v(np.eye(2), SWITCH, np.array([4, 4])), [0.0, 1.0], atol=0.02)

    @pytest.mark.parametrize(
        ("time_feature", "exact"), [(True, -72.4127), pytest.param(False, -83.285714, marks=pytest.mark.slow)]
    )
    def test_grid_of_the_ope_literature(self, time_feature, exact, key):
        """γ = 1. With the clock, the value of 100 steps; without it, the value of walking until the end is reached."""
        data = logged(grid(), np.full((16, 4), 0.25), 1000, 100)
        config = dataclasses.replace(SMALL, time_feature=time_feature, steps=6500)
        fitted = fit_policy(config, data, tabular(np.full((16, 4), 0.25)), 1.0, key)
        assert fitted.start_value[-1] == pytest.approx(exact, rel=0.01)
        assert fitted.converged

    @pytest.mark.slow
    def test_random_world_under_both_conventions(self, random_world, key):
        data, target, exact, expected = random_world
        sound = fit_policy(SMALL, data, tabular(target), 0.9, key)
        assert sound.start_value[-1] == pytest.approx(expected, rel=0.02)
        np.testing.assert_allclose(sound.v(np.eye(20), target), exact, rtol=0.03)
        assert sound.converged
        other = fit_policy(dataclasses.replace(GREEDY, steps=1500), data, tabular(target), 0.9, key)
        assert other.start_value[-1] > 1.05 * expected

    def test_gaussian_actions(self, key):
        """r = a, states independent of all: V(s) = E[a|s] + γ m / (1 − γ); under time limits taken for ends, less."""
        data, policy = gaussian_log(), gaussian_policy(1.0)
        states = np.array([[-1.0], [0.0], [1.0]])
        fitted = fit_policy(SMALL, data, policy, 0.9, key)
        actions = np.full((3, 1, 1), 1.0) + states[:, None] / 2
        np.testing.assert_allclose(fitted.v(states, actions), [9.5, 10.0, 10.5], rtol=0.03)
        np.testing.assert_allclose(fitted.q(states, np.full((3, 1), 2.0)), np.full(3, 11.0), rtol=0.04)
        ends = fit_policy(GREEDY, data, policy, 0.9, key)
        mean = 1 / (1 - 0.9 * 0.9)  # one of ten steps ends
        np.testing.assert_allclose(ends.v(states, actions), mean + np.array([-0.5, 0.0, 0.5]), rtol=0.08)

    @pytest.mark.slow
    def test_gaussian_actions_over_ten_steps(self, key):
        config = dataclasses.replace(SMALL, time_feature=True)
        fitted = fit_policy(config, gaussian_log(), gaussian_policy(1.0), 0.9, key)
        assert fitted.start_value[-1] == pytest.approx((1 - 0.9**10) / 0.1, rel=0.03)


class TestMistakesOfOthers:
    """Each moves the estimate further than the known answers allow: 2 % of the exact value in the random world."""

    def estimate(self, random_world, key, spoil_data=lambda data: data, spoil_target=lambda target: target):
        data, target, _, expected = random_world
        config = dataclasses.replace(SMALL, steps=2500)
        table = prepare(config, spoil_data(data), 0.9, key)
        asked = target_actions(config, data, tabular(target), key)
        return float(fit(config, table, spoil_target(asked), key).start_value[-1]) / expected

    @pytest.mark.slow
    def test_none(self, random_world, key):
        assert self.estimate(random_world, key) == pytest.approx(1, abs=0.02)

    def test_time_limits_taken_for_ends(self, random_world, key):
        assert self.estimate(random_world, key, spoil_data=ended_by_time) < 0.9

    def test_greedy_backups(self, random_world, key):
        greedy = lambda target: jax.nn.one_hot(target.argmax(axis=1), 4, dtype=jnp.float32)  # noqa: E731
        assert self.estimate(random_world, key, spoil_target=greedy) > 1.05

    def test_next_actions_from_current_observations(self, random_world, key):
        assert self.estimate(random_world, key, spoil_target=lambda target: jnp.roll(target, 1, axis=0)) < 0.95

    def test_logarithms_of_probabilities(self, chain_log, key):
        with pytest.raises(InputError, match="must be probabilities, not logarithms"):
            target_actions(QUICK, chain_log, tabular(np.log(SWITCH)), key)

    def test_zero_steps(self, chain_log, key):
        with pytest.raises(InputError, match=r"fqe\.steps: 0 is not allowed; must be at least 1"):
            fit_policy(FQEConfig(steps=0), chain_log, tabular(SWITCH), 0.9, key)


class TestEnds:
    """Where the value ends: three trajectories of two steps, of which one terminates, one is truncated and one is cut."""

    @pytest.fixture
    def data(self):
        last = np.array([[False, True]])
        return LoggedData.from_arrays(
            observation=np.arange(6.0).reshape(3, 2, 1),
            action=np.zeros((3, 2), int),
            reward=np.ones((3, 2)),
            terminated=last & np.array([[True], [False], [False]]),
            truncated=last & np.array([[False], [True], [False]]),
            final_observation=np.full((3, 1), 9.0),
        )

    @pytest.mark.parametrize(
        ("config", "ends"),
        [
            (QUICK, [True, False, False]),
            (dataclasses.replace(QUICK, convention="greedy-huber"), [True, True, False]),
            (dataclasses.replace(QUICK, time_feature=True), [True, True, True]),
        ],
    )
    def test_conventions(self, data, config, ends, key):
        table = prepare(config, data, 0.5, key)
        np.testing.assert_array_equal(table.discount[np.array([1, 4, 7])], np.where(ends, 0.0, 0.5))
        np.testing.assert_array_equal(table.discount[np.array([0, 3, 6])], np.full(3, 0.5))

    def test_final_observations_follow_last_steps(self, data):
        np.testing.assert_array_equal(row_observations(data)[:, 0], [0, 1, 9, 2, 3, 9, 4, 5, 9])

    def test_a_trajectory_cut_before_the_horizon_goes_on(self, key):
        data = LoggedData.from_episodes([_episode(2), _episode(3)])
        table = prepare(dataclasses.replace(QUICK, time_feature=True), data, 0.5, key)
        np.testing.assert_array_equal(table.discount[np.array([0, 1, 3, 4, 5])], [0.5, 0.5, 0.5, 0.5, 0.0])

    def test_discount_one_needs_an_end(self, chain_log, key):
        with pytest.raises(InputError, match="discount: 1 is not allowed"):
            prepare(QUICK, chain_log, 1.0, key)
        with pytest.raises(InputError, match=r"discount: 1\.5"):
            prepare(QUICK, chain_log, 1.5, key)


class TestTable:
    def test_padding_changes_nothing(self, key):
        data = LoggedData.from_episodes([_episode(2), _episode(3)])
        wider = LoggedData.from_arrays(
            **{
                name: np.pad(getattr(data, name), [(0, 0), (0, 4)])
                for name in ("action", "reward", "mask", "truncated")
            },
            observation=np.pad(data.observation, [(0, 0), (0, 4), (0, 0)], constant_values=7.0),
            final_observation=data.final_observation,
        )
        one, other = prepare(QUICK, data, 0.9, key), prepare(QUICK, wider, 0.9, key)
        jax.tree.map(np.testing.assert_array_equal, one, other)

    def test_nothing_held_out_no_bellman_error(self, key):
        data = LoggedData.from_episodes([_episode(2), _episode(3)])
        config = dataclasses.replace(QUICK, held_out=0.0)
        only = tabular(np.ones((1, 1)))._replace(probabilities=lambda seen: jnp.ones((len(seen), 1)))
        fitted = fit_policy(config, data, only, 0.9, key)
        assert np.isnan(fitted.bellman_error)
        assert np.isfinite(fitted.start_value).all()

    def test_held_out_trajectories_are_whole(self, random_world, key):
        data, *_ = random_world
        table, owner = prepare(QUICK, data, 0.9, key), rows(data)[0]
        training, held_out = set(owner[np.asarray(table.training)]), set(owner[np.asarray(table.held_out)])
        assert len(held_out) == 50
        assert len(training) == 450
        assert not training & held_out
        assert len(table.training) + len(table.held_out) == 500 * 50

    def test_flags_are_not_standardised_and_rare_entries_are_bounded(self, key):
        rare = np.zeros((2, 600, 1))
        rare[0, 5] = 1.0
        fields = {"action": np.zeros((2, 600), int), "reward": np.ones((2, 600)), "final_observation": np.zeros((2, 1))}
        numbers = dataclasses.replace(QUICK, one_hot=False)
        table = prepare(numbers, LoggedData.from_arrays(observation=rare, **fields), 0.9, key)
        assert table.features.max() == 10
        fields["final_observation"] = np.zeros((2, 1), bool)
        table = prepare(QUICK, LoggedData.from_arrays(observation=rare.astype(bool), **fields), 0.9, key)
        assert set(np.unique(table.dense())) == {0.0, 1.0}


class TestFit:
    @pytest.mark.slow
    def test_mapped_over_policies_is_one_after_the_other(self, chain_log, key):
        table = prepare(QUICK, chain_log, 0.9, key)
        policies = [np.array([[1 - p, p], [p, 1 - p]]) for p in (0.1, 0.5, 0.9)]
        targets = jnp.stack([target_actions(QUICK, chain_log, tabular(policy), key) for policy in policies])
        keys = jax.random.split(key, 3)
        together = jax.vmap(partial(fit, QUICK, table))(targets, keys)
        alone = [fit(QUICK, table, target, one) for target, one in zip(targets, keys, strict=True)]
        for i, single in enumerate(alone):
            mapped = jax.tree.map(lambda leaf, i=i: leaf[i], together)
            np.testing.assert_allclose(mapped.q_values(np.eye(2)), single.q_values(np.eye(2)), rtol=1e-3)
            np.testing.assert_allclose(mapped.bellman_error, single.bellman_error, rtol=1e-3)
        assert len({round(float(single.start_value[-1]), 3) for single in alone}) == 3

    def test_values_follow_the_units_of_reward(self, chain_log, key):
        """V is linear in reward at every step of the fit, not only at its end."""
        fitted = fit_policy(QUICK, chain_log, tabular(SWITCH), 0.9, key)
        other = chain_log.replace(reward=np.asarray(100 * chain_log.reward - 5))
        moved = fit_policy(QUICK, other, tabular(SWITCH), 0.9, key)
        expected = 100 * fitted.q_values(np.eye(2)) - 50
        np.testing.assert_allclose(moved.q_values(np.eye(2)), expected, rtol=1e-3)
        np.testing.assert_allclose(moved.bellman_error, 100 * fitted.bellman_error, rtol=1e-3)
        np.testing.assert_allclose(moved.loss, 1e4 * fitted.loss, rtol=1e-2)

    def test_all_steps_are_made_and_no_more(self, chain_log, key):
        """The trace is complete however few the steps; their number and size are no reason to compile again."""
        table = prepare(QUICK, chain_log, 0.9, key)
        target = target_actions(QUICK, chain_log, tabular(SWITCH), key)
        one = fit(dataclasses.replace(QUICK, steps=1), table, target, key)
        compiled = train._cache_size()
        two = fit(dataclasses.replace(QUICK, steps=21, learning_rate=1e-3), table, target, key)
        assert train._cache_size() == compiled
        for fitted in (one, two):
            assert np.isfinite(fitted.loss).all()
            assert np.isfinite(fitted.start_value).all()
        # Adam's first step is as large as the step size says, whatever the gradient
        last = one.parameters[-1][1]
        np.testing.assert_allclose(np.abs(last), np.full(2, QUICK.learning_rate), rtol=1e-3)
        assert not one.converged

    @pytest.mark.slow
    def test_values_still_on_their_way_are_not_converged(self, random_world, key):
        """40 backups at γ = 0.99 leave two thirds of the way; what is said to remain is close to what does."""
        data, target, *_ = random_world
        config = dataclasses.replace(SMALL, steps=2000, target_interval=50)
        fitted = fit_policy(config, data, tabular(target), 0.99, key)
        more = fit_policy(dataclasses.replace(SMALL, steps=10_000), data, tabular(target), 0.99, key)
        assert not fitted.converged
        assert fitted.remainder == pytest.approx(float(more.start_value[-1] - fitted.start_value[-1]), rel=0.1)

    def test_values_that_were_never_let_move_are_not_converged(self, chain_log, key):
        slow = fit_policy(dataclasses.replace(QUICK, learning_rate=1e-7), chain_log, tabular(SWITCH), 0.9, key)
        assert slow.drift < 1e-3
        assert not slow.converged

    def test_select_reports_all_and_takes_the_lowest_error(self, chain_log, key):
        configs = [dataclasses.replace(QUICK, learning_rate=rate) for rate in (1e-6, 1e-2, 1e-5)]
        best, fits = select(configs, chain_log, tabular(SWITCH), 0.9, key)
        errors = [float(one.bellman_error) for one in fits]
        assert best == 1
        assert errors[1] < min(errors[0], errors[2])
        with pytest.raises(InputError, match=r"fqe\.convention: differs"):
            select([QUICK, GREEDY], chain_log, tabular(SWITCH), 0.9, key)
        with pytest.raises(InputError, match=r"fqe\.held-out: 0 is not allowed"):
            select([dataclasses.replace(QUICK, held_out=0.0)], chain_log, tabular(SWITCH), 0.9, key)


class TestRefusals:
    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ({"steps": -1}, "fqe.steps: -1"),
            ({"batch_size": 0}, "fqe.batch-size: 0"),
            ({"target_interval": 0}, "fqe.target-interval: 0"),
            ({"learning_rate": 0.0}, "fqe.learning-rate: 0.0"),
            ({"hidden_sizes": ()}, "fqe.hidden-sizes"),
            ({"hidden_sizes": (8, 0)}, "fqe.hidden-sizes"),
            ({"convention": "greedy"}, "fqe.convention: 'greedy' is not allowed"),
            ({"held_out": 1.0}, "fqe.held-out: 1.0"),
        ],
    )
    def test_settings(self, setting, message):
        with pytest.raises(InputError, match=message):
            dataclasses.replace(FQEConfig(), **setting).validate()

    def test_nothing_left_to_learn_from(self, key):
        with pytest.raises(InputError, match="of 1 trajectories leaves none"):
            prepare(QUICK, LoggedData.from_episodes([_episode(3)]), 0.9, key)

    def test_policy_that_does_not_fit_the_log(self, chain_log, key):
        continuous = tabular(SWITCH)._replace(probabilities=None)
        with pytest.raises(InputError, match=r"policy\.probabilities: are missing"):
            target_actions(QUICK, chain_log, continuous, key)
        with pytest.raises(InputError, match="A at least 2"):
            target_actions(QUICK, chain_log, tabular(np.ones((2, 1))), key)
        with pytest.raises(InputError, match="target: has shape"):
            fit(QUICK, prepare(QUICK, chain_log, 0.9, key), jnp.ones((3, 2)), key)


def _episode(length: int) -> dict:
    return {
        "observation": np.arange(1.0, length + 1)[:, None],
        "action": np.zeros(length, int),
        "reward": np.arange(length) ** 2.0,
        "final_observation": np.zeros(1),
        "truncated": True,
    }


def grid() -> Tabular:
    """4 × 4, start (1,1), end (4,4), reward of the cell entered."""
    reward_of = {(1, 1): -10.0, (1, 3): 1.0, (3, 3): 10.0}
    transitions, rewards = np.zeros((16, 4, 16)), np.zeros((16, 4))
    for row in range(4):
        for column in range(4):
            for action, (down, right) in enumerate([(0, 1), (1, 0), (0, -1), (-1, 0)]):
                to = (min(max(row + down, 0), 3), min(max(column + right, 0), 3))
                transitions[4 * row + column, action, 4 * to[0] + to[1]] = 1.0
                rewards[4 * row + column, action] = reward_of.get(to, -1.0)
    return Tabular(transitions, rewards, np.eye(16)[0], terminal=np.arange(16) == 15, horizon=100, discount=1.0)


def gaussian_log() -> LoggedData:
    """States N(0, 1) and actions N(0, 1.5²), all independent; reward the action; ten steps to the time limit."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(1500, 11, 1)), 1.5 * rng.normal(size=(1500, 10, 1))
    truncated = np.zeros((1500, 10), bool)
    truncated[:, -1] = True
    fields = {"action": action, "reward": action[..., 0], "truncated": truncated}
    return LoggedData.from_arrays(observation=state[:, :-1], final_observation=state[:, -1], **fields)


def gaussian_policy(mean: float) -> TargetPolicy:
    """N(mean + s / 2, 1)."""
    centre = lambda seen: mean + seen / 2  # noqa: E731
    return TargetPolicy(
        log_prob=lambda seen, action: -0.5 * ((action - centre(seen)) ** 2)[:, 0] - 0.5 * np.log(2 * np.pi),
        probabilities=None,
        sample=lambda key, seen: centre(seen) + jax.random.normal(key, seen.shape),
        mode=centre,
    )
