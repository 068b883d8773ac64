"""Selection among estimators of one number, by SLOPE: Lepski's principle, from confidence intervals alone.

Estimators are ordered by the width c_i of their intervals, the widest first. With |θ̂_i − E θ̂_i| ≤ c_i for all i at once and
I_i = [θ̂_i − 2c_i, θ̂_i + 2c_i], the last i is chosen for which I_1 ∩ … ∩ I_i is not empty. If bias does not decrease along the
order, and c_{i+1} ≥ κ c_i, the error is at most 6 (1 + 1/κ) min_i (bias_i + c_i): as good as the best choice that knows the
biases, up to a constant (Su, Srinath & Krishnamurthy, 2020; ordered by width: Tucker & Lee, 2021). The first should have no
bias, since biases are noticed only by comparison with those before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from evarl.errors import InputError
from evarl.stats import inputs
from evarl.stats.intervals import Interval


@dataclass(frozen=True)
class Candidate:
    """One of several estimates of the same number."""

    name: str
    value: float
    standard_error: float
    """Of the value around its own mean, so without bias."""
    size: float
    """Number of independent contributions, for the degrees of freedom."""


@dataclass(frozen=True)
class Selection:
    """The chosen estimate, all candidates, and the reason."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    """By the width of their intervals, the widest first."""
    intervals: dict[str, Interval]
    """θ̂ ± c for each, simultaneous and asymptotic: each for the mean of its estimate, whose bias it does not know."""
    why: str
    warnings: tuple[str, ...] = ()
    """Reasons not to trust the choice."""

    @property
    def interval(self) -> Interval:
        """The interval of the first candidate, which alone contains the number itself if that candidate has no bias."""
        return self.intervals[self.candidates[0].name]


def slope(candidates: Sequence[Candidate], confidence: float = 0.95, warnings: tuple[str, ...] = ()) -> Selection:
    """The candidate that SLOPE selects. Intervals are t intervals which hold simultaneously (Bonferroni).

    >>> wide, middle, narrow = (Candidate(n, x, s, 100.0) for n, x, s in [("a", 0, 1), ("b", 1, 0.5), ("c", 9, 0.1)])
    >>> slope([narrow, wide, middle]).why
    'b has the narrowest interval that agrees with all wider ones; that of c does not'
    """
    inputs.check_confidence(confidence)
    names = [one.name for one in candidates]
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"candidates: {', '.join(names) or 'there are none'}; must be at least one, each with its own name"
        )
    error = (1 - confidence) / len(names)
    reach = {}
    for one in candidates:
        inputs.array(f"candidate {one.name}", [one.value, one.standard_error])
        if not one.size > 1:
            raise InputError(f"candidate {one.name}: has size {one.size:g}; must be above 1, for a standard error")
        reach[one.name] = float(stats.t.ppf(1 - error / 2, one.size - 1)) * one.standard_error
    order = sorted(candidates, key=lambda one: -reach[one.name])
    low, high, last = -float("inf"), float("inf"), 0
    for i, one in enumerate(order):
        low, high = max(low, one.value - 2 * reach[one.name]), min(high, one.value + 2 * reach[one.name])
        if low > high:
            break
        last = i
    intervals = {
        one.name: Interval(one.value, one.value - reach[one.name], one.value + reach[one.name], confidence, "t")
        for one in order
    }
    chosen, rest = order[last], order[last + 1 :]
    why = f"{chosen.name} has the narrowest interval that agrees with all wider ones"
    why += f"; that of {rest[0].name} does not" if rest else "; there is none narrower"
    return Selection(chosen, tuple(order), intervals, why, warnings)
