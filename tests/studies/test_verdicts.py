"""Verdicts: known answers, and how often they are wrong when simulated."""

import numpy as np
import pytest
from scipy import stats

from evarl.studies.reports import MeanAndError
from evarl.studies.verdicts import (
    bootstrap_bounds,
    check_agrees,
    check_all_larger,
    check_falling,
    check_larger,
    check_some_larger,
    lowered_by_share,
)


def by_seed(*values):
    return dict(enumerate(values))


def test_a_paired_difference_with_its_interval():
    """Differences 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.302653, so 2 ± 4.302653 / √3."""
    check = check_larger("a above b", "a less b", by_seed(2.0, 4.0, 6.0), by_seed(1.0, 2.0, 3.0))
    assert check.effect == 2.0
    assert check.interval == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-5)
    assert check.verdict == "undecided"


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "holds"), (-1.0, "does not hold"), (0.0, "undecided")])
def test_the_sign_decides(shift, verdict):
    noise = (0.01, -0.02, 0.01)
    check = check_larger("c", "q", by_seed(*(shift + x for x in noise)), 0.0)
    assert check.verdict == verdict


def test_only_shared_seeds_are_paired_and_one_is_too_few():
    one = {0: 1.0, 1: 1.1, 2: 5.0}
    assert check_larger("c", "q", one, {0: 0.0, 1: 0.0}).effect == pytest.approx(1.05)
    lonely = check_larger("c", "q", one, {2: 0.0})
    assert (lonely.verdict, lonely.effect) == ("undecided", None)
    assert check_larger("c", "q", {}, one).verdict == "undecided"


def test_every_baseline_must_be_beaten():
    mine = by_seed(1.0, 1.0, 1.0)
    worse, better = by_seed(2.0, 2.1, 1.9), by_seed(0.5, 0.6, 0.4)
    assert check_all_larger("c", "q", {"a": worse, "b": worse}, mine).verdict == "holds"
    check = check_all_larger("c", "q", {"a": worse, "b": better}, mine)
    assert check.verdict == "does not hold"
    assert check.effect == pytest.approx(-0.5)
    assert check.quantity.endswith("here of b")
    assert check_all_larger("c", "q", {"a": worse, "b": {}}, mine).verdict == "undecided"


def test_falling_may_stay_level_but_not_rise():
    high, low = by_seed(2.0, 2.1, 1.9, 2.0), by_seed(1.0, 1.1, 0.9, 1.0)

    def judged(*steps):
        return check_falling("c", "q", dict(zip("abc", steps, strict=False)))

    assert judged(high, high, low).verdict == "holds"
    rising = judged(high, low, high)
    assert (rising.verdict, rising.quantity) == ("does not hold", "fall of q from b to c"), (
        "the step that decides is shown"
    )
    assert rising.interval[1] < 0
    assert judged(low, high).verdict == "does not hold"
    assert judged(high, high).verdict == "undecided"
    assert judged(high, {}, low).verdict == "undecided"


def test_what_is_undecided_shows_an_interval_with_both_answers():
    """At 95 % the difference is clear; as one of two parts, it is not clear enough."""
    one, other, none = by_seed(0.0, -1.0, -0.9), by_seed(5.0, 5.1, 4.9), by_seed(1.0, 1.0, 1.0)
    assert check_larger("c", "q", one, none).verdict == "does not hold"
    check = check_all_larger("c", "q", {"one": one, "other": other}, none)
    assert (check.verdict, check.quantity, check.confidence) == ("undecided", "q; here of one", 0.975)
    assert check.interval[0] < 0 < check.interval[1]


@pytest.mark.slow
def test_wrong_verdicts_are_rare():
    """Where nothing differs, a claim of one part is decided in 5 % of all cases, half of them in either way; one of several
    parts holds less often still, and fails in 2.5 % at the most.
    """
    rng = np.random.default_rng(0)
    simple, every = [], []
    for _ in range(2000):
        a, b, c = (by_seed(*rng.normal(size=5)) for _ in range(3))
        simple.append(check_larger("c", "q", a, b).verdict)
        every.append(check_all_larger("c", "q", {"a": a, "b": b}, c).verdict)
    wide = 3 * np.sqrt(0.025 * 0.975 / 2000)
    for verdict in ("holds", "does not hold"):
        assert abs(simple.count(verdict) / 2000 - 0.025) < wide
        assert every.count(verdict) / 2000 < 0.025 + wide


