"""Vectors and matrices of the theory, by hand; what is printed fails; what is sound agrees with KKT and a grid."""

import numpy as np
import pytest

from evarl.errors import InputError
from evarl.theory import linear, policies
from evarl.truth.exact import optimal_values, policy_values
from evarl.worlds.tabular import Tabular

SIMILARITY = 2.0 ** -np.abs(np.arange(5)[:, None] - np.arange(5)[None, :])
UNIFORM = np.full(5, 0.2)
ROUNDING = 1e-12
"""What float64 leaves of 0 in sums of a few dozen products of numbers up to 10 (each of them up to 100 · 2⁻⁵³ = 1e-14),
in whatever order they are added. Effects are larger than 1e-3."""


def five_states() -> np.ndarray:
    return linear.quadratic_form(linear.evaluator_weights(linear.similarity_matrix(SIMILARITY, [0, 2])), UNIFORM)


def random_world(seed: int) -> Tabular:
    rng = np.random.default_rng(seed)
    return Tabular(rng.dirichlet(np.ones(5), size=(5, 2)), rng.uniform(size=(5, 2)), UNIFORM)


def test_weights_and_loss_by_hand():
    # s0 and s2 assessed; s1 lies between them, s3 and s4 are four times as similar to s2.
    weights = linear.evaluator_weights(linear.similarity_matrix(SIMILARITY, [0, 2]))
    near, far = [0.8, 0, 0.2, 0, 0], [0.2, 0, 0.8, 0, 0]
    np.testing.assert_allclose(weights, [near, [0.5, 0, 0.5, 0, 0], far, far, far], atol=ROUNDING)
    # V = (1, 0, 0, 0, 0): V̂ = (0.8, 0.5, 0.2, 0.2, 0.2).
    by_hand = (0.2**2 + 0.5**2 + 3 * 0.2**2) / 5
    assert linear.loss([1, 0, 0, 0, 0], five_states()) == pytest.approx(by_hand, abs=ROUNDING)


def test_similarity_must_be_positive_where_it_is_used():
    with pytest.raises(InputError, match="positive"):
        linear.similarity_matrix([[1.0, 0.0], [0.0, 1.0]], [0])
    with pytest.raises(InputError, match="assessed"):
        linear.similarity_matrix(np.ones((2, 2)), [2])


def test_the_printed_bound_and_condition_fail():
    found = linear.counterexample(five_states(), UNIFORM, epsilon=1.0, value=10.0)
    assert found.null_norm < ROUNDING
    assert found.mass == pytest.approx(1.0)
    assert found.loss < ROUNDING < found.epsilon**2
    assert found.performance == pytest.approx(10.0)
    assert found.slack < 0
    # Uniform μ is a multiple of 1, and 1 is orthogonal to the range of Q: nothing of it can be matched.
    assert found.residual == pytest.approx(1.0)
    assert found.bound == pytest.approx(0.0, abs=ROUNDING**0.5), "the root of what should be 0"


def test_the_bound_fails_for_a_policy_and_for_other_starts():
    """Not only for free values: with equal rewards everywhere, every policy has these."""
    mu = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    world = Tabular(random_world(0).transitions, np.ones((5, 2)), mu)
    values = policy_values(world, np.full((5, 2), 0.5))
    np.testing.assert_allclose(values, 10.0)
    Q = linear.quadratic_form(linear.evaluator_weights(linear.similarity_matrix(SIMILARITY, [0, 2])), mu)
    found = linear.counterexample(Q, mu, epsilon=1.0)
    assert abs(linear.loss(values, Q)) < ROUNDING < found.epsilon**2
    assert 0 < found.bound < mu @ values
    assert found.residual == pytest.approx(np.sqrt(5) * 0.2 / np.linalg.norm(mu))


def test_a_common_ceiling_is_reached_everywhere():
    found = linear.bounded_optimum(five_states(), UNIFORM, epsilon=1e-3, ceiling=7.0)
    np.testing.assert_allclose(found.values, 7.0)
    assert found.performance == pytest.approx(7.0)


