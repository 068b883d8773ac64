"""Families of finite worlds: exact values, distributions of returns, and the best evaluator, against numbers by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.truth import (
    action_values,
    bayes_error,
    best_evaluator,
    context_grid,
    context_values,
    optimal_values,
    policy_values,
    return_distribution,
)
from evarl.worlds import Context, make_world
from evarl.worlds.crossing import BRIDGE, GOAL, START, TEST_STATES, Crossing, cell
from evarl.worlds.tabular import Tabular

RIGHT, UP, LEFT, DOWN = np.eye(4)
TWO, RANGE = ("bridge=0.15,0.9",), ("bridge=0.08:0.95",)


def leaving(**settings: object) -> Tabular:
    """One state that pays 1 a step and is left with probability 0.5 or 0.2, for one in which the episode ends."""
    stay = np.array([0.5, 0.8])
    transitions = np.zeros((2, 2, 1, 2))
    transitions[:, 0, 0] = np.stack([stay, 1 - stay], axis=1)
    transitions[:, 1, 0, 1] = 1.0
    rewards = np.tile([[1.0], [0.0]], (2, 1, 1))
    given = {"terminal": np.array([False, True]), "horizon": 3, "discount": 1.0} | settings
    contexts = (Context("context", 0.0, 1.0, (0.0, 1.0)),)
    return Tabular(transitions, rewards, np.array([1.0, 0.0]), contexts=contexts, **given)


ONLY = np.ones((2, 1))


def blind(world: Crossing) -> np.ndarray:
    """The best policy where the bridge is only known to hold with probability 0.525 on average."""
    table = world.at(0.525)
    return np.eye(4)[action_values(table, optimal_values(table, world.horizon)).argmax(axis=1)]


def evaluable(world: Crossing) -> np.ndarray:
    """The same policy but for the test's start states, at which it tries the bridge."""
    policy = blind(world)
    policy[list(TEST_STATES)] = DOWN
    return policy


def test_values_in_each_context() -> None:
    contexts = np.array([[0.0], [1.0]])
    np.testing.assert_allclose(context_values(leaving(), ONLY, contexts)[:, 0], [1.75, 2.44], rtol=1e-12)
    halved = context_values(leaving(discount=0.5), ONLY, contexts)
    np.testing.assert_allclose(halved[:, 0], [1.3125, 1.56], rtol=1e-12)
    np.testing.assert_allclose(context_values(leaving(), ONLY, contexts, 2)[:, 0], [1.5, 1.8], rtol=1e-12)


def test_distribution_of_returns() -> None:
    contexts = np.array([[0.0], [1.0]])
    found = return_distribution(leaving(), ONLY, contexts, 0, 3)
    expected = {1.0: [0.5, 0.2], 2.0: [0.25, 0.16], 3.0: [0.25, 0.64]}
    assert found.keys() == expected.keys()
    for total, chances in expected.items():
        np.testing.assert_allclose(found[total], chances, rtol=1e-12)
    discounted = return_distribution(leaving(), ONLY, contexts, 0, 3, discount=0.5)
    assert discounted.keys() == {1.0, 1.5, 1.75}


def test_returns_of_contexts_with_other_rewards_are_told_apart() -> None:
    world = leaving()
    world = dataclasses.replace(world, rewards=world.rewards * np.array([1.0, 2.0])[:, None, None])
    found = return_distribution(world, ONLY, np.array([[0.0], [1.0]]), 0, 2)
    assert {total: chances.tolist() for total, chances in found.items()} == {
        1.0: [0.5, 0.0],
        2.0: [0.5, pytest.approx(0.2)],
        4.0: [0.0, pytest.approx(0.8)],
    }


