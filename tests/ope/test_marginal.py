"""Marginalised importance sampling against dynamic programming: exactly, with all trajectories and their probabilities."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.marginal import Visits, bootstrap, marginal, resampled
from evarl.ope.settings import MarginalConfig
from tests.ope.test_estimate import chain_log, one_hot, switching


class World(NamedTuple):
    """P(s'|s, a) with the terminal state last, r(s, a, s'), both policies and the distribution of start states."""

    transition: np.ndarray
    reward: np.ndarray
    target: np.ndarray
    behaviour: np.ndarray
    start: np.ndarray

    def all(self, steps: int) -> tuple[np.ndarray, list]:
        """Every trajectory that the behaviour policy can make, and their probabilities."""
        count, done = len(self.start), []
        open_ = [(p, (s,), (), ()) for s, p in enumerate(self.start) if p > 0]
        while open_:
            p, states, actions, rewards = open_.pop()
            if len(actions) == steps or states[-1] == count:
                done.append((p, states, actions, rewards))
                continue
            chance = self.behaviour[states[-1]][:, None] * self.transition[states[-1]]
            for a, z in np.argwhere(chance > 0):
                longer = (*states, z), (*actions, a), (*rewards, self.reward[states[-1], a, z])
                open_.append((p * chance[a, z], *longer))
        return np.array([one[0] for one in done]), done

    def sample(self, steps: int, trajectories: int, seed: int) -> list:
        """Independent trajectories of the behaviour policy."""
        rng, count = np.random.default_rng(seed), len(self.start)
        state = np.full((trajectories, steps + 1), count)
        state[:, 0] = rng.choice(count, trajectories, p=self.start)
        action = np.zeros((trajectories, steps), int)
        for t in range(steps):
            alive = np.flatnonzero(state[:, t] < count)
            here = state[alive, t]
            action[alive, t] = _choose(rng, self.behaviour[here])
            state[alive, t + 1] = _choose(rng, self.transition[here, action[alive, t]])
        length = (state[:, :-1] < count).sum(axis=1)
        return [
            (1 / trajectories, s[: n + 1], a[:n], self.reward[s[:n], a[:n], s[1 : n + 1]])
            for s, a, n in zip(state, action, length, strict=True)
        ]

    def visits(self, done: list, discount: float, horizon: int | None, per_step: bool = False) -> Visits:
        rows = [
            (i, t, states[t], actions[t], rewards[t], states[t + 1])
            for i, (_, states, actions, rewards) in enumerate(done)
            for t in range(len(actions))
        ]
        i, t, s, a, r, z = (np.array(column) for column in zip(*sorted(rows, key=lambda row: row[1]), strict=True))
        start = np.array([one[1][0] for one in done])
        return Visits(i, t, s, a, r.astype(float), z, start, self.target, discount, horizon, per_step)

    def values(self, policy: np.ndarray, discount: float, horizon: int | None) -> np.ndarray:
        """V, by dynamic programming."""
        among = np.einsum("sa,saz->sz", policy, self.transition)[:, :-1]
        reward = np.einsum("sa,saz,saz->s", policy, self.transition, self.reward)
        if horizon is None:
            return np.linalg.solve(np.eye(len(among)) - discount * among, reward)
        value = np.zeros(len(among))
        for _ in range(horizon):
            value = reward + discount * among @ value
        return value

    def occupancy(self, policy: np.ndarray, discount: float, horizon: int | None) -> np.ndarray:
        """Σ_t γ^t P(s_t = s, a_t = a)."""
        among = np.einsum("sa,saz->sz", policy, self.transition)[:, :-1]
        if horizon is None:
            visited = np.linalg.solve(np.eye(len(among)) - discount * among.T, self.start)
        else:
            now, visited = self.start, np.zeros(len(among))
            for t in range(horizon):
                visited = visited + discount**t * now
                now = among.T @ now
        return visited[:, None] * policy


def _choose(rng: np.random.Generator, chance: np.ndarray) -> np.ndarray:
    return np.minimum((chance.cumsum(axis=1) < rng.random((len(chance), 1))).sum(axis=1), chance.shape[1] - 1)


def random_world(ends: bool, states: int = 4, actions: int = 2, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    move = rng.dirichlet(np.ones(states + ends), (states, actions))
    move = move if ends else np.concatenate([move, np.zeros((states, actions, 1))], axis=2)
    policies = rng.dirichlet(np.ones(actions), (2, states))
    return World(move, rng.normal(size=move.shape), *policies, rng.dirichlet(np.ones(states)))


def chain() -> World:
    move = np.zeros((2, 2, 3))
    move[[0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 0]] = 1
    reward = np.zeros((2, 2, 3))
    reward[1] = 1
    return World(move, reward, np.tile([0.7, 0.3], (2, 1)), np.full((2, 2), 0.5), np.array([1.0, 0.0]))


def model_win() -> World:
    move, reward = np.zeros((3, 2, 4)), np.zeros((3, 2, 4))
    move[0] = [[0, 0.4, 0.6, 0], [0, 0.6, 0.4, 0]]
    move[1:, :, 0] = 1
    reward[0, :, 1], reward[0, :, 2] = 1, -1
    policy = lambda p: np.tile([p, 1 - p], (3, 1))  # noqa: E731
    return World(move, reward, policy(0.27), policy(0.73), np.array([1.0, 0, 0]))


def grid() -> World:
    """4 × 4, from a corner to the opposite one, which ends it; the reward is that of the cell entered."""
    move, reward = np.zeros((16, 4, 17)), np.full((16, 4, 17), -1.0)
    reward[:, :, 5], reward[:, :, 7], reward[:, :, 16] = -10, 1, 10
    for s in range(16):
        for a, (down, right) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            row, column = np.clip(s // 4 + down, 0, 3), np.clip(s % 4 + right, 0, 3)
            cell = 4 * row + column
            move[s, a, 16 if cell == 15 else cell] = 1
    behaviour = np.tile([0.4, 0.1, 0.3, 0.2], (16, 1))
    return World(move, reward, np.full((16, 4), 0.25), behaviour, np.eye(16)[0])


def ring(states: int = 20) -> World:
    """A walk whose policy prefers one direction where the behaviour policy does not care."""
    move, here = np.zeros((states, 2, states + 1)), np.arange(states)
    for a, by in enumerate((1, -1)):
        move[here, a, (here + by) % states], move[here, a, here] = 0.9, 0.1
    angle = 2 * np.pi * here / states
    lean = 0.5 + 0.25 * np.sin(angle)
    reward = np.broadcast_to(np.cos(angle)[:, None, None], move.shape)
    return World(move, reward, np.stack([lean, 1 - lean], 1), np.full((states, 2), 0.5), np.eye(states)[0])


CASES = [
    pytest.param(ends, discount, horizon, per_step, id=f"{ends}-{discount}-{horizon}-{per_step}")
    for ends in (False, True)
    for discount, horizon, per_step in (
        (0.9, 3, False), (0.9, 3, True), (1.0, 3, False), (1.0, 3, True), (0.9, 40, False), (0.9, None, False),
    )
] + [pytest.param(True, 1.0, None, False, id="True-1.0-endless")]  # fmt: skip


@pytest.mark.parametrize(("ends", "discount", "horizon", "per_step"), CASES)
def test_all_trajectories_give_exact_values_and_weights(ends, discount, horizon, per_step):
    """The log has 3 steps; pooled transitions tell what happens in more, or without end."""
    world = random_world(ends)
    probability, done = world.all(3)
    visits = world.visits(done, discount, horizon, per_step)
    found = marginal(visits, probability)
    values = world.values(world.target, discount, horizon)
    assert found.value == pytest.approx(world.start @ values, abs=1e-10)
    assert found.state_values[0] == pytest.approx(values, abs=1e-10)
    assert found.supported == pytest.approx(1, abs=1e-10)
    assert resampled(visits, np.stack([probability] * 2)) == pytest.approx([found.value] * 2, abs=1e-10)
    mass = probability[visits.trajectory]
    if per_step:  # w_t = γ^t d_t / d_t^D, from one more step at a time
        for t in range(3):
            of = lambda policy, n: world.occupancy(policy, 1.0, n)  # noqa: E731
            ratio = (of(world.target, t + 1) - of(world.target, t)) / (
                of(world.behaviour, t + 1) - of(world.behaviour, t)
            )
            at = visits.step == t
            assert found.weight[at] == pytest.approx(discount**t * ratio[visits.state[at], visits.action[at]], rel=1e-8)
    else:
        logged = world.occupancy(world.behaviour, 1.0, 3)
        ratio = world.occupancy(world.target, discount, horizon) / logged
        assert found.weight == pytest.approx(ratio[visits.state, visits.action], rel=1e-8)
    assert mass @ (found.weight * visits.reward) == pytest.approx(found.value, abs=1e-10)


@pytest.mark.parametrize(("ends", "discount", "horizon", "per_step"), CASES)
def test_influence_is_the_derivative(ends, discount, horizon, per_step):
    world = random_world(ends)
    probability, done = world.all(3)
    visits = world.visits(done, discount, horizon, per_step)
    found = marginal(visits, probability)
    assert probability @ found.influence == pytest.approx(0, abs=1e-9)
    for chosen in (0, len(done) // 2):
        toward = np.eye(len(done))[chosen] - probability
        up, down = (marginal(visits, probability + e * toward).value for e in (1e-6, -1e-6))
        assert (up - down) / 2e-6 == pytest.approx(found.influence[chosen], rel=1e-5, abs=1e-6)


def test_two_state_chain():
    world = chain()
    probability, done = world.all(3)
    endless = marginal(world.visits(done, 0.9, None), probability)
    assert endless.state_values[0] == pytest.approx([4.21875, 5.78125], abs=1e-8)
    assert endless.value == pytest.approx(4.21875, abs=1e-8)
    five = marginal(world.visits(done, 0.9, 5), probability)
    assert five.state_values[0] == pytest.approx([1.27102392, 2.82407608], abs=1e-8)


def test_model_win():
    """From 3 of its 20 steps."""
    world = model_win()
    probability, done = world.all(3)
    assert marginal(world.visits(done, 1.0, 20), probability).value == pytest.approx(0.92, abs=1e-8)


def test_model_win_is_sampled_better_than_with_trajectory_weights():
    world = model_win()
    found = marginal(world.visits(world.sample(20, 2000, seed=0), 1.0, 20), np.full(2000, 1 / 2000))
    error = found.influence.std() / 2000**0.5
    assert abs(found.value - 0.92) < 4 * error
    assert error**2 * 2000 < 25  # per-decision importance sampling has 2922.81, the policy itself 9.9154


@pytest.mark.parametrize("per_step", [False, True])
def test_grid(per_step):
    world = grid()
    done = world.sample(100, 4000, seed=1)
    assert world.values(world.target, 1.0, 100)[0] == pytest.approx(-72.4127, abs=1e-4)
    visits = world.visits(done, 1.0, 100, per_step)
    found = marginal(visits, np.full(4000, 1 / 4000))
    error = found.influence.std() / 4000**0.5
    if not per_step:  # deterministic, and everything was tried: only the start could vary, and it does not
        assert found.supported == pytest.approx(1, abs=1e-12)
        assert found.value == pytest.approx(world.values(world.target, 1.0, 100)[0], abs=1e-8)
        assert error == pytest.approx(0, abs=1e-8)
    else:  # late steps were reached by few
        assert 0.5 < found.supported < 0.999


def test_a_thousand_steps_round_a_ring():
    """The importance ratios of whole trajectories have a mean of 1 and a mean square above 10^18."""
    world = ring()
    done = world.sample(1000, 40, seed=0)
    true = world.values(world.target, 1.0, 1000)[0]
    visits = world.visits(done, 1.0, 1000)
    found = marginal(visits, np.full(40, 1 / 40))
    error = found.influence.std(ddof=1) / 40**0.5
    assert abs(found.value - true) < 4 * error < 0.01 * abs(true)
    square = np.ones(20)  # E[w²] of the rest, by recursion
    for _ in range(1000):
        square = np.einsum("sa,saz->sz", world.target**2 / world.behaviour, world.transition)[:, :-1] @ square
    assert square[0] > 1e18
    again = bootstrap(visits, 50, np.random.default_rng(0))
    assert 0.6 < again.std() / error < 1.6


def test_bootstrap_equals_estimates_of_resampled_trajectories(monkeypatch):
    world = random_world(ends=True)
    done = world.sample(5, 30, seed=3)
    drawn = np.random.default_rng(1).multinomial(30, np.full(30, 1 / 30), 4)
    for horizon, per_step in ((5, False), (5, True), (None, False)):
        visits = world.visits(done, 0.9, horizon, per_step)
        each = [world.visits([done[i] for i in np.repeat(np.arange(30), one)], 0.9, horizon, per_step) for one in drawn]
        wanted = [marginal(one, np.full(30, 1 / 30)).value for one in each]
        assert resampled(visits, drawn / 30) == pytest.approx(wanted, abs=1e-10)
        whole = bootstrap(visits, 7, np.random.default_rng(2))
        with monkeypatch.context() as context:
            context.setattr("evarl.ope.marginal.BLOCK", 1)  # one sample at a time
            assert np.allclose(bootstrap(visits, 7, np.random.default_rng(2)), whole, rtol=0, atol=1e-10)


def test_a_constant_reward_is_exact_where_support_is_missing():
    """The known part stands for the whole; nothing terminates."""
    world = random_world(ends=False)
    _, done = world.all(2)
    few = [one for one in done if 0 not in one[2]]  # action 0 was never tried
    visits = dataclasses.replace(world.visits(few, 0.9, 10), reward=np.full(len(few) * 2, 3.0))
    found = marginal(visits, np.full(len(few), 1 / len(few)))
    assert found.value == pytest.approx(3.0 * (1 - 0.9**10) / 0.1)
    assert 0 < found.supported < 0.5


# --- Through the function that users call


def estimate(data, policy, states=None, discount=0.9, horizon="finite", **options):
    settings = ope.Settings(horizon=horizon, marginal=MarginalConfig(**options), resamples=50)
    return ope.estimate(ope.Log(data, discount, states), policy, settings, ("mis-tabular",))["mis-tabular"]


def test_of_a_log_without_behaviour_probabilities():
    states = np.stack([one_hot(1), one_hot(0), np.array([0.5, 0.5], np.float32)])
    found = estimate(chain_log().replace(log_prob=None), switching(0.3), states)
    assert found.state_values[:2] == pytest.approx([2.82407608, 1.27102392], rel=1e-6)  # the chain is deterministic
    assert np.isnan(found.state_values[2])
    assert found.value == pytest.approx(2.04755, rel=1e-6)
    assert found.intervals.keys() == {"t", "bootstrap"}
    assert found.warnings == ()
    assert found.effective_sample_size == pytest.approx(4000 / 1.16, rel=0.02)  # E[w²] of a single step
    endless = estimate(chain_log(), switching(0.3), states[:2], horizon="endless")
    assert endless.state_values == pytest.approx([5.78125, 4.21875], rel=1e-6)
    assert endless.value == pytest.approx(5, rel=1e-6)


def test_on_policy_weights_of_each_step_are_equal():
    found = estimate(chain_log(switch=0.3), switching(0.3), transitions="per-step")
    assert found.effective_sample_size == pytest.approx(4000, rel=0.01)
    assert found.largest_weight_share == pytest.approx(1 / 4000, rel=0.3)


def test_values_at_later_steps():
    log = ope.Log(chain_log(), 0.9, np.stack([one_hot(1)] * 2), np.array([0, 4]))
    found = ope.estimate(log, switching(0.3), methods=("mis-tabular",))["mis-tabular"]
    assert found.state_values == pytest.approx([2.82407608, 1.0], rel=1e-6)


def test_what_was_never_tried_is_said_and_leaves_no_standard_error():
    data = chain_log(switch=0.0)
    found = estimate(data, switching(0.3))
    assert "of what the policy visits is not in the log" in found.warnings[0]
    assert "no standard error" in found.warnings[-1]
    assert found.standard_error is None
    assert not found.intervals


def test_what_was_tried_once_has_no_standard_error():
    data = chain_log(200, switch=0.0)
    action, following = np.array(data.action), np.array(data.final_observation)
    action[0, -1], following[0] = 1, one_hot(1)  # a single switch
    found = estimate(data.replace(action=action, final_observation=following), switching(0.05))
    assert "that a single trajectory has tried" in " ".join(found.warnings)
    assert found.standard_error is None


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (chain_log(4), {"horizon": "endless", "discount": 1.0}, "discount: 1 is not allowed where no step terminates"),
        (chain_log(4), {"horizon": "endless", "transitions": "per-step"}, "marginal.transitions: per-step is not"),
        (chain_log(4), {"horizon": "infinite"}, "horizon: unknown 'infinite'"),
        (chain_log(4).replace(action=np.zeros((4, 5), np.float32)), {}, "action: is continuous in this log"),
    ],
)
def test_what_cannot_be_is_refused(data, options, message):
    with pytest.raises(InputError) as caught:
        estimate(data, switching(0.3), **options)
    assert str(caught.value).startswith(message)


def test_a_policy_that_never_terminates_has_no_undiscounted_value():
    """One trajectory terminates, and the policy never does what it did."""
    data = chain_log(50)
    ended = np.zeros(data.mask.shape, bool)
    action = np.array(data.action)
    action[0, -1], ended[0, -1] = 1, True
    data = data.replace(terminated=ended, truncated=np.zeros_like(ended), action=action)
    with pytest.raises(InputError, match="discount: 1 is not allowed where the policy may never terminate"):
        estimate(data, switching(0.0), discount=1.0, horizon="endless")


def test_continuous_observations_are_too_many_states(monkeypatch):
    monkeypatch.setattr("evarl.ope.marginal_tabular.MOST_STATES", 1)
    with pytest.raises(
        InputError, match="observation: has 2 different values in this log; mis-tabular allows at most 1"
    ):
        estimate(chain_log(4), switching(0.3))


def test_what_is_estimated_is_said():
    found = estimate(chain_log(4), switching(0.3))
    assert found.estimand.startswith("return of the policy over 5 steps, discounted by 0.9")
    found = estimate(chain_log(40), switching(0.3), horizon="endless")
    assert "without a time limit" in found.estimand
