"""The bootstrap over trajectories, in bounded memory: estimates as functions of sums over trajectories."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

GROUPS = 10_000
"""Most units that are drawn. More trajectories are put into as many groups at random, which are drawn as a whole: the sums of
groups are independent too, and 10 000 of them leave an error of 0.7 % in a standard error."""
BLOCK = 2**26
"""Bytes of the counts of bootstrap samples that are held at once."""


class Summed(NamedTuple):
    """An estimate that is a function of sums over trajectories, Σ_i p_i x_i with shares p."""

    terms: Float[np.ndarray, "N K"]
    """x_i."""
    value: Callable[[Float[np.ndarray, "B K"]], Float[np.ndarray, " B"]]
    """The estimate from each of B vectors of sums."""

    @classmethod
    def mean(cls, contribution: Float[np.ndarray, " N"]) -> "Summed":
        """A mean of contributions."""
        return cls(contribution[:, None], lambda sums: sums[:, 0])

    def at(self, shares: Float[np.ndarray, "B N"]) -> Float[np.ndarray, " B"]:
        """The estimate for each row of shares."""
        with np.errstate(invalid="ignore"):
            return self.value(shares @ self.terms)


@np.errstate(invalid="ignore", over="ignore")
def bootstrap(
    summed: Summed, resamples: int, rng: np.random.Generator, share: Float[np.ndarray, " N"] | None = None
) -> Float[np.ndarray, " B"]:
    """The estimate from bootstrap samples: as many trajectories as have a share, drawn from those with replacement.

    A trajectory drawn c times has the share c·p_i / Σ_j c_j p_j. Denominators of estimates are computed for each sample.

    >>> mean = Summed.mean(np.array([1.0, 3.0]))
    >>> sorted(set(bootstrap(mean, 100, np.random.default_rng(0)).tolist()))
    [1.0, 2.0, 3.0]
    """
    count = len(summed.terms)
    share = np.full(count, 1.0 / count) if share is None else share
    there = share > 0
    terms = np.concatenate([summed.terms, np.ones((count, 1))], axis=1)[there] * share[there, None]
    if len(terms) > GROUPS:
        first = np.arange(GROUPS) * len(terms) // GROUPS
        terms = np.add.reduceat(terms[rng.permutation(len(terms))], first, axis=0)
    found = []
    for counts in resampled_counts(rng, len(terms), resamples, terms.shape[1]):
        sums = counts @ terms
        found.append(summed.value(sums[:, :-1] / sums[:, -1:]))
    return np.concatenate(found)


def jackknife(summed: Summed) -> Float[np.ndarray, " N"]:
    """Pseudo-values x_i = N θ − (N − 1) θ₋ᵢ of an estimate θ of which θ₋ᵢ is without trajectory i; for a mean its contributions.

    Their deviation divided by √N is the jackknife's standard error (Tukey, 1958). It divides the influence of a trajectory by
    1 minus its share of the weight, as HC3 does, where the linearisation takes denominators for known (MacKinnon & White, 1985).

    >>> jackknife(Summed.mean(np.array([1.0, 3.0]))).tolist()
    [1.0, 3.0]
    """
    count, total = len(summed.terms), summed.terms.sum(axis=0)
    rows = max(1, BLOCK // (8 * summed.terms.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):
        whole = summed.value(total[None] / count)
        blocks = [summed.terms[first : first + rows] for first in range(0, count, rows)]
        without = np.concatenate([summed.value((total - block) / (count - 1)) for block in blocks])
        return count * whole - (count - 1) * without


def resampled_counts(
    rng: np.random.Generator, units: int, resamples: int, columns: int = 1
) -> Iterator[Float[np.ndarray, "B units"]]:
    """How often each unit is in each bootstrap sample: multinomial counts, in blocks of samples."""
    most = max(1, BLOCK // (8 * (3 * units + columns)))
    for first in range(0, resamples, most):
        rows = min(most, resamples - first)
        drawn = rng.integers(0, units, (rows, units)) + units * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)