def test_the_best_evaluator_by_hand() -> None:
    best = best_evaluator(leaving(), ONLY, [0], 2)
    np.testing.assert_allclose(best.posterior([1.0]), [5 / 7, 2 / 7], rtol=1e-12)
    np.testing.assert_allclose(best.posterior([2.0]), [5 / 13, 8 / 13], rtol=1e-12)
    assert best.posterior_value([1.0]) == pytest.approx((5 * 1.75 + 2 * 2.44) / 7, rel=1e-12)
    error, apart = bayes_error(best), 2.44 - 1.75
    absolute = apart * 2 * (0.35 * 10 / 49 + 0.65 * 40 / 169)
    square = apart**2 * (0.35 * 10 / 49 + 0.65 * 40 / 169)
    assert error.exact
    assert error.mean_absolute == pytest.approx(absolute, rel=1e-12)
    assert error.root_mean_square == pytest.approx(square**0.5, rel=1e-12)
    assert error.without_test == pytest.approx(apart / 2, rel=1e-12)


def test_a_uniform_prior_and_one_try_give_laplace_s_rule() -> None:
    world = make_world("crossing", context=["bridge=0:1"])
    nodes, _ = context_grid(world.contexts, 40)
    best = best_evaluator(world, evaluable(world), [cell(0, 3)], 1, grid=40)
    held, failed = sorted(best.returns[0])  # nearer to the goal is better, so holding costs more here
    assert best.posterior([held]) @ nodes[:, 0] == pytest.approx(2 / 3, rel=1e-12)
    assert best.posterior([failed]) @ nodes[:, 0] == pytest.approx(1 / 3, rel=1e-12)
    with pytest.raises(InputError, match=r"^returns: 5 is not allowed; no context gives this return$"):
        best.posterior([5.0])


@pytest.mark.parametrize("contexts", [TWO, RANGE])
def test_the_expected_estimate_is_the_expected_value(contexts: tuple[str, ...]) -> None:
    """The law of total expectation; and what is not explained by the test is what is left of the variance."""
    world = make_world("crossing", context=contexts)
    best = best_evaluator(world, evaluable(world), TEST_STATES[:2], 4, grid=60)
    joint = {
        (one, other): best.prior * best.returns[0][one] * best.returns[1][other]
        for one in best.returns[0]
        for other in best.returns[1]
    }
    mean = best.prior @ best.values
    estimates = {seen: best.posterior_value(seen) for seen, chances in joint.items() if chances.sum() > 0}
    assert sum(joint[seen].sum() * value for seen, value in estimates.items()) == pytest.approx(mean, abs=1e-12)
    explained = sum(joint[seen].sum() * (value - mean) ** 2 for seen, value in estimates.items())
    left = best.prior @ (best.values - mean) ** 2 - explained
    assert bayes_error(best).root_mean_square ** 2 == pytest.approx(left, abs=1e-12)


def test_drawn_tests_agree_with_enumeration() -> None:
    world = make_world("crossing", context=RANGE)
    best = best_evaluator(world, evaluable(world), TEST_STATES[:2], 3, grid=60)
    exact, drawn = bayes_error(best), bayes_error(best, largest=1, draws=20_000, seed=3)
    assert (exact.exact, drawn.exact, drawn.draws) == (True, False, 20_000)
    assert drawn.mean_absolute == pytest.approx(exact.mean_absolute, rel=0.03)
    assert drawn.root_mean_square == pytest.approx(exact.root_mean_square, rel=0.05)


def test_the_grid_of_a_range_has_converged() -> None:
    world = make_world("crossing", context=RANGE)
    coarse, fine = (best_evaluator(world, evaluable(world), TEST_STATES[:2], 3, grid=count) for count in (100, 200))
    assert coarse.prior @ coarse.values == pytest.approx(fine.prior @ fine.values, abs=1e-10)
    seen = [max(fine.returns[0]), min(fine.returns[1])]
    assert coarse.posterior_value(seen) == pytest.approx(fine.posterior_value(seen), abs=1e-9)
    one, two = bayes_error(coarse), bayes_error(fine)
    assert one.root_mean_square == pytest.approx(two.root_mean_square, abs=1e-9)
    assert one.mean_absolute == pytest.approx(two.mean_absolute, abs=1e-3)  # |x| has a kink