def test_the_bootstrap_pairs_seeds():
    low, high = bootstrap_bounds(by_seed(11.0, 22.0, 33.0), by_seed(10.0, 20.0, 30.0))
    assert (low, high) == (1.0, 3.0)


def test_a_share_of_what_is_negative_lowers_it_too():
    assert lowered_by_share({3: 2.0, 4: -2.0}, 0.25) == {3: 1.5, 4: -2.5}
    assert lowered_by_share({}, 0.5) == {}


def test_one_of_several_is_enough_and_their_number_counts():
    """Two pairs share the level of 5 %, so that each has an interval of 97.5 %; all must fail at the full level."""
    clear, unclear, low = (by_seed(2.0, 2.1, 1.9), by_seed(1.0, 2.0, 3.0), by_seed(-1.0, -1.1, -0.9))
    zero = by_seed(0.0, 0.0, 0.0)
    check = check_some_larger("c", "q", {"a": (unclear, zero), "b": (clear, zero)})
    assert (check.verdict, check.quantity) == ("holds", "q; here of b")
    assert check.confidence == 0.975
    t = 6.205347  # of level 0.9875 with 2 degrees of freedom
    assert check.interval == pytest.approx((2 - t * 0.1 / 3**0.5, 2 + t * 0.1 / 3**0.5), abs=1e-5)
    assert check_some_larger("c", "q", {"a": (unclear, zero), "b": (low, zero)}).verdict == "undecided"
    failed = check_some_larger("c", "q", {"a": (low, zero), "b": (low, clear)})
    assert (failed.verdict, failed.quantity, failed.confidence) == ("does not hold", "q; here of a", 0.95)
    assert check_some_larger("c", "q", {"a": ({}, zero)}).verdict == "undecided"


def test_effects_know_what_they_are_compared_with():
    one, other = {0: 3.0, 1: 4.0, 2: 5.0}, {0: -2.0, 1: -4.0, 2: -3.0, 9: 100.0}
    assert check_larger("a", "x", one, other).baseline == 3.0  # of the seeds that both have
    assert check_larger("a", "x", one, 2.0).baseline == 2.0
    assert check_larger("a", "x", one, 0.0).baseline is None
    falling = check_falling("a", "x", {"β = 0": one, "β = 1": {0: 1.0, 1: 2.1, 2: 3.2}})
    assert falling.baseline == 4.0


def test_the_number_of_comparisons_stands_beside_their_level():
    same = {seed: 1.0 + 0.2 * (-1) ** seed for seed in range(6)}
    found = check_all_larger("a", "x", {"one": same, "two": dict(same)}, 1.0)
    assert (found.verdict, found.parts, found.confidence) == ("undecided", 2, 0.975)
    clear = check_all_larger("a", "x", {"one": same, "two": dict(same)}, 0.5)
    assert (clear.verdict, clear.parts, clear.confidence) == ("holds", 1, 0.95)


def test_what_is_exactly_equal_in_every_seed_is_not_below():
    same, more = by_seed(1.0, 2.0, 3.0), by_seed(2.0, 3.1, 4.0)
    check = check_larger("a below b", "b less a", same, same, "a note")
    assert (check.verdict, check.effect, check.interval) == ("does not hold", 0.0, (0.0, 0.0))
    assert check.note == "every difference is exactly 0: the two are equal; a note"
    assert check_larger("a at least b", "q", same, same, equal="holds").verdict == "holds"
    two = by_seed(1.0, 2.0)
    assert check_larger("c", "q", two, two).verdict == "undecided", "two seeds may be equal by chance"
    nearly = by_seed(1.0, 2.0, 3.0 + 1e-9)
    assert check_larger("c", "q", nearly, same).note == "an advantage of less than 10% (0.2) is none"
    assert check_larger("c", "q", nearly, same, equal="holds").verdict == "undecided"
    check = check_all_larger("c", "q", {"a": more, "b": same}, same)
    assert (check.verdict, check.quantity) == ("does not hold", "q; here of b")
    low = by_seed(0.0, 1.0, 2.1)
    assert check_all_larger("c", "q", {"a": low, "b": same}, same).effect == pytest.approx(-29 / 30), (
        "worse is told first"
    )
    assert check_some_larger("c", "q", {"a": (low, same), "b": (same, same)}).verdict == "does not hold"
    assert check_some_larger("c", "q", {"a": (more, same), "b": (same, same)}).verdict == "holds"
    assert check_falling("c", "q", {"a": same, "b": same}).verdict == "undecided"


