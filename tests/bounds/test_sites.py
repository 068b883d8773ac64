"""Bounds on what a policy returns on a new site."""

import re
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import PAGE
from benchmarks.sites import CASES, FAMILIES, coverage
from evarl.bounds import Range, SiteCalibration, least_sites, site_bound, site_index
from evarl.errors import InputError

REPETITIONS = 500
UNIT = Range(0, 1)


def test_by_hand():
    found = site_bound(SiteCalibration([1.0, 1.0, 1.0, 1.0], [3.0, 8.0, 4.0, 9.0], 5), 0.5)
    assert (found.index, found.margin) == (2, 3.0), "⌊5 · ½⌋ = 2, the second of 2, 3, 7, 8"
    assert (found.sites, found.episodes, found.delta, found.value_error) == (4, 5, None, 0.0)
    assert found.at(10.0) == 13.0
    assert found.at([10.0, 0.5]).tolist() == pytest.approx([13.0, 3.5])
    assert found.gap([10.0, 0.5], [14.0, 3.0]) == pytest.approx(0.25), "1 above, ½ below"


def test_quantiles_take_the_place_of_predictions():
    found = site_bound(SiteCalibration([9.0, 9.0, 9.0, 9.0], [3.0, 8.0, 4.0, 9.0], 5, [0.0, 7.0, 2.0, 2.0]), 0.5)
    assert found.margin == 2.0, "the second of 1, 2, 3, 7"
    assert found.at(-4.0) == pytest.approx(-2.0)


def test_ranks_by_hand():
    assert [site_index(n) for n in (19, 38, 39, 99)] == [1, 1, 2, 5]
    assert [site_index(n, 0.1) for n in (9, 18, 19, 29)] == [1, 1, 2, 3]
    assert [site_index(n, 0.05, 0.05) for n in (59, 92, 93)] == [1, 1, 2], "Wilks"
    assert [site_index(n, 0.05, value_error=0.2) for n in (24, 48, 49, 99)] == [1, 1, 2, 4], "⌊(n + 1) · .04⌋"
    assert least_sites(0.05, 0.05, 0.2) == 74, ".96^73 = .0508, .96^74 = .0488"
    assert (least_sites(0.1), least_sites(0.1, 0.1)) == (9, 22), ".9^21 = .109, .9^22 = .098"


def test_means_and_lower_bounds_of_episodes():
    returns = [[0.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.0, 0.0]]
    measured = SiteCalibration.measured([0.5, 0.5], returns)
    assert measured.returns.tolist() == [0.75, 0.25]
    assert (measured.episodes, measured.value_error) == (4, 0.0)
    bounded = SiteCalibration.bounded([0.5, 0.5], returns, UNIT, 0.3, [0.1, 0.2])
    assert (bounded.episodes, bounded.value_error) == (4, 0.3)
    assert (bounded.returns < measured.returns).all()
    assert bounded.scores.tolist() == pytest.approx((bounded.returns - [0.1, 0.2]).tolist())


@pytest.mark.parametrize(("n", "alpha"), [(4, 0.2), (4, 0.5), (5, 0.4), (9, 0.1), (19, 0.05), (39, 0.05)])
def test_coverage_of_different_scores_is_exact(n, alpha):
    """Whichever of n + 1 sites is the new one, with equal probability: all but k are covered."""
    scores = np.random.default_rng(n).normal(size=n + 1)
    predictions = np.random.default_rng(n + 1).normal(size=n + 1)
    returns = predictions + scores
    covered = 0
    for new in range(n + 1):
        bound = site_bound(SiteCalibration(np.delete(predictions, new), np.delete(returns, new), 1), alpha)
        covered += returns[new] >= bound.at(predictions[new])
    assert covered == n + 1 - site_index(n, alpha)


@pytest.mark.parametrize(
    ("scores", "alpha", "expected"),
    [
        ((0, 0, 1, 1, 3), 0.2, 1.0),
        ((0, 0, 1, 1, 3), 0.4, 0.6),
        ((0, 0, 0, 1, 3), 0.4, 1.0),
        ((0, 0, 1, 1, 1), 0.6, 0.6),
    ],
)
def test_coverage_of_equal_scores_is_no_less(scores, alpha, expected):
    covered = []
    for *old, new in permutations(scores):
        covered.append(new >= site_bound(SiteCalibration([0.0] * 4, old, 1), alpha).at(0.0))
    assert np.mean(covered) == expected >= 1 - alpha


def test_rounding_leaves_equal_scores_covered():
    rng = np.random.default_rng(0)
    for value, prediction, far in rng.normal(size=(200, 3)) * [1.0, 1.0, 1000.0]:
        for relative_to in (prediction, far):
            bound = site_bound(SiteCalibration([relative_to] * 19, [value] * 19, 1))
            assert bound.at(relative_to) <= value
            assert bound.at(relative_to) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("alpha", "delta"), [(0.05, 0.05), (0.1, 0.05), (0.2, 0.1)])
