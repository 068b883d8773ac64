"""How many seeds decide a claim: known answers, numerical integration and simulation."""

import numpy as np
import pytest
from scipy import integrate, stats

from evarl.stats import t_interval
from evarl.studies.power import ENDLESS, detectable, power, seeds_for, seeds_for_all, seeds_for_some, seeds_needed
from evarl.studies.verdicts import check_all_larger, check_falling, check_larger, check_some_larger


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_sizes_of_textbooks(effect, seeds):
    """Paired t test, two-sided at 5 %, power 80 % (Cohen's small, medium and large effect, and 1)."""
    assert seeds_for(effect) == seeds_for(-effect) == seeds
    assert power(effect, seeds - 1) < 0.8 <= power(effect, seeds)


def test_two_seeds_by_hand():
    """With one degree of freedom s/σ = |w| for a standard normal w, so that P(|z + √2 δ| > t |w|) is a single integral."""
    effect, t = 10.0, np.tan(0.475 * np.pi)  # the quantile of the Cauchy distribution: 12.706
    assert t == pytest.approx(12.7062, abs=1e-4)

    def given(w):
        z = effect * 2**0.5
        return 2 * stats.norm.pdf(w) * (stats.norm.cdf(z - t * w) + stats.norm.cdf(-z - t * w))

    by_hand = integrate.quad(given, 0, 10, epsabs=1e-12)[0]
    assert power(effect, 2) == pytest.approx(by_hand, abs=1e-9)


def test_many_seeds_are_as_with_a_known_deviation():
    """(z(0.975) + z(0.8))² / δ² = 7.8489 / 0.01 = 784.9, and two more for the estimated deviation."""
    assert (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2 == pytest.approx(7.8489, abs=1e-4)
    assert seeds_for(0.1) == 787
    assert seeds_for(0.08) == ENDLESS


@pytest.mark.parametrize(("effect", "seeds", "confidence"), [(0.7, 5, 0.95), (2.0, 3, 0.95), (1.0, 10, 0.975)])
def test_simulated_intervals_exclude_0_as_often(effect, seeds, confidence):
    rng, trials = np.random.default_rng(0), 20_000
    x = effect + rng.normal(size=(trials, seeds))
    half = stats.t.ppf((1 + confidence) / 2, seeds - 1) * x.std(axis=1, ddof=1) / seeds**0.5
    share, expected = np.mean(np.abs(x.mean(axis=1)) > half), power(effect, seeds, confidence)
    assert abs(share - expected) < 4 * (expected * (1 - expected) / trials) ** 0.5
    found = t_interval(x[0], confidence)
    assert (found.low > 0 or found.high < 0) == (abs(x[0].mean()) > half[0])


def test_power_is_a_probability_that_grows():
    for seeds in (2, 3, 10, 100, 1000):
        grid = [power(effect, seeds) for effect in np.geomspace(1e-3, 1e6, 60)]
        assert all(0.05 - 1e-9 <= one <= 1.0 + 1e-9 for one in grid)
        assert np.all(np.diff(grid) > -1e-9)
        assert grid[-1] == pytest.approx(1.0, abs=1e-6)


def test_needed_seeds_have_no_unit_and_detectable_effects_have_that_of_the_differences():
    x = np.array([0.3, -0.1, 0.9, 0.4])
    assert seeds_needed(x) == seeds_needed(1000 * x) == seeds_needed(-x) == seeds_for(x.mean() / x.std(ddof=1))
    assert detectable(1000 * x) == pytest.approx(1000 * detectable(x))
    assert power(detectable(x) / x.std(ddof=1), 4) == pytest.approx(0.8, abs=1e-8)
    assert detectable(x + 7.0) == pytest.approx(detectable(x)), "the observed mean does not matter"


def test_differences_that_do_not_vary():
    assert seeds_needed(np.full(3, 2.0)) == 2
    assert seeds_needed(np.zeros(3)) == ENDLESS
    assert detectable(np.full(3, 2.0)) == 0.0


def test_what_decides_a_claim_of_several_parts():
    clear, weak, against = np.array([1.0, 1.1, 0.9]), np.array([1.0, -0.4, 0.9]), np.array([-1.0, -0.2, -0.9])
    assert seeds_for_all([clear, weak], [clear, weak], 0.975) == seeds_needed(weak) > seeds_needed(clear)
    assert seeds_for_all([clear, weak, against], [clear, weak, against], 0.975) == seeds_needed(against, 0.975)
    assert seeds_for_some([weak, against], 0.975) == seeds_needed(weak, 0.975)
    assert seeds_for_some([against, -clear], 0.975) == seeds_needed(against)


def by_seed(*values):
    return dict(enumerate(values))


def test_checks_say_how_many_seeds_they_had_and_would_need():
    weak, zero = by_seed(1.0, -0.4, 0.9), by_seed(0.0, 0.0, 0.0)
    x = np.array(list(weak.values()))
    check = check_larger("c", "q", weak, zero)
    assert (check.verdict, check.seeds, check.seeds_needed) == ("undecided", 3, seeds_needed(x))
    assert check.detectable == detectable(x)
    check = check_all_larger("c", "q", {"a": by_seed(1.0, 1.1, 0.9), "b": weak}, zero)
    assert (check.seeds, check.seeds_needed) == (3, seeds_needed(x)), "each part must hold at 95 %"
    assert check_falling("c", "q", {"a": weak, "b": zero}).seeds_needed == seeds_needed(x)
    check = check_some_larger("c", "q", {"a": (weak, zero), "b": (weak, zero)})
    assert (check.seeds_needed, check.detectable) == (seeds_needed(x, 0.975), detectable(x, 0.975))
    missing = check_larger("c", "q", {}, zero)
    assert (missing.seeds, missing.seeds_needed, missing.detectable) == (None, None, None)