def test_bounded_optimum_by_hand():
    # Two states, the first assessed: L = (v1 − v0)² / 2 ≤ ε², v ≤ (1, 3). So v0 = 1 and v1 = 1 + ε√2.
    Q = linear.quadratic_form(np.array([[1.0, 0.0], [1.0, 0.0]]), [0.5, 0.5])
    found = linear.bounded_optimum(Q, [0.5, 0.5], epsilon=0.5, ceiling=[1.0, 3.0])
    np.testing.assert_allclose(found.values, [1.0, 1 + 0.5 * np.sqrt(2)], atol=1e-6)
    # ½ = λ (v1 − v0)
    assert found.multiplier == pytest.approx(0.5 / (0.5 * np.sqrt(2)), rel=1e-5)


def test_bounded_optimum_against_a_grid():
    similarity = np.array([[1.0, 0.3, 0.6], [0.3, 1.0, 0.5], [0.6, 0.5, 1.0]])
    mu, top, epsilon = np.array([0.2, 0.5, 0.3]), np.array([1.0, 2.0, 0.5]), 0.2
    Q = linear.quadratic_form(linear.evaluator_weights(linear.similarity_matrix(similarity, [0, 1])), mu)
    found = linear.bounded_optimum(Q, mu, epsilon, top)
    axes = [np.linspace(high - 1.5, high, 76) for high in top]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    feasible = grid[np.einsum("ni,ij,nj->n", grid, Q, grid) <= epsilon**2]
    best = (feasible @ mu).max()
    assert best <= found.performance + 1e-6  # the optimiser's
    assert best >= found.performance - 0.02  # a step of the grid


@pytest.mark.parametrize("seed", range(3))
def test_bounded_optimum_satisfies_kkt_and_bounds_every_policy(seed):
    world, Q = random_world(seed), five_states()
    top = optimal_values(world, 400)
    trained = policies.soft_optimum(world, Q, beta=30.0, starts=1)
    found = linear.bounded_optimum(Q, UNIFORM, np.sqrt(trained.loss), top)
    assert found.loss == pytest.approx(trained.loss, rel=1e-6)
    ceilings = UNIFORM - 2 * found.multiplier * Q @ found.values
    assert found.multiplier > 0
    assert (found.values <= top).all()
    assert (ceilings > -1e-5).all()
    np.testing.assert_allclose(ceilings * (top - found.values), 0.0, atol=1e-5)
    assert ceilings.sum() == pytest.approx(1.0)  # as Q1 = 0: some ceiling is always reached
    assert trained.performance <= found.performance
    # The printed one is 0 for uniform μ.
    assert trained.performance > linear.printed_bound(Q, UNIFORM, np.sqrt(trained.loss))


def test_soft_and_hard_policies():
    world, Q = random_world(1), five_states()
    greedy = policies.soft_optimum(world, Q, beta=0.0, starts=2)
    assert greedy.performance == pytest.approx(UNIFORM @ optimal_values(world, 400), abs=1e-4)
    soft = policies.soft_optimum(world, Q, beta=30.0, starts=4)
    hard = policies.hard_optimum(world, Q, epsilon=np.sqrt(soft.loss), starts=4)
    assert soft.loss < greedy.loss
    assert soft.performance < greedy.performance
    assert hard.performance == pytest.approx(soft.performance, abs=1e-3)
    assert hard.loss <= soft.loss * (1 + 1e-5)
    with pytest.raises(InputError, match="least L found"):
        policies.hard_optimum(world, Q, epsilon=1e-9, starts=2)


def test_gradient_over_policies_by_finite_differences():
    world, Q, beta = random_world(2), five_states(), 5.0
    logits = np.random.default_rng(0).normal(size=(5, 2))

    def objective(x):
        policy = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
        values = policy_values(world, policy)
        return UNIFORM @ values - beta * linear.loss(values, Q)

    found = policies.value_gradient(logits, world, lambda v: UNIFORM - 2 * beta * Q @ v)
    for place in np.ndindex(5, 2):
        step = np.zeros((5, 2))
        step[place] = 1e-5
        assert found[place] == pytest.approx((objective(logits + step) - objective(logits - step)) / 2e-5, abs=1e-7)
