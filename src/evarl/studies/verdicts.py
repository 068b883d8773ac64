"""Verdicts on claims from paired differences over seeds. Positive effects speak for a claim.

One claim is one hypothesis. Where it has several parts that must all be true (below *every* baseline, never rising over
*all* steps of β), it holds only if each part does at the full level (an intersection–union test needs no correction), and
it fails if one part fails at the level divided by the number of parts. The part that decides is shown, with its interval.

Where two conditions are exactly equal in every seed, and there are three seeds or more, the interval is the point 0: "below" and
"above" do not hold, "at least" and "at most" hold. "Not rising" stays undecided, since a fall is asked for as well.

"Below" and "above" do not hold either where the interval shows that the difference is less than a tenth of what is compared with:
so small an advantage is none, by the same tenth that "close to" and "nearly" allow. An interval above 0 comes first.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy import stats

from evarl.stats import bootstrap_interval, t_interval
from evarl.studies.power import detectable, seeds_for_all, seeds_for_some
from evarl.studies.reports import ClaimCheck, MeanAndError, Verdict
from evarl.studies.tables import text

Values = Mapping[int, float]
"""By seed; empty where nothing was measured."""

CONFIDENCE = 0.95
FEWEST = 3
"""Seeds that differences need to show that there is none, or a negligible one."""
EQUAL = "every difference is exactly 0: the two are equal"
NEGLIGIBLE = 0.1
"""Share of what is compared with that an advantage must exceed to be one."""
AGREES = 0.2
"""Share of a printed number that ours may differ by, to agree with it."""


def check_larger(
    claim: str, quantity: str, one: Values, other: Values | float, note: str = "", equal: Verdict = "does not hold"
) -> ClaimCheck:
    """The claim that `one` is above `other` on average: the paired difference over seeds, with Student's interval.

    `equal` is the verdict where both are exactly equal in every seed: for claims of "at least" and "at most", `holds`.
    """
    differences = paired_differences(one, other)
    if differences is None:
        return _undecided(claim, quantity, "too few seeds" if one and other else "not measured", note)
    parts, least = {quantity: differences}, {quantity: NEGLIGIBLE * (_size(other, one) or 0.0)}
    found = _decide(claim, parts, parts, note, equal, least if equal == "does not hold" else {})
    return replace(found, baseline=_size(one, other))


def check_all_larger(claim: str, quantity: str, ones: Mapping[str, Values], other: Values | float) -> ClaimCheck:
    """The claim that every one of `ones` is above `other`; the effect is that of the part which decides."""
    parts = {f"{quantity}; here of {name}": paired_differences(one, other) for name, one in ones.items()}
    known = {name: part for name, part in parts.items() if part is not None}
    if not known or len(known) < len(parts):
        return _undecided(claim, quantity, "too few seeds, or not all measured")
    least = {f"{quantity}; here of {name}": NEGLIGIBLE * (_size(other, one) or 0.0) for name, one in ones.items()}
    found = _decide(claim, known, known, equal="does not hold", least=least)
    deciding = found.quantity.removeprefix(f"{quantity}; here of ")
    return replace(found, baseline=_size(ones[deciding], other))


def check_some_larger(
    claim: str, quantity: str, pairs: Mapping[str, tuple[Values, Values]], note: str = ""
) -> ClaimCheck:
    """The claim that in at least one of several pairs the first is above the second.

    It holds if that is so in one pair at the level divided by the number of pairs (Bonferroni), and fails if the opposite is
    so in every pair at the full level, or both are exactly equal. The pair that speaks most for the claim is reported.
    """
    parts = {name: paired_differences(*pair) for name, pair in pairs.items()}
    known = {f"{quantity}; here of {name}": part for name, part in parts.items() if part is not None}
    if not known:
        return _undecided(claim, quantity, "too few seeds, or not measured", note)
    found, strict = _some(claim, known, note), 1 - (1 - CONFIDENCE) / len(known)
    return replace(
        found,
        baseline=_size(*pairs[found.quantity.removeprefix(f"{quantity}; here of ")]),
        seeds=len(known[found.quantity]),
        seeds_needed=seeds_for_some(known.values(), strict),
        detectable=detectable(known[found.quantity], strict),
    )


def _some(claim: str, known: Mapping[str, np.ndarray], note: str) -> ClaimCheck:
    """The claim that some part is above 0, by the part that speaks most for it."""
    count = len(known)
    strict = 1 - (1 - CONFIDENCE) / count
    passing = {name: t_interval(part, strict) for name, part in known.items()}
    best = max(passing, key=lambda name: passing[name].low)
    failing = {name: t_interval(part, CONFIDENCE) for name, part in known.items()}
    nearest = max(failing, key=lambda name: failing[name].high)
    if passing[best].low <= 0 and all(failing[name].high < 0 or _equal(part) for name, part in known.items()):
        found = failing[nearest]
        return ClaimCheck(claim, "does not hold", found.estimate, (found.low, found.high), nearest, CONFIDENCE, note)
    found, verdict = passing[best], "holds" if passing[best].low > 0 else "undecided"
    interval = (found.low, found.high)
    return ClaimCheck(claim, verdict, found.estimate, interval, best, strict, note, parts=count)  # type: ignore[arg-type]


def check_falling(claim: str, quantity: str, steps: dict[str, Values]) -> ClaimCheck:
    """The claim that a quantity does not rise along a sequence of conditions, and falls from the first to the last.

    It holds if the quantity falls significantly from the first to the last and rises significantly in no step; it does not
    hold if it rises significantly in one step, or from the first to the last.
    """
    first, last = next(iter(steps)), next(reversed(steps))
    overall = f"fall of {quantity} from {first} to {last}"
    if not all(steps.values()) or len(steps) < 2:
        return _undecided(claim, overall, "not measured")
    pairs = [(first, last), *itertools.pairwise(steps)]
    falls = {f"fall of {quantity} from {a} to {b}": paired_differences(steps[a], steps[b]) for a, b in pairs}
    known = {name: fall for name, fall in falls.items() if fall is not None}
    if len(known) < len(falls):
        return _undecided(claim, overall, "too few seeds")
    return replace(_decide(claim, {overall: known[overall]}, known), baseline=_size(steps[last], steps[first]))


def check_agrees(claim: str, quantity: str, ours: Values, printed: MeanAndError, seeds: int) -> ClaimCheck:
    """The claim that a mean over our seeds agrees with a mean that is printed with its standard error, over so many seeds.

    The effect is ours less the printed one, 0 where they agree, with Welch's interval, in which both standard errors enter. It
    holds if the whole interval lies within ±20 % of the printed number, that is, if the two are shown to be as close as that;
    otherwise it does not hold if 0 is outside of the interval, that is, if they are shown to differ.
    """
    if len(ours) < 2 or printed.standard_error is None:
        return _undecided(claim, quantity, "too few seeds" if ours else "not measured")
    values = np.array(list(ours.values()), np.float64)
    mine, theirs = float(values.var(ddof=1)) / len(values), printed.standard_error**2
    freedom = (mine + theirs) ** 2 / (mine**2 / (len(values) - 1) + theirs**2 / (seeds - 1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * (mine + theirs) ** 0.5
    effect, allowed = float(values.mean()) - printed.mean, AGREES * abs(printed.mean)
    verdict: Verdict = "undecided"
    if abs(effect) + half <= allowed:
        verdict = "holds"
    elif abs(effect) > half:
        verdict = "does not hold"
    note = f"agrees within ±{allowed:.3g}, which is {AGREES:.0%} of {text(printed)}"
    least = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * printed.standard_error
    if least > allowed:
        note += f"; the printed standard error alone makes the interval ±{least:.2g}, so that agreement cannot be shown"
    bounds = (effect - half, effect + half)
    return ClaimCheck(claim, verdict, effect, bounds, quantity, note=note, seeds=len(values))  # without an axis from 0


def bootstrap_bounds(one: Values, other: Values, resamples: int = 10_000) -> tuple[float, float] | None:
    """The paired bootstrap interval of the mean difference over seeds; None for fewer than 2 seeds."""
    differences = paired_differences(one, other)
    if differences is None:
        return None
    found = bootstrap_interval(differences, np.mean, CONFIDENCE, resamples)
    return found.low, found.high


def paired_differences(one: Values, other: Values | float) -> np.ndarray | None:
    """Differences `one` − `other` over the seeds that both have; None for fewer than 2 seeds."""
    if isinstance(other, int | float):
        other = dict.fromkeys(one, float(other))
    shared = sorted(one.keys() & other.keys())
    if len(shared) < 2:
        return None
    return np.array([one[seed] - other[seed] for seed in shared], np.float64)


def lowered_by_share(values: Values, share: float) -> Values:
    """All values lowered by a share of their absolute value."""
    return {seed: value - share * abs(value) for seed, value in values.items()}


def _decide(
    claim: str,
    required: Mapping[str, np.ndarray],
    forbidden: Mapping[str, np.ndarray],
    note: str = "",
    equal: Verdict = "undecided",
    least: Mapping[str, float] | None = None,
) -> ClaimCheck:
    """The verdict on required and forbidden parts, with the number of seeds and what they can decide.

    `equal` is the verdict where a required part is exactly 0 in every seed, if nothing else decides. With `least`, the claim does
    not hold if a required part is shown to be below this number, which is not a relevant difference.
    """
    strict = 1 - (1 - CONFIDENCE) / len(forbidden)
    found = _judged(claim, required, forbidden, note)
    level = next((name for name, part in required.items() if _equal(part)), None)
    if found.verdict == "undecided" and level is not None and equal != "undecided":
        told = f"{EQUAL}; {note}" if note else EQUAL
        found = ClaimCheck(claim, equal, 0.0, (0.0, 0.0), level, CONFIDENCE, told)
    if found.verdict == "undecided" and least:
        found = _negligible(claim, required, least, note) or found
    deciding = {**required, **forbidden}[found.quantity]
    return replace(
        found,
        seeds=len(deciding),
        seeds_needed=seeds_for_all(required.values(), forbidden.values(), strict),
        detectable=detectable(deciding, CONFIDENCE),
    )


def _judged(
    claim: str, required: Mapping[str, np.ndarray], forbidden: Mapping[str, np.ndarray], note: str
) -> ClaimCheck:
    """The claim holds if no part fails and every required part is significantly above 0; a part below 0 fails it.

    The effect and the interval that decide are reported, at the level at which they decide.
    """
    strict = 1 - (1 - CONFIDENCE) / len(forbidden)
    failing = {name: t_interval(part, strict) for name, part in forbidden.items()}
    worst = min(failing, key=lambda name: failing[name].high)
    if failing[worst].high < 0:
        found = failing[worst]
        bounds, count = (found.low, found.high), len(forbidden)
        return ClaimCheck(claim, "does not hold", found.estimate, bounds, worst, strict, note, parts=count)
    passing = {name: t_interval(part, CONFIDENCE) for name, part in required.items()}
    weakest = min(passing, key=lambda name: passing[name].low)
    holds = passing[weakest].low > 0
    verdict: Verdict = "holds" if holds else "undecided"
    found, level = (passing[weakest], CONFIDENCE) if holds else (failing[weakest], strict)
    count = 1 if holds else len(forbidden)
    return ClaimCheck(claim, verdict, found.estimate, (found.low, found.high), weakest, level, note, parts=count)


def _negligible(
    claim: str, required: Mapping[str, np.ndarray], least: Mapping[str, float], note: str
) -> ClaimCheck | None:
    """The claim does not hold if a required part is shown to be below its least relevant difference; None if none is."""
    strict = 1 - (1 - CONFIDENCE) / len(required)
    intervals = {name: t_interval(part, strict) for name, part in required.items()}
    small = {name: one for name, one in intervals.items() if len(required[name]) >= FEWEST and one.high < least[name]}
    if not small:
        return None
    clearest = min(small, key=lambda name: small[name].high - least[name])
    found, why = small[clearest], f"an advantage of less than {NEGLIGIBLE:.0%} ({least[clearest]:.3g}) is none"
    bounds, count = (found.low, found.high), len(required)
    told = f"{why}; {note}" if note else why
    return ClaimCheck(claim, "does not hold", found.estimate, bounds, clearest, strict, told, parts=count)


def _equal(differences: np.ndarray) -> bool:
    """Whether what is compared is exactly equal in every seed, of enough seeds."""
    return len(differences) >= FEWEST and not differences.any()


def _size(one: Values | float, other: Values | float) -> float | None:
    """The mean size of what is compared with, over the seeds that both have; None where it is 0 or not measured."""
    if isinstance(other, int | float):
        return abs(float(other)) or None
    if isinstance(one, int | float):
        one = dict.fromkeys(other, float(one))
    shared = sorted(one.keys() & other.keys())
    return (abs(float(np.mean([other[seed] for seed in shared]))) or None) if shared else None


def _undecided(claim: str, quantity: str, why: str, note: str = "") -> ClaimCheck:
    return ClaimCheck(claim, "undecided", None, None, quantity, CONFIDENCE, f"{why}; {note}" if note else why)