def test_confidence_over_calibrations_is_that_of_beta(alpha, delta):
    """The coverage of uniform scores is 1 minus the k-th of n, which has a Beta distribution."""
    for n in (least_sites(alpha, delta), 100, 333):
        k = site_index(n, alpha, delta)
        assert stats.beta.cdf(alpha, k, n - k + 1) >= 1 - delta > stats.beta.cdf(alpha, k + 1, n - k)
        # Of one calibration alone, without δ, the coverage is below 1 − α about every second time.
        k = site_index(n, alpha)
        assert stats.beta.cdf(alpha, k, n - k + 1) < 1 - delta


def test_what_is_measured_is_not_what_it_is_worth():
    """Episodes of −100, one in a hundred, or 0: V is −1 on every site, and a mean of five is mostly 0."""
    rng = np.random.default_rng(0)
    returns = np.where(rng.random((REPETITIONS, 20, 5)) < 0.01, -100.0, 0.0)
    predictions = [-1.0] * 19
    means = returns.mean(axis=2)
    measured = np.array([site_bound(SiteCalibration(predictions, row[:19], 5)).at(-1.0) for row in means])
    assert np.mean(means[:, 19] >= measured) >= 0.95, "what it says holds"
    assert np.mean(measured <= -1.0) < 0.7, "the other does not: k = 1, and .99^95 = .38"


def test_symmetric_errors_do_not_suffice():
    rng = np.random.default_rng(1)
    values = -(rng.random((REPETITIONS, 1000)) < 1 / 17).astype(float)
    measured = values + rng.uniform(-0.1, 0.1, values.shape)
    bounds = np.array([site_bound(SiteCalibration(np.zeros(999), row[:999], 1)).at(0.0) for row in measured])
    assert bounds.max() < 0
    assert np.mean(bounds > -1) / 17 > 0.05, "one new site in 17 is worth −1, and the bound is mostly above"
    halved = np.array(
        [site_bound(SiteCalibration(np.zeros(999), row[:999], 1, value_error=0.5)).at(0.0) for row in measured]
    )
    assert np.mean(halved > -1) / 17 <= 0.05, "J is at most V with probability ½, and so a lower bound with β = ½"


@pytest.mark.parametrize(("n", "beta"), [(49, 0.2), (199, 0.5)])
def test_a_level_of_lower_bounds_is_a_factor(n, beta):
    """V is uniform, and ℓ = V except that it is too high with probability exactly β: the error is α, no more and no less."""
    alpha = 0.1
    k = site_index(n, alpha, value_error=beta)
    assert k == pytest.approx((n + 1) * alpha * (1 - beta))
    rng = np.random.default_rng(n)
    values = rng.random((4000, n))
    lower = np.where(rng.random(values.shape) < beta, 2.0, values)
    errors = [
        min(1.0, site_bound(SiteCalibration(np.zeros(n), row, 1, value_error=beta), alpha).margin) for row in lower
    ]
    assert np.mean(errors) == pytest.approx(alpha, abs=3 * np.std(errors) / np.sqrt(len(errors)))


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[] if name == "two-valued" else pytest.mark.slow) for name in FAMILIES]
)
@pytest.mark.parametrize("case", CASES)
def test_simulated_coverage(case, family):
    for alpha in (0.1, 0.05):
        found = coverage(CASES[case], FAMILIES[family], 100, REPETITIONS, alpha)
        level = CASES[case].error(alpha)
        assert found.coverage >= 1 - level - 2 * np.sqrt(level * (1 - level) / REPETITIONS), alpha


def test_the_page_has_the_table():
    text = PAGE.read_text()
    assert all(name in text for name in (*CASES, *FAMILIES))


def test_a_prediction_pays_in_the_gap():
    rng = np.random.default_rng(3)
    values, new = rng.random(500), rng.random(500)
    informed = site_bound(SiteCalibration(values + rng.normal(0, 0.1, 500), values, 1), 0.1)
    blind = site_bound(SiteCalibration(np.full(500, 0.5), values, 1), 0.1)
    assert informed.gap(new + rng.normal(0, 0.1, 500), new) < 0.5 * blind.gap(np.full(500, 0.5), new)


@pytest.mark.parametrize("alpha", [0.1, 0.05])
@pytest.mark.slow
def test_quantiles_have_the_level_and_pay_where_tests_are_clear(alpha):
    """Half of the tests are clear, with a tenth of the others' spread. q̂ is the quantile of level .1 at both levels."""
    rng, n, repetitions = np.random.default_rng(4), 99, 2000
    predictions = rng.normal(size=(repetitions, n + 1))
    spread = np.where(rng.random(predictions.shape) < 0.5, 0.1, 1.0)
    returns = predictions + spread * rng.normal(size=predictions.shape)
    quantiles = predictions + stats.norm.ppf(0.1) * spread
    covered, gaps = np.empty((2, repetitions), bool), np.empty((2, repetitions))
    for i in range(repetitions):
        known = predictions[i, :n], returns[i, :n], 1
        for which, (calibration, new) in enumerate(
            (
                (SiteCalibration(*known), predictions[i, n]),
                (SiteCalibration(*known, quantiles[i, :n]), quantiles[i, n]),
            )
        ):
            bound = site_bound(calibration, alpha).at(new)
            covered[which, i], gaps[which, i] = returns[i, n] >= bound, returns[i, n] - bound
    error = np.sqrt(alpha * (1 - alpha) / repetitions)
    assert np.abs(covered.mean(axis=1) - (1 - alpha)).max() < 3 * error, (
        "exactly 1 − k/(n + 1), no two scores are equal"
    )
    # For V̂, P(Z < −q) ≈ 2α: q = .84 or 1.28. For q̂ the margin is 0 or −.1, below a mean quantile of .55 · 1.28.
    wide, narrow = gaps.mean(axis=1)
    assert narrow < 0.85 * wide
    assert (wide, narrow) == pytest.approx({0.1: (0.84, 0.70), 0.05: (1.28, 0.80)}[alpha], abs=0.08)