def test_the_best_blind_policy_of_crossing_uses_the_bridge() -> None:
    world = make_world("crossing", context=TWO)
    sites, policy, start = [world.at(0.15), world.at(0.9)], blind(world), cell(*START)

    def worth(policy: np.ndarray) -> list[float]:
        return [float(policy_values(site, policy, world.horizon)[start]) for site in sites]

    assert worth(policy) == pytest.approx([-10.215539045300899, -5.233106172477075], rel=1e-12)
    table = world.at(0.0)
    ford = np.eye(4)[action_values(table, optimal_values(table, world.horizon)).argmax(axis=1)]
    assert worth(ford) == pytest.approx([-10.468893985145607] * 2, rel=1e-12)
    for state in range(world.state_count):
        for action in np.eye(4):
            changed = policy.copy()
            changed[state] = action
            assert np.mean(worth(changed)) <= np.mean(worth(policy)) + 1e-12, (state, action)


def test_a_policy_of_the_same_worth_can_be_told_in_its_test_or_not() -> None:
    """At the start states of the test the best behaviour never meets the bridge, and trying it costs nothing."""
    world = make_world("crossing", context=TWO)
    passive, tried = (best_evaluator(world, policy(world), TEST_STATES, 6) for policy in (blind, evaluable))
    np.testing.assert_allclose(passive.values, tried.values, rtol=1e-12)
    assert [len(one) for one in passive.returns] == [1] * 4
    assert bayes_error(passive).mean_absolute == pytest.approx(2.491216436411912, rel=1e-12)
    assert bayes_error(tried, draws=2000).mean_absolute < 1e-3


@pytest.mark.parametrize("holds", [0.15, 0.9])
def test_simulated_returns_agree(holds: float) -> None:
    """Of whole episodes with the values, and of short ones from a start state of the test with their distribution."""
    world = make_world("crossing", context=TWO)
    policy, context = evaluable(world), np.array([[holds]])
    whole = simulated(world, policy, holds, cell(*START), world.horizon)
    value = context_values(world, policy, context)[0, cell(*START)]
    assert abs(whole.mean() - value) < 4 * whole.std() / len(whole) ** 0.5
    short = simulated(world, policy, holds, TEST_STATES[1], 4)
    known = return_distribution(world, policy, context, TEST_STATES[1], 4)
    totals = np.asarray(list(known))
    nearest = np.abs(short[:, None] - totals[None]).argmin(axis=1)
    assert np.abs(short - totals[nearest]).max() < 1e-5
    observed = np.bincount(nearest, minlength=len(totals)) / len(short)
    expected = np.asarray([chances[0] for chances in known.values()])
    assert (np.abs(observed - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(short)) + 1e-12).all()


def simulated(world: Crossing, policy: np.ndarray, holds: float, start: int, steps: int) -> np.ndarray:
    """Discounted returns of 4 000 episodes."""
    actions = jnp.asarray(policy.argmax(axis=1), jnp.int32)

    def episode(key: jax.Array) -> jax.Array:
        def body(carry, key):
            state, weight = carry
            step = world.step(key, state, actions[state.physics])
            return (step.state, jnp.where(step.terminated, 0.0, weight * world.discount)), step.reward * weight

        begun = world.begin(jnp.int32(start), jnp.asarray([holds], jnp.float32))[0]
        return jax.lax.scan(body, (begun, jnp.float32(1.0)), jax.random.split(key, steps))[1].sum()

    return np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.PRNGKey(5), 4000)))


def test_the_picture_of_crossing() -> None:
    table = make_world("crossing").at(0.25)
    goes = table.transitions
    for column in range(7):
        below, above = cell(column, 2), cell(column, 3)
        holds = 0.25 if column in BRIDGE else float(column == 6)
        assert goes[below, 1, above] == goes[above, 3, below] == holds
        assert goes[below, 1, below] == goes[above, 3, above] == 1 - holds
    assert table.terminal is not None
    assert np.flatnonzero(table.terminal).tolist() == [cell(*GOAL)]
    with pytest.raises(InputError, match=r"^context: bridge=1.5 is not allowed; must be from 0 to 1$"):
        make_world("crossing").at(1.5)


def test_families_of_tables_are_not_taken_for_one() -> None:
    with pytest.raises(InputError, match=r"^tabular: is a family of 2 tables; choose one of them with at\(context\)$"):
        policy_values(leaving(), ONLY)
    assert policy_values(leaving().at(1), ONLY, 3)[0] == pytest.approx(2.44, rel=1e-12)
