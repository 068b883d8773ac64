"""Simulated coverage of the bounds on a new site, and their gaps to the truth: a table of `make coverage`.

Sites are drawn independently. The test on a site shows a; b is hidden. Returns of episodes lie in [0, 1].

    heteroscedastic   V = .3 + .3 a + (.02 + .4 a)(b − ½), a and b uniform, Beta noise: the larger a, the less is known
    skewed            V = .85 − .15 a − (.1 + .5 a) b⁸, Beta noise: few sites are much worse than the others
    two-valued        V = .2 or .8, with equal probability; four tries succeed with probability .15 or .9; returns are 0 or 1
"""

import dataclasses
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import stats

from benchmarks.found import Found
from evarl import bounds
from evarl.errors import InputError

SIZES = (20, 50, 200)
LEVELS = (0.1, 0.05)
EPISODES = 20
"""Episodes on each site."""
POOL = 2000
"""Sites of which those of a repetition are taken."""
TRIES = 4


@dataclasses.dataclass(frozen=True)
class Sites:
    """Expected returns [N], predictions of their mean [N] and of a lower quantile [N], and returns [N, m]."""

    values: np.ndarray
    predictions: np.ndarray
    quantiles: np.ndarray
    returns: np.ndarray


Draw = Callable[[np.random.Generator, int], Sites]


def _beta(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    return rng.beta(10 * values[:, None], 10 * (1 - values[:, None]), (len(values), EPISODES))


def _heteroscedastic(rng: np.random.Generator, count: int) -> Sites:
    a, b = rng.random((2, count))
    predictions, spread = 0.3 + 0.3 * a, 0.02 + 0.4 * a
    values = predictions + spread * (b - 0.5)
    return Sites(values, predictions, predictions - 0.45 * spread, _beta(rng, values))


def _skewed(rng: np.random.Generator, count: int) -> Sites:
    a, b = rng.random((2, count))
    best, drop = 0.85 - 0.15 * a, 0.1 + 0.5 * a
    values = best - drop * b**8
    return Sites(values, best - drop / 9, best - drop * 0.95**8, _beta(rng, values))


def _two_valued(rng: np.random.Generator, count: int) -> Sites:
    good = rng.random(count) < 0.5
    wins = rng.binomial(TRIES, np.where(good, 0.9, 0.15))
    values = np.where(good, 0.8, 0.2)
    bad, fine = (stats.binom.pmf(wins, TRIES, chance) for chance in (0.15, 0.9))
    doubt = bad / (bad + fine)  # the probability that the site is bad, after the test
    returns = (rng.random((count, EPISODES)) < values[:, None]).astype(float)
    return Sites(values, 0.8 - 0.6 * doubt, np.where(doubt > 0.05, 0.2, 0.8), returns)


FAMILIES: dict[str, Draw] = {
    "heteroscedastic": _heteroscedastic,
    "skewed": _skewed,
    "two-valued": _two_valued,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of bound."""

    quantiles: bool = False
    value: bool = False
    """Whether the expected return is bounded, and not the mean of episodes."""
    delta: float | None = None

    def error(self, alpha: float) -> float:
        """The probability that may fail."""
        return alpha if self.delta is None else self.delta


DELTA = 0.1
CASES = {
    "mean of 20 episodes, from V̂": Case(),
    "mean of 20 episodes, from q̂": Case(quantiles=True),
    "expected return, from V̂": Case(value=True),
    "expected return, from q̂": Case(quantiles=True, value=True),
    "mean of 20 episodes on a share of sites, from V̂": Case(delta=DELTA),
    "expected return on a share of sites, from V̂": Case(value=True, delta=DELTA),
}


@cache
def _pool(draw: Draw) -> tuple[Sites, np.ndarray, np.ndarray]:
    """Sites, their measured means and their lower bounds; a repetition takes its own, and not each has to be bounded anew."""
    sites = draw(np.random.default_rng(8), POOL)
    lower = bounds.SiteCalibration.bounded(sites.predictions, sites.returns, bounds.Range(0, 1)).returns
    return sites, sites.returns.mean(axis=1), np.asarray(lower)


def coverage(case: Case, draw: Draw, n: int, repetitions: int, alpha: float) -> Found:
    """Whether the bound held on a new site or, with δ, on a share of at least 1 − α of the sites; the gap is truth − bound."""
    error = bounds.sites.VALUE_ERROR if case.value else 0.0
    bounds.site_index(n, alpha, case.delta, error)  # refuse before anything is drawn
    sites, means, lower = _pool(draw)
    truths, known = (sites.values, lower) if case.value else (means, means)
    relative_to = sites.quantiles if case.quantiles else sites.predictions
    rng = np.random.default_rng([8, n])
    covered, gaps = np.empty(repetitions, bool), np.empty(repetitions)
    for i in range(repetitions):
        chosen = rng.choice(POOL, n + 1, replace=False) if case.delta is None else rng.integers(POOL, size=n)
        old = chosen[:n]
        quantiles = sites.quantiles[old] if case.quantiles else None
        calibration = bounds.SiteCalibration(sites.predictions[old], known[old], EPISODES, quantiles, error)
        found = bounds.site_bound(calibration, alpha, case.delta)
        new = chosen[n:] if case.delta is None else np.arange(POOL)
        held = truths[new] >= found.at(relative_to[new])
        covered[i] = held.mean() >= (1.0 if case.delta is None else 1 - alpha)
        gaps[i] = found.gap(relative_to[new], truths[new])
    return Found(covered, gaps)


def table(repetitions: int, notify: Callable[[str], None] = lambda line: None) -> str:
    """The table in Markdown."""
    lines = [
        "| what is bounded | α | at least | n | " + " | ".join(FAMILIES) + " |",
        "| --- " * (len(FAMILIES) + 4) + "|",
    ]
    for name, case in CASES.items():
        for alpha in LEVELS:
            for n in SIZES:
                cells = [_cell(case, draw, n, repetitions, alpha) for draw in FAMILIES.values()]
                first = f"| {name} | {alpha:g} | {100 * (1 - case.error(alpha)):g} | {n} | "
                lines.append(first + " | ".join(cells) + " |")
                notify(lines[-1])
    return "\n".join(lines)


def _cell(case: Case, draw: Draw, n: int, repetitions: int, alpha: float) -> str:
    try:
        return coverage(case, draw, n, repetitions, alpha).cell()
    except InputError:
        return "refused"
