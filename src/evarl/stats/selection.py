"""Selection among estimators of one number, by SLOPE: Lepski's principle, from confidence intervals alone.

Estimators are in the order of their biases, the least first, and the widths c_i of their intervals decrease; one that is no
narrower than one before it has more bias for nothing, and is left out. With |θ̂_i − E θ̂_i| ≤ c_i for all i at once and
I_i = [θ̂_i − 2c_i, θ̂_i + 2c_i], the last i is chosen for which I_1 ∩ … ∩ I_i is not empty. If c_{i+1} ≥ κ c_i, the error is at
most 6 (1 + 1/κ) min_i (bias_i + c_i): as good as the best choice that knows the biases, up to a constant (Su, Srinath &
Krishnamurthy, 2020). The first should have no bias, since biases are noticed only by comparison with those before. Where the
order of biases is not known, that of widths takes its place, the widest first (Tucker & Lee, 2021).
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
    """Those that were compared, the least bias and widest interval first."""
    left_out: tuple[Candidate, ...]
    """Those with more bias and no narrower interval than another."""
    intervals: dict[str, Interval]
    """θ̂ ± c for each, simultaneous and asymptotic: each for the mean of its estimate, whose bias it does not know."""
    why: str

    @property
    def first(self) -> Interval:
        """The interval of the first candidate, which alone contains the number itself, if that candidate has no bias."""
        return self.intervals[self.candidates[0].name]


def slope(candidates: Sequence[Candidate], confidence: float = 0.95, *, ordered: bool = False) -> Selection:
    """The candidate that SLOPE selects. Intervals are t intervals which hold simultaneously (Bonferroni).

    With `ordered`, candidates are in the order of their biases, the least first; otherwise they are ordered by width.

    >>> wide, middle, narrow = (Candidate(n, x, s, 100.0) for n, x, s in [("a", 0, 1), ("b", 1, 0.5), ("c", 9, 0.1)])
    >>> slope([narrow, wide, middle]).why
    'b has the narrowest interval that agrees with all before it; that of c does not'
    """
    reach = _half_widths(candidates, confidence)
    order = list(candidates) if ordered else sorted(candidates, key=lambda one: -reach[one.name])
    compared: list[Candidate] = []
    for one in order:
        if not ordered or not compared or reach[one.name] < reach[compared[-1].name]:
            compared.append(one)
    low, high, last = -float("inf"), float("inf"), 0
    for i, one in enumerate(compared):
        low, high = max(low, one.value - 2 * reach[one.name]), min(high, one.value + 2 * reach[one.name])
        if low > high:
            break
        last = i
    intervals = {
        one.name: Interval(one.value, one.value - reach[one.name], one.value + reach[one.name], confidence, "t")
        for one in order
    }
    chosen, rest = compared[last], compared[last + 1 :]
    why = f"{chosen.name} has the narrowest interval that agrees with all before it"
    why += f"; that of {rest[0].name} does not" if rest else "; there is none narrower"
    return Selection(chosen, tuple(compared), tuple(one for one in order if one not in compared), intervals, why)


def _half_widths(candidates: Sequence[Candidate], confidence: float) -> dict[str, float]:
    """Half-widths c_i by name."""
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
    return reach