def test_an_advantage_of_less_than_a_tenth_is_none():
    """Differences −0.1, 0, 0.1: mean 0 ± 4.302653 · 0.1/√3 = 0.248414, so that it matters whether a tenth is more than that."""
    wide, other = by_seed(2.4, 2.5, 2.6), by_seed(2.5, 2.5, 2.5)
    check = check_larger("c", "q", wide, other, "a note")
    assert (check.verdict, check.confidence) == ("does not hold", 0.95)
    assert check.interval == pytest.approx((-0.248414, 0.248414), abs=1e-5)
    assert check.note == "an advantage of less than 10% (0.25) is none; a note"
    lower = {seed: value - 0.1 for seed, value in wide.items()}, {seed: value - 0.1 for seed, value in other.items()}
    assert check_larger("c", "q", *lower).verdict == "undecided", "a tenth of 2.4 is less than 0.2484"
    small = by_seed(2.51, 2.511, 2.512)
    assert check_larger("c", "q", small, other).verdict == "holds", "an interval above 0 comes first"
    pair = {0: 2.4, 1: 2.6}
    assert check_larger("c", "q", pair, {0: 2.5, 1: 2.5}).verdict == "undecided"
    equal = check_larger("at least", "q", wide, other, equal="holds")
    assert equal.verdict == "undecided", "what may be a tenth lower has its tenth in the numbers that are compared"


def test_one_of_several_advantages_that_is_too_small_fails_the_claim():
    """At the level of each of two parts: t of 0.9875 with 2 degrees of freedom is 6.205347, 0.1/√3 of it 0.358266."""
    wide, far = by_seed(3.5, 3.6, 3.7), by_seed(9.0, 9.5, 10.0)
    found = check_all_larger("c", "q", {"near": wide, "far": far}, 3.6)
    assert (found.verdict, found.quantity, found.confidence, found.parts) == (
        "does not hold",
        "q; here of near",
        0.975,
        2,
    )
    assert found.interval == pytest.approx((-0.358266, 0.358266), abs=1e-5)
    less = by_seed(3.4, 3.5, 3.6)
    assert check_all_larger("c", "q", {"near": less, "far": far}, 3.5).verdict == "undecided", "0.358 is more than 0.35"


def test_agreement_with_a_printed_mean():
    """Ours 1, 2, 3: mean 2, s.e. 1/√3; with the same s.e. over 3 seeds Welch's degrees of freedom are 4, t = 2.776445."""
    ours, error = by_seed(1.0, 2.0, 3.0), 3**-0.5
    half = 2.776445 * (2 / 3) ** 0.5
    check = check_agrees("c", "q", ours, MeanAndError(1.0, error), 3)
    assert (check.verdict, check.effect, check.seeds) == ("undecided", 1.0, 3)
    assert check.interval == pytest.approx((1 - half, 1 + half), abs=1e-5)
    assert check_agrees("c", "q", ours, MeanAndError(2 + 1.01 * half, error), 3).verdict == "does not hold"
    assert check_agrees("c", "q", ours, MeanAndError(2 + 0.99 * half, error), 3).verdict == "undecided"
    assert "agreement cannot be shown" in check.note
    assert check_agrees("c", "q", {0: 1.0}, MeanAndError(1.0, error), 3).interval is None
    assert check_agrees("c", "q", {}, MeanAndError(1.0, error), 3).note == "not measured"


def test_close_is_close_even_where_the_difference_is_clear():
    """Printed −10 ± 0.1 over 30 seeds: ±2 is allowed, and the interval is some ±0.2 wide."""
    for shift, verdict in (
        (0.0, "holds"),
        (1.5, "holds"),
        (2.0, "does not hold"),
        (-1.5, "holds"),
        (-4.0, "does not hold"),
    ):
        ours = by_seed(*(-10 + shift + x for x in (-0.01, 0.0, 0.01)))
        check = check_agrees("c", "q", ours, MeanAndError(-10.0, 0.1), 30)
        assert check.verdict == verdict
        assert check.interval[1] - check.effect == pytest.approx(stats.t.ppf(0.975, 30) * 0.1, rel=0.1)
        assert "cannot be shown" not in check.note
