"""Distributions of returns: exact on a log that holds every trajectory as often as it is probable."""

import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.returns import doubly_robust_terms, proper
from evarl.ope.trajectories import trajectories
from evarl.stats import weighted_distribution
from tests.ope.chains import DISCOUNT, STEPS, data, drawn, everything, exact, policy, probability, walked

TARGET = 0.8
SETTINGS = ope.Settings(resamples=200)
TRUTH = weighted_distribution(*exact(TARGET))


def log_of(start, action, switch=0.5):
    return ope.Log(data(start, action, switch), DISCOUNT)


ALL = log_of(*everything())


def found(log=ALL, switch=TARGET, settings=SETTINGS, **options):
    return ope.return_distribution(log, policy(switch), settings, **options)


@pytest.mark.parametrize("method", ["tis", "wis"])
def test_exact_where_the_log_is_the_population(method):
    one = found(method=method)
    assert np.array_equal(one.points, TRUTH.points)
    np.testing.assert_allclose(one.cdf, TRUTH.cdf, atol=1e-6)
    returns, chance = exact(TARGET)
    mean = returns @ chance
    assert one.mean == pytest.approx(mean, abs=1e-6)
    assert one.variance == pytest.approx((returns - mean) ** 2 @ chance, abs=1e-6)
    for share in (0.05, 0.3, 0.77):
        assert one.quantile(share) == TRUTH.quantile(share)
        assert one.cvar(share) == pytest.approx(TRUTH.cvar(share), abs=1e-5)
    assert "3 steps" in one.estimand


class Table:
    """A model with any values at all, that depend on the trajectory up to s_t and a_t only."""

    def __init__(self, start, action, q):
        self.start, self.action, self.q = start, action, q

    def __call__(self, step, points):
        seen, _ = walked(self.start, self.action)
        both = []
        for choice in (0, 1):
            past = [(s, *a[:step], choice) for s, a in zip(self.start.tolist(), self.action.tolist(), strict=True)]
            both.append(np.stack([self.q(one, points) for one in past]))
        flip = probability(TARGET, seen[:, step], 1)[:, None]
        q = np.where(self.action[:, step, None] == 1, both[1], both[0])
        return q, flip * both[1] + (1 - flip) * both[0]


def anything(past, points):
    return np.random.default_rng([9, *past]).random(len(points))


def truth(past, points):
    """P(G ≤ x | start and actions so far) under the target policy, by listing what can follow."""
    total = np.zeros(len(points))
    start, first = past[0], past[1:]
    for number in range(2 ** (STEPS - len(first))):
        rest = tuple(number >> k & 1 for k in range(STEPS - len(first)))
        state, value, chance = start, 0.0, 1.0
        for t, action in enumerate((*first, *rest)):
            value += DISCOUNT**t * state
            chance *= probability(TARGET, np.array(state), np.array(action)) if t >= len(first) else 1.0
            state = (state + action) % 2
        total += chance * (value <= points)
    return total


def test_doubly_robust_is_unbiased_for_any_model():
    terms = doubly_robust_terms(
        trajectories(ALL, policy(TARGET), SETTINGS), Table(*everything(), anything), TRUTH.points
    )
    np.testing.assert_allclose(terms.mean(axis=0), TRUTH.cdf, atol=1e-6)
    one = found(method="dr", model=Table(*everything(), anything))
    np.testing.assert_allclose(one.cdf, TRUTH.cdf, atol=1e-6)


def test_doubly_robust_has_no_variance_with_the_true_model():
    start, action = drawn(np.random.default_rng(0), 40)
    terms = doubly_robust_terms(
        trajectories(log_of(start, action), policy(TARGET), SETTINGS), Table(start, action, truth), TRUTH.points
    )
    for s in (0, 1):
        assert np.ptp(terms[start == s], axis=0).max() < 1e-5


@pytest.mark.slow
def test_a_fitted_model_lowers_the_error():
    errors = []
    for seed in range(30):
        log = log_of(*drawn(np.random.default_rng(seed), 150))
        model = ope.KernelCDF(log, policy(TARGET), SETTINGS)
        none = ope.BandSettings(kind="none")
        both = [found(log, method="dr", model=model, band=none), found(log, method="tis", band=none)]
        errors.append([np.square(one.at(TRUTH.points) - TRUTH.cdf).mean() for one in both])
    assert np.mean(errors, axis=0)[0] < 0.5 * np.mean(errors, axis=0)[1]


def test_a_fitted_model_does_not_see_its_own_trajectory():
    start, action = drawn(np.random.default_rng(3), 30)
    model = ope.KernelCDF(log_of(start, action), policy(TARGET), SETTINGS)
    before = model(1, TRUTH.points)
    altered = data(start, action)
    own = np.flatnonzero(model._fold == model._fold[0])
    reward = np.array(altered.reward)
    reward[own, 1:] = 7.0
    again = ope.KernelCDF(ope.Log(altered.replace(reward=reward), DISCOUNT), policy(TARGET), SETTINGS)(1, TRUTH.points)
    for x, y in zip(before, again, strict=True):
        np.testing.assert_allclose(x[own], y[own], atol=1e-12)
        assert np.abs(np.delete(x - y, own, axis=0)).max() > 0.01


