"""Start states chosen by what they tell: the design on known Gaussians, and the choice in worlds."""

import itertools

import jax
import numpy as np
import pytest

import evarl
from evarl.assessment.design import choose_from_rollouts, choose_greedily, shrunk_covariance
from evarl.errors import InputError
from evarl.learning.base_policies import build_assessment


def posterior_error(covariance, noise, chosen):
    """tr(Σ_vv − Σ_vS (Σ_SS + N_S)⁻¹ Σ_Sv), by the formula."""
    n, chosen = len(noise), list(chosen)
    observed = covariance[np.ix_(chosen, chosen)] + np.diag(noise[chosen])
    cross = covariance[n:, chosen]
    return np.trace(covariance[n:, n:] - cross @ np.linalg.solve(observed, cross.T))


def random_gaussian(seed, n=6, q=3):
    factors = np.random.default_rng(seed).normal(size=(n + q, n + q))
    return factors @ factors.T, np.random.default_rng(seed + 100).uniform(0.1, 2.0, n)


def test_a_small_gaussian_by_hand():
    """v = x_0 + x_1 with independent x of variance 4 and 1; x_2 is a second look at x_0 with less noise."""
    loadings = np.array([[2.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])  # x_0, x_1, x_2, v in two unit factors
    found = choose_greedily(loadings @ loadings.T, np.array([4.0, 1.0, 1.0]), 3)
    # 5 without any; x_2 explains 4²/(4 + 1); x_1 explains 1²/(1 + 1); of x_0 4/5 is left unexplained: (4/5)²/(4/5 + 4)
    assert found.chosen.tolist() == [2, 1, 0]
    np.testing.assert_allclose(found.error, [5.0, 1.8, 1.3, 1.3 - 0.64 / 4.8], rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_errors_are_those_of_the_formula_and_each_choice_is_the_best_next(seed):
    covariance, noise = random_gaussian(seed)
    found = choose_greedily(covariance, noise, 4)
    for taken, error in enumerate(found.error):
        assert error == pytest.approx(posterior_error(covariance, noise, found.chosen[:taken]), rel=1e-9)
    for taken in range(4):
        before = found.chosen[:taken].tolist()
        errors = {i: posterior_error(covariance, noise, [*before, i]) for i in range(6) if i not in before}
        assert found.chosen[taken] == min(errors, key=errors.get)


def test_greedy_is_optimal_where_candidates_are_independent():
    """Then what they explain adds up, and the best k are the k best."""
    generator = np.random.default_rng(1)
    variance, cross, noise = generator.uniform(1, 3, 7), generator.normal(size=(3, 7)), generator.uniform(0, 1, 7)
    covariance = np.block([[np.diag(variance), cross.T], [cross, 50 * np.eye(3)]])
    for count in (1, 3, 5):
        found = choose_greedily(covariance, noise, count)
        best = min(itertools.combinations(range(7), count), key=lambda s: posterior_error(covariance, noise, s))
        assert sorted(found.chosen) == list(best)


def test_of_equal_candidates_the_first_is_chosen():
    covariance = np.full((5, 5), 1.0) + np.diag([1.0, 1.0, 1.0, 1.0, 0.0])
    assert choose_greedily(covariance, np.ones(4), 4).chosen.tolist() == [0, 1, 2, 3]
    copies = np.ones((4, 4))  # without noise, the first tells all
    found = choose_greedily(copies, np.zeros(3), 3)
    assert found.chosen.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.error, [1.0, 0.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("covariance", [np.zeros((4, 4)), np.eye(4), np.diag([0.0, 0.0, 0.0, 2.0])])
def test_candidates_that_tell_nothing_are_refused(covariance):
    with pytest.raises(InputError, match=r"^assessment\.select: none of the 3 candidates says anything"):
        choose_greedily(covariance, np.ones(3), 2)


def test_shrinkage():
    """λ of independent columns is near 1, that of one factor near 0; the diagonal stays; both sums as in the formula."""
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(30, 12))
    factor = generator.normal(size=(400, 1)) * np.arange(1, 5) + 0.1 * generator.normal(size=(400, 4))
    for samples, low, high in ((noise, 0.6, 1.0), (factor, 0.0, 0.02)):
        empirical, found = np.cov(samples, rowvar=False), shrunk_covariance(samples)
        np.testing.assert_allclose(np.diag(found), np.diag(empirical), rtol=1e-12)
        off = ~np.eye(len(found), dtype=bool)
        share = 1 - found[off][0] / empirical[off][0]
        np.testing.assert_allclose(found[off], (1 - share) * empirical[off], rtol=1e-9)
        scaled = (samples - samples.mean(axis=0)) / samples.std(axis=0, ddof=1)
        products, n = scaled[:, :, None] * scaled[:, None, :], len(samples)
        variance = n / (n - 1) ** 3 * ((products - products.mean(axis=0)) ** 2).sum(axis=0)
        correlation = np.corrcoef(samples, rowvar=False)
        assert share == pytest.approx(min(1.0, variance[off].sum() / (correlation[off] ** 2).sum()), rel=1e-9)
        assert low <= share <= high
        assert np.linalg.eigvalsh(found).min() >= -1e-9
        units = 10.0 ** np.arange(samples.shape[1])
        np.testing.assert_allclose(shrunk_covariance(samples * units), found * np.outer(units, units), rtol=1e-9)
    constant = np.concatenate([factor, np.full((400, 1), 0.1)], axis=1)
    assert not shrunk_covariance(constant)[-1].any(), "rounding is no variance"


def test_noise_between_rollouts_counts_as_often_as_it_is_observed():
    """Candidate 0 is exact, candidate 1 has the same mean with much noise: one replicate of it is worth less."""
    generator = np.random.default_rng(3)
    ability = generator.normal(size=(200, 1))
    returns = np.stack([np.repeat(ability, 8, axis=1), ability + 3 * generator.normal(size=(200, 8))], axis=1)
    found = choose_from_rollouts(returns, ability, 1, replicates=1)
    assert found.chosen.tolist() == [0]
    assert found.error[1] < 0.05 * found.error[0]
    noisy = choose_from_rollouts(returns[:, 1:], ability, 1, replicates=1)
    assert noisy.error[1] / noisy.error[0] == pytest.approx(9 / 10, abs=0.05), "1 − 1/(1 + 3²)"
    often = choose_from_rollouts(returns[:, 1:], ability, 1, replicates=8)
    assert often.error[1] / often.error[0] == pytest.approx(9 / 17, abs=0.08), "1 − 1/(1 + 3²/8)"


def test_one_sample_has_no_covariance():
    with pytest.raises(InputError, match="1 sample of policies and contexts has no covariance"):
        shrunk_covariance(np.ones((1, 3)))


SMALL = {
    "environments": 4,
    "steps": 8,
    "agent.hidden_sizes": [4],
    "assessment.base_updates": 4,
    "evaluator_mode": "colearned",
}


def built(preset, changes):
    said = []
    config = evarl.with_settings(evarl.preset(preset), SMALL | changes).resolved()
    config.validate()
    return build_assessment(config, said.append), said


@pytest.mark.slow
def test_chosen_states_in_a_family_of_worlds():
    """Also where a world has start states of its own."""
    changes = {"contexts": 2, "rollouts_per_start": 2, "horizon": 8, "assessment.select": "greedy"}
    changes |= {"assessment.candidates": 40, "assessment.scenarios": 3}
    found, said = built("crossing", changes)
    assert (found.world.name, found.scenarios, found.horizon) == ("crossing", 3, 6)
    assert said[0] == "training 4 base policies for 4 updates; the assessment starts from states that they visit"
    assert said[1].startswith(
        "chose 3 start states by 320 samples of policies and contexts: they explain "
    )  # 4 · 5 · 16


@pytest.mark.slow
def test_chosen_states_in_a_single_world():
    changes = {"rollouts_per_start": 2, "horizon": 12, "assessment.select": "greedy", "assessment.candidates": 16}
    changes |= {"assessment.horizon": 12, "assessment.base_updates": 24}
    found, said = built("navigation", changes)
    assert (found.world.name, found.scenarios) == ("navigation", 4), "where the base policies have been"
    assert jax.tree.leaves(found.start_states)[0].shape == (4, 2)
    assert len(said) == 2
    again, _ = built("navigation", changes)
    np.testing.assert_array_equal(again.start_states, found.start_states)
    drawn, said = built("navigation", changes | {"assessment.select": "random"})
    assert (drawn.world.name, drawn.scenarios, len(said)) == ("navigation", 4, 1)


@pytest.mark.slow
def test_a_reward_that_never_varies_is_said_so(tmp_path):
    arrays = {"transitions": np.ones((3, 2, 3)) / 3, "rewards": np.ones((3, 2)), "start": np.ones(3) / 3}
    np.savez(tmp_path / "same.npz", **arrays)
    with pytest.raises(InputError, match="none of the 8 candidates says anything about the values of policies"):
        built(
            "navigation",
            {
                "world": f"tabular/{tmp_path}/same.npz",
                "assessment.select": "greedy",
                "assessment.candidates": 8,
                "horizon": 4,
            },
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"select": "greedy", "start_states": "1,1"}, "greedy has no effect, since assessment.start-states determines"),
        ({"select": "random", "file": "a"}, "random has no effect, since assessment.file determines"),
        ({"select": "greedy", "base_run": "a"}, "greedy does not go with assessment.base-run"),
        (
            {"select": "greedy", "candidates": 3, "scenarios": 4},
            "candidates: 3 is not allowed; must be at least assessment.scenarios, 4",
        ),
        ({"candidates": 0}, "assessment.candidates: 0 is not allowed; must be at least 1"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(InputError) as caught:
        evarl.AssessmentConfig(**changes).validate()
    assert message in str(caught.value)


def test_reset_seeds_are_not_chosen():
    with pytest.raises(
        InputError, match="greedy is for JAX worlds; start states in gymnasium/CartPole-v1 are reset seeds"
    ):
        built("navigation", {"world": "gymnasium/CartPole-v1", "assessment.select": "greedy"})
