r"""How many seeds decide a claim: the power of Student's interval of a mean of paired differences. No JAX.

For n independent normal differences with mean δ and deviation σ, √n · mean / s has the noncentral t distribution with n − 1
degrees of freedom and noncentrality √n δ/σ. The interval mean ± t s/√n, t the quantile of level (1 + confidence)/2, excludes 0
exactly where |√n · mean / s| > t, so that the power is

    P(n) = 1 − F(t; n − 1, √n δ/σ) + F(−t; n − 1, √n δ/σ).

`seeds_needed` puts the *observed* mean and deviation for δ and σ. Read it with care: it is circular. It is a function of the same
data as the interval, so that it adds nothing to the question whether there is an effect; and an effect that looks large in few
seeds is on average smaller in truth, so that it is optimistic. It answers one question only: are more seeds feasible, if what was
seen is so?

`detectable` does not use the observed mean: the smallest effect that so many seeds would decide, with deviation σ. What is
smaller cannot be expected to be decided, whatever was seen. It is the more useful number, and takes only σ from the data.
"""

from collections.abc import Iterable

import numpy as np
from scipy import optimize, stats

WANTED = 0.8
"""Chance of a decision that is asked for."""
MOST = 1000
"""Largest number of seeds that is looked at."""
ENDLESS = MOST + 1
"""Stands for every number of seeds above `MOST`."""
FEASIBLE = 100
"""Largest number of seeds that anybody may run: five times the paper's in the games."""


def power(effect: float, seeds: int, confidence: float = 0.95) -> float:
    """Chance that the interval of a mean of `seeds` differences excludes 0, with `effect` in deviations of one difference.

    >>> round(power(0.5, 34), 4), round(power(0.0, 7), 4)
    (0.8078, 0.05)
    """
    freedom, shift = seeds - 1, abs(effect) * seeds**0.5
    bound = stats.t.ppf((1 + confidence) / 2, freedom)
    # F(−t; shift) is 1 − F(t; −shift), which SciPy computes without NaN
    return float(stats.nct.sf(bound, freedom, shift) + stats.nct.sf(bound, freedom, -shift))


def seeds_for(effect: float, confidence: float = 0.95) -> int:
    """The least number of seeds with a power of 80 % for an effect in deviations, `ENDLESS` if it is above 1 000.

    >>> seeds_for(0.5), seeds_for(0.8), seeds_for(0.01) == ENDLESS
    (34, 15, True)
    """
    if not power(effect, MOST, confidence) >= WANTED:  # NaN too
        return ENDLESS
    low, high = 1, MOST  # the power grows with the number of seeds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, confidence) >= WANTED else (middle, high)
    return high


def seeds_needed(differences: np.ndarray, confidence: float = 0.95) -> int:
    """Seeds that would decide a mean difference as large, and as variable, as the observed ones; `ENDLESS` for more than 1 000.

    >>> seeds_needed(np.array([0.5, 1.5, 2.5])), seeds_needed(np.array([-1.0, 1.0])) == ENDLESS
    (6, True)
    """
    mean, deviation = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if deviation <= 1e-12 * abs(mean):
        return 2 if mean else ENDLESS
    return seeds_for(mean / deviation, confidence)


def detectable(differences: np.ndarray, confidence: float = 0.95) -> float:
    """The least true mean that as many seeds would decide with a chance of 80 %, if differences vary as the observed ones.

    >>> round(detectable(np.array([-1.0, 0.0, 1.0])), 3)
    3.264
    """
    seeds, deviation = len(differences), float(np.std(differences, ddof=1))

    def missing(effect: float) -> float:
        return power(effect, seeds, confidence) - WANTED

    above = 1.0
    while missing(above) < 0:
        above *= 2
    return deviation * float(optimize.brentq(missing, 0.0, above, xtol=1e-10))


def seeds_for_all(required: Iterable[np.ndarray], forbidden: Iterable[np.ndarray], strict: float) -> int:
    """Seeds that would decide a claim of which every part must hold, if the observed effects of all parts were true.

    A part that is below 0 refutes the claim, at the level `strict`: the nearest one counts. If there is none, every required
    part must be confirmed at 95 %: the one that takes longest counts. (The chance of several such parts together is below 80 %.)
    """
    against = [seeds_needed(part, strict) for part in forbidden if np.mean(part) < 0]
    return min(against) if against else max(seeds_needed(part) for part in required)


def seeds_for_some(parts: Iterable[np.ndarray], strict: float) -> int:
    """Seeds that would decide a claim of which one part must hold, at the level `strict`; to refute it all must fail at 95 %."""
    parts = list(parts)
    above = [seeds_needed(part, strict) for part in parts if np.mean(part) > 0]
    return min(above) if above else max(seeds_needed(part) for part in parts)


def counted(seeds: int) -> str:
    """A number of seeds as words.

    >>> counted(12), counted(ENDLESS)
    ('12', 'more than 1000')
    """
    return f"more than {MOST}" if seeds > MOST else str(seeds)


def told(seeds: int) -> str:
    """A number of seeds for a table, with a mark where nobody may run so many.

    >>> told(12), told(101), told(ENDLESS)
    ('12', 'not feasible: 101', 'not feasible: more than 1000')
    """
    return counted(seeds) if seeds <= FEASIBLE else f"not feasible: {counted(seeds)}"
