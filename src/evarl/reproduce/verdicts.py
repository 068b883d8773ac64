"""From numbers of paired seeds to verdicts. Positive effects speak for a claim.

One claim is one hypothesis. Where it has several parts that must all be true (below *every* baseline, never rising over
*all* steps of β), it holds only if each part does at the full level (an intersection–union test needs no correction), and
it fails if one part fails at the level divided by the number of parts.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from evarl.reproduce.findings import Check, Verdict
from evarl.stats import bootstrap_interval, t_interval

Values = Mapping[int, float]
"""By seed."""

CONFIDENCE = 0.95


def larger(claim: str, quantity: str, one: Values | None, other: Values | float | None, note: str = "") -> Check:
    """The claim that `one` is above `other` on average: the paired difference over seeds, with Student's interval."""
    differences = _differences(one, other)
    if differences is None:
        return _undecided(claim, quantity, "too few seeds" if one and other else "not measured", note)
    return _judged(claim, quantity, [differences], note)


def all_larger(
    claim: str, quantity: str, ones: Mapping[str, Values | None], other: Values | float | None, note: str = ""
) -> Check:
    """The claim that every one of `ones` is above `other`; the effect is that of the part that speaks least for it."""
    parts = {name: _differences(one, other) for name, one in ones.items()}
    known = {name: d for name, d in parts.items() if d is not None}
    if not known or len(known) < len(parts):
        return _undecided(claim, quantity, "too few seeds, or not all measured", note)
    weakest = min(known, key=lambda name: float(np.mean(known[name])))
    ordered = [known[weakest], *(d for name, d in known.items() if name != weakest)]
    return _judged(claim, f"{quantity}; here of {weakest}", ordered, note)


def falling(claim: str, quantity: str, steps: Sequence[Values | None], note: str = "") -> Check:
    """The claim that a quantity does not rise along a sequence of conditions, and falls from the first to the last.

    It holds if it falls clearly from the first to the last and rises clearly in no step; it does not hold if it rises
    clearly somewhere. The effect is the fall from first to last.
    """
    if any(step is None for step in steps) or len(steps) < 2:
        return _undecided(claim, quantity, "not measured", note)
    falls = [_differences(a, b) for a, b in itertools.pairwise(steps)]
    overall = _differences(steps[0], steps[-1])
    if overall is None or any(fall is None for fall in falls):
        return _undecided(claim, quantity, "too few seeds", note)
    known = [fall for fall in falls if fall is not None]
    interval = t_interval(overall, CONFIDENCE)
    rises = [t_interval(fall, 1 - (1 - CONFIDENCE) / len(known)).high < 0 for fall in known]
    verdict: Verdict = "does not hold" if any(rises) else ("holds" if interval.low > 0 else "undecided")
    return Check(claim, verdict, interval.estimate, (interval.low, interval.high), quantity, CONFIDENCE, note)


def bootstrapped(one: Values, other: Values, resamples: int = 10_000) -> tuple[float, float]:
    """The paired bootstrap interval of the mean difference over seeds."""
    differences = _differences(one, other)
    assert differences is not None
    found = bootstrap_interval(differences, np.mean, CONFIDENCE, resamples)
    return found.low, found.high


def scaled(values: Values | None, factor: float) -> Values | None:
    """All values times a factor."""
    return None if values is None else {seed: factor * value for seed, value in values.items()}


def _judged(claim: str, quantity: str, parts: list[np.ndarray], note: str) -> Check:
    """The first part is the one whose effect is shown."""
    intervals = [t_interval(part, CONFIDENCE) for part in parts]
    strict = [t_interval(part, 1 - (1 - CONFIDENCE) / len(parts)) for part in parts]
    verdict: Verdict = "undecided"
    if all(interval.low > 0 for interval in intervals):
        verdict = "holds"
    elif any(interval.high < 0 for interval in strict):
        verdict = "does not hold"
    first = intervals[0]
    return Check(claim, verdict, first.estimate, (first.low, first.high), quantity, CONFIDENCE, note)


def _undecided(claim: str, quantity: str, why: str, note: str) -> Check:
    return Check(claim, "undecided", None, None, quantity, CONFIDENCE, f"{why}; {note}" if note else why)


def _differences(one: Values | None, other: Values | float | None) -> np.ndarray | None:
    """Over the seeds that both have; None for fewer than 2, of which nothing can be said."""
    if one is None or other is None:
        return None
    if isinstance(other, int | float):
        other = dict.fromkeys(one, float(other))
    shared = sorted(one.keys() & other.keys())
    if len(shared) < 2:
        return None
    return np.array([one[seed] - other[seed] for seed in shared], np.float64)