def test_isotonic_and_within_bounds():
    row = np.array([[-0.1, 0.5, 0.3, 1.2, 1.1]])
    np.testing.assert_allclose(proper(row), [[0.0, 0.4, 0.4, 1.0, 1.0]])


@pytest.mark.parametrize("method", ["tis", "wis"])
def test_the_same_policy_gives_the_empirical_distribution_and_its_dkw_band(method):
    log = log_of(*drawn(np.random.default_rng(1), 80))
    band = ope.BandSettings(kind="dkw", weight_bound=1.0) if method == "tis" else ope.BandSettings()
    one = found(log, 0.5, method=method, band=band)
    returns = trajectories(log, policy(0.5), SETTINGS).returns
    share = np.array([(returns <= x).mean() for x in one.points])
    np.testing.assert_allclose(one.cdf, share, atol=1e-6)
    if method == "tis":
        reach = np.sqrt(np.log(2 / 0.05) / 160)
        np.testing.assert_allclose(one.band.lower[1:-1], np.maximum(share - reach, 0), atol=1e-9)
        np.testing.assert_allclose(one.band.upper[1:-1], np.minimum(share + reach, 1), atol=1e-9)


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_coverage_of_bands(count):
    """Guaranteed bands always hold at least as often as they say; the bootstrap about as often here."""
    settings = ope.Settings(confidence=0.8, resamples=100)
    kinds = {
        "dkw": ope.BandSettings(kind="dkw", weight_bound=1.6**3, return_range=(0.0, 1.75)),
        "cut": ope.BandSettings(kind="dkw", truncate=1.5, return_range=(0.0, 1.75)),
        "bootstrap": ope.BandSettings(return_range=(0.0, 1.75)),
    }
    held = {name: [] for name in kinds}
    generator = np.random.default_rng(2)
    for _ in range(count):
        log = log_of(*drawn(generator, 100))
        for name, band in kinds.items():
            method = "wis" if name == "bootstrap" else "tis"
            one = found(log, settings=settings, method=method, band=band).band
            held[name].append(one.contains(TRUTH))
            if held[name][-1]:
                assert one.mean()[0] <= TRUTH.mean + 1e-9
                assert one.cvar(0.2)[0] - 1e-9 <= TRUTH.cvar(0.2) <= one.cvar(0.2)[1] + 1e-9
    assert np.mean(held["dkw"]) >= 0.8
    assert np.mean(held["cut"]) >= 0.8
    assert 0.65 < np.mean(held["bootstrap"]) < 0.97


def test_betting_band_through_the_log():
    log = log_of(*drawn(np.random.default_rng(4), 300))
    band = ope.BandSettings(kind="betting", weight_bound=1.6**3, return_range=(0.0, 1.75), grid=(0.0, 0.5, 1.0, 1.5))
    one = found(log, method="tis", band=band)
    assert one.band.contains(TRUTH)
    assert "fixed beforehand" in one.assumptions


def test_collapsed_weights_have_no_bootstrap_band():
    start, action = drawn(np.random.default_rng(5), 100, 0.02)
    log = log_of(start, action, 0.02)
    with pytest.warns(ope.CollapsedWeights, match="no bootstrap band"):
        one = found(log, 0.98, method="wis")
    assert one.band is None
    assert one.effective_sample_size < 5


def test_cut_logs_are_refused():
    whole = data(*drawn(np.random.default_rng(6), 5))
    mask = np.ones((5, STEPS), bool)
    mask[3, 2] = False
    for flag, text in (
        ("truncated", "trajectory 3 stops after 2 of 3 steps without having terminated"),
        ("terminated", None),
    ):
        flags = np.zeros((5, STEPS), bool)
        flags[3, 1] = True
        log = ope.Log(whole.replace(mask=mask, **{flag: flags}), DISCOUNT)
        if text is None:
            assert found(log).cdf[-1] == 1.0
        else:
            with pytest.raises(InputError, match=text):
                found(log)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "pdis"}, "method"),
        ({"method": "dr"}, "model: is missing"),
        ({"method": "wis", "band": ope.BandSettings(kind="dkw", truncate=2.0)}, "dkw is not valid for method wis"),
        ({"method": "tis", "band": ope.BandSettings(kind="dkw")}, "must be one of them, fixed beforehand"),
        (
            {"method": "tis", "band": ope.BandSettings(kind="dkw", truncate=2.0, behaviour="estimated")},
            "estimated is not allowed",
        ),
        ({"method": "tis", "band": ope.BandSettings(kind="dkw", weight_bound=1.2)}, "is exceeded by a weight of"),
        ({"method": "tis", "band": ope.BandSettings(kind="betting", truncate=2.0)}, "return_range: is missing"),
        (
            {"method": "tis", "band": ope.BandSettings(kind="dkw", truncate=2.0, return_range=(0.0, 1.0))},
            "must contain all values that are possible",
        ),
        ({"method": "wis", "points": [1.0]}, "takes neither a model nor points"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(InputError, match=text) as error:
        found(**options)
    assert "\n" not in str(error.value)


def test_same_policy_claimed_of_another_is_refused():
    start, action = drawn(np.random.default_rng(7), 4)
    with pytest.raises(InputError, match="weight_bound: 1"):
        found(log_of(start, action), 0.1, method="tis", band=ope.BandSettings(kind="dkw", weight_bound=1.0))