def test_a_constant_bias_of_quantiles_is_corrected():
    rng = np.random.default_rng(5)
    quantiles, returns = rng.normal(size=(2, 50))
    straight, biased = (site_bound(SiteCalibration(quantiles, returns, 1, quantiles + by)) for by in (0.0, 7.0))
    assert biased.margin == pytest.approx(straight.margin - 7.0)
    assert biased.at(1.0 + 7.0) == pytest.approx(straight.at(1.0))


FOUR = [0.1, 0.2, 0.3, 0.4]
REFUSED = {
    "few sites": (
        lambda: site_bound(SiteCalibration([0.0] * 18, [0.0] * 18, 5)),
        "returns: there are 18 sites; must be at least 19 for alpha 0.05",
    ),
    "few sites for a confidence": (
        lambda: site_bound(SiteCalibration([0.0] * 58, [0.0] * 58, 5), 0.05, 0.05),
        "returns: there are 58 sites; must be at least 59 for alpha 0.05, delta 0.05",
    ),
    "few sites for their worth": (
        lambda: site_bound(SiteCalibration([0.0] * 23, [0.0] * 23, 5, value_error=0.2)),
        "returns: there are 23 sites; must be at least 24 for alpha 0.05, value_error 0.2",
    ),
    "no sites": (lambda: SiteCalibration([], [], 1), "predictions: has length 0; must be at least 1 sites"),
    "predictions": (
        lambda: SiteCalibration([np.nan, 0.0], [0.0, 0.0], 1),
        "predictions: is nan at [0]; must be finite",
    ),
    "returns": (lambda: SiteCalibration([0.0, 0.0], [0.0, np.inf], 1), "returns: is inf at [1]; must be finite"),
    "quantiles": (
        lambda: SiteCalibration([0.0, 0.0], [0.0, 0.0], 1, [-np.inf, 0.0]),
        "quantiles: is -inf at [0]; must be finite",
    ),
    "lengths": (
        lambda: SiteCalibration(FOUR, FOUR[:3], 1),
        "returns: has length 3; must be 4, one for each of the sites",
    ),
    "quantiles' length": (
        lambda: SiteCalibration(FOUR, FOUR, 1, FOUR[:3]),
        "quantiles: has length 3; must be 4, one for each of the sites",
    ),
    "episodes": (lambda: SiteCalibration(FOUR, FOUR, 0), "episodes: 0 is not allowed; must be at least 1"),
    "error": (
        lambda: SiteCalibration(FOUR, FOUR, 1, value_error=1.0),
        "value_error: 1 is not allowed; must be 0 or more and below 1",
    ),
    "no number": (
        lambda: SiteCalibration(FOUR, FOUR, 1, value_error=float("nan")),
        "value_error: nan is not allowed; must be 0 or more and below 1",
    ),
    "no error": (
        lambda: SiteCalibration.bounded(FOUR, [FOUR] * 4, UNIT, 0.0),
        "value_error: 0.0 is not allowed; must be a number between 0 and 1, such as 0.2",
    ),
    "shape": (
        lambda: SiteCalibration.measured(FOUR, FOUR),
        "returns: has shape (4,); must be [sites, episodes], at least one of each",
    ),
    "no episodes": (
        lambda: SiteCalibration.measured(FOUR, np.zeros((4, 0))),
        "returns: has shape (4, 0); must be [sites, episodes], at least one of each",
    ),
    "range": (
        lambda: SiteCalibration.bounded([0.0], [[0.5, 2.0]], UNIT),
        "returns: 2 is outside the range [0, 1]; the range must contain every possible rollout and be fixed before the first",
    ),
    "alpha": (
        lambda: site_bound(SiteCalibration(FOUR, FOUR, 1), 0.0),
        "alpha: 0.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "delta": (
        lambda: site_bound(SiteCalibration(FOUR, FOUR, 1), 0.5, 1.0),
        "delta: 1.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "new site": (
        lambda: site_bound(SiteCalibration(FOUR, FOUR, 1), 0.5).at(np.nan),
        "predictions: is nan at []; must be finite",
    ),
    "gap": (
        lambda: site_bound(SiteCalibration(FOUR, FOUR, 1), 0.5).gap(FOUR, FOUR[:2]),
        "truths: has length 2; must be 4, the same sites as predictions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_sentences(case):
    call, sentence = REFUSED[case]
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        call()
