"""Ranking of alternatives from paired contributions, with intervals that hold for all values and all differences at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.stats import inputs
from evarl.stats.intervals import Interval, bernstein_interval
from evarl.stats.skewed import skewed_t_interval


@dataclass(frozen=True)
class Ranking:
    """Alternatives by their estimated values, the best first, with simultaneous intervals."""

    order: tuple[str, ...]
    values: dict[str, Interval]
    differences: dict[tuple[str, str], Interval]
    """The value of the first minus that of the second, of all pairs in the order."""
    best: str | None
    """The alternative whose difference to every other is above 0; None where no alternative is separated from all others."""
    regret: float
    """How much better than the first in the order another can be, at most: the intervals' greatest such difference, or 0."""
    why: str


def rank_means(
    names: Sequence[str],
    contributions: Float[np.ndarray, "P N"],
    confidence: float = 0.95,
    span: tuple[float, float] | None = None,
) -> Ranking:
    """Ranks P alternatives, each the mean of N contributions; contribution i of all comes from the same observation i.

    Intervals hold simultaneously for P values and P(P − 1)/2 differences (Bonferroni): Student's t, asymptotic, with ends that
    are corrected for skewness (`skewed_t_interval`); or empirical Bernstein with a `span` that is known to contain every possible
    contribution. Differences are those of pairs, so what alternatives have in common does not widen them.

    >>> found = rank_means(["a", "b"], np.array([[0.0, 9.0, 5.0, 2.0], [1.0, 10.1, 6.0, 3.1]]))
    >>> found.order, found.best, found.values["a"].high > found.values["b"].low
    (('b', 'a'), 'b', True)
    """
    inputs.check_confidence(confidence)
    rows = inputs.array("contributions", contributions)
    if len(set(names)) < len(names) or len(names) != len(rows) or not len(names):
        raise InputError(
            f"names: {', '.join(names) or 'there are none'}; must be {len(rows)} that differ, one for each row"
        )
    count = len(rows)
    each = 1 - (1 - confidence) / (count * (count + 1) / 2)

    def interval(x: Float[np.ndarray, " N"], ends: tuple[float, float] | None) -> Interval:
        return skewed_t_interval(float(x.mean()), x, each) if ends is None else bernstein_interval(x, *ends, each)

    gap = None if span is None else (span[0] - span[1], span[1] - span[0])
    place = np.argsort(-rows.mean(axis=1), kind="stable").tolist()
    order = tuple(names[i] for i in place)
    values = {names[i]: interval(rows[i], span) for i in place}
    differences = {
        (names[a], names[b]): interval(rows[a] - rows[b], gap) for k, a in enumerate(place) for b in place[k + 1 :]
    }
    first = {b: one for (a, b), one in differences.items() if a == order[0]}
    tied = [name for name, one in first.items() if one.low <= 0]
    best = None if tied else order[0]
    regret = max([0.0, *(-one.low for one in first.values())])
    why = f"{order[0]} is separated from all others" if best else f"{order[0]} is not separated from {', '.join(tied)}"
    return Ranking(order, values, differences, best, regret, why)
