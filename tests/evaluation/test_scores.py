"""The arithmetic of errors, against NumPy and against what is known beforehand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from evarl.evaluation.scores import MeanAndError, Score, average, relative_improvement, root, score, skill
from evarl.truth.monte_carlo import Truth


def sampled(values: np.ndarray, rollouts: int, noise: float) -> Truth:
    """A truth of known values from normal returns."""
    returns = values[:, None] + noise * np.random.default_rng(0).normal(size=(len(values), rollouts))
    error = returns.std(axis=1, ddof=1) / rollouts**0.5
    return Truth(returns.mean(axis=1), error, returns.mean(axis=1), rollouts)


def test_a_perfect_predictor_has_no_error_but_the_noise_of_the_truth():
    values = np.linspace(-3, 3, 2000)
    truth = sampled(values, 16, 2.0)
    found = score(truth, values[None])
    assert found.mae == pytest.approx(0.5 * np.sqrt(2 / np.pi), rel=0.05), "E|noise|, s.e. 0.5: MAE is not corrected"
    assert abs(found.mse) < 3 * found.noise
    assert found.noise == pytest.approx(0.25 * np.sqrt(2 / 2000), rel=0.1)
    assert root(MeanAndError(min(found.mse, 0.0))).mean == 0.0


def test_a_known_error_is_found_under_the_noise():
    values = np.linspace(-3, 3, 2000)
    found = score(sampled(values, 4, 2.0), values[None] + 0.7)
    assert found.mse == pytest.approx(0.49, abs=0.1)
    assert found.bias == pytest.approx(0.7, abs=0.07)


def test_errors_are_averaged_over_what_is_shuffled_not_taken_of_the_average():
    truth = Truth(np.zeros(4), np.zeros(4), np.zeros(4), rollouts=2)
    found = score(truth, np.array([np.full(4, 1.0), np.full(4, -1.0)]))
    assert (found.mae, found.mse, found.bias, found.rank) == (1.0, 1.0, 0.0, None)


def test_ranks_are_spearmans_and_undefined_for_constants_and_two_states():
    rng = np.random.default_rng(1)
    for _ in range(20):
        values, predicted = rng.integers(0, 6, size=(2, 12)).astype(float)
        truth = Truth(values, np.ones(12), values, rollouts=2)
        assert score(truth, predicted[None]).rank == pytest.approx(spearmanr(values, predicted).statistic, abs=1e-9)
        assert score(truth, np.ones((1, 12))).rank is None
    two = Truth(np.array([1.0, 2.0]), np.ones(2), np.ones(2), rollouts=2)
    assert score(two, np.array([[1.0, 2.0]])).rank is None


def squares(*values: float) -> np.ndarray:
    return np.array(values)


def scores(*squared: float, noise: float = 0.0) -> list[Score]:
    return [Score(mae=0.0, mse=value, bias=0.0, rank=None, noise=noise) for value in squared]


def test_skill_divides_averages_and_its_error_is_the_jackknifes():
    found = skill(scores(1.0, 3.0), {"critic": scores(9.0, 1.0), "mean": scores(5.0, 3.0)})
    assert found.best_without == "mean", "4 on average, although the critic is best for one seed"
    assert found.estimate.mean == pytest.approx(0.5)
    left_out = np.array([1 - 3 / 3, 1 - 1 / 5])
    assert found.estimate.standard_error == pytest.approx(np.sqrt(left_out.var()))
    assert found.estimate == relative_improvement(squares(1.0, 3.0), squares(5.0, 3.0))


def test_a_seed_whose_reference_is_almost_right_does_not_decide_the_skill():
    errors, reference = squares(1.0, 1.0, 1.0), squares(3.0, 3.0, 1e-6)
    assert (1 - errors / reference).mean() < -1e5, "the mean of ratios"
    assert relative_improvement(errors, reference).mean == pytest.approx(0.5)


def test_there_is_no_skill_against_an_error_within_the_noise():
    one = scores(1.0)
    assert skill(one, {"critic": scores(0.1, noise=0.06)}).estimate.mean is None
    assert skill(one, {"critic": scores(-0.1)}).estimate.mean is None
    assert skill(one, {}).best_without is None
    assert skill(one, {"critic": scores(0.5, noise=0.06)}).estimate == MeanAndError(-1.0)


def test_averages_leave_out_what_is_unknown():
    assert average([None, None]) == MeanAndError(None)
    assert average([2.0], error=0.5) == MeanAndError(2.0, 0.5)
    assert average([2.0, None]) == MeanAndError(2.0)
