"""`make coverage`: simulated coverage of the bounds in `evarl.bounds`, and their gaps to the truth.

Start states s are uniform in [0, 1], V(s) is known, and returns lie in the range [0, 1]:

    smooth    V = .2 + .6 s, Beta noise: J = .5
    skewed    V = .02 + .52 s³, Beta noise: J = .15
    crashes   .75 + .15 s ± .05, but 0 in 4 % of episodes: J = .792
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from benchmarks import sites, tightness
from benchmarks.found import Found
from evarl import bounds, stats
from evarl.errors import InputError
from evarl.report.markdown import fill_page

PAGE = Path(__file__).parents[1] / "docs" / "certification.md"
SIZES = (20, 50, 200)
MORE = 1000
"""A further number of rollouts for mean-return, at which an evaluator begins to help."""
ALPHA = 0.05
UNIT = bounds.Range(0, 1)
FRESH = 32
"""Fresh start states for each rollout."""
EPSILON = 0.05
VALUE_ERROR = 0.01
"""Level of the lower bounds that are used for J_p in new-policy."""
TESTED = 200_000
"""Number of episodes that approximate the truth where there is no formula."""

Function = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Population:
    """A distribution of start states and returns."""

    name: str
    mean: float
    value: Function
    sample: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    """Samples returns from start states."""

    def rough(self, s: np.ndarray) -> np.ndarray:
        """An evaluator that errs by up to .15."""
        return np.clip(self.value(s) + 0.15 * np.sin(20 * s), 0, 1)


def _beta(value: Function, strength: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    return lambda rng, s: rng.beta(strength * value(s), strength * (1 - value(s)))


def _smooth(s: np.ndarray) -> np.ndarray:
    return 0.2 + 0.6 * s


def _skewed(s: np.ndarray) -> np.ndarray:
    return 0.02 + 0.52 * s**3


def _crashes(rng: np.random.Generator, s: np.ndarray) -> np.ndarray:
    return (rng.random(s.shape) >= 0.04) * (0.75 + 0.15 * s + rng.uniform(-0.05, 0.05, s.shape))


POPULATIONS = (
    Population("smooth", 0.5, _smooth, _beta(_smooth, 30.0)),
    Population("skewed", 0.15, _skewed, _beta(_skewed, 10.0)),
    Population("crashes", 0.792, lambda s: 0.96 * (0.75 + 0.15 * s), _crashes),
)


METHODS: dict[str, Callable[[Population, np.random.Generator, np.ndarray, np.ndarray], float]] = {
    "betting": lambda p, rng, s, g: bounds.betting_lower_bound(g, 0, 1, ALPHA),
    "betting, any time": lambda p, rng, s, g: bounds.betting_lower_bound(g, 0, 1, ALPHA, sequential=True),
    "mixture, good V̂": lambda p, rng, s, g: _mixture(p.value, rng, s, g),
    "mixture, useless V̂": lambda p, rng, s, g: _mixture(lambda s: 1000 * s % 1, rng, s, g),
    "Hoeffding": lambda p, rng, s, g: stats.hoeffding_lower_bound(g, 0, 1, ALPHA),
    "Bernstein": lambda p, rng, s, g: stats.bernstein_lower_bound(g, 0, 1, ALPHA),
    "Student t (invalid)": lambda p, rng, s, g: stats.t_lower_bound(g, ALPHA),
}


def _mixture(evaluator: Function, rng: np.random.Generator, s: np.ndarray, g: np.ndarray) -> float:
    fresh = evaluator(rng.random((len(s), FRESH)))
    return bounds.mixture_lower_bound(bounds.EvaluatedRollouts(g, evaluator(s), fresh), UNIT, ALPHA)


def mean_bounds(
    population: Population, n: int, repetitions: int, methods: Sequence[str] = tuple(METHODS)
) -> list[Found]:
    """mean-return: J ≥ ℓ by each method, on the same returns."""
    rng = np.random.default_rng([1, n])
    lower = np.empty((len(methods), repetitions))
    for i in range(repetitions):
        s = rng.random(n)
        g = population.sample(rng, s)
        lower[:, i] = [METHODS[method](population, rng, s, g) for method in methods]
    return [Found(row <= population.mean, population.mean - row) for row in lower]


def sequential_decisions(population: Population, n: int, repetitions: int) -> list[Found]:
    """With threshold = J: no test up to n rollouts certifies "J > threshold", and none rejects "J ≥ threshold"."""
    rng = np.random.default_rng([2, n])
    peaks = np.empty((2, repetitions))
    for i in range(repetitions):
        g, j = population.sample(rng, rng.random(n)), population.mean
        peaks[0, i] = bounds.e_process(g, j, 0, 1, ALPHA, sequential=True).max()
        peaks[1, i] = bounds.e_process(1 - g, 1 - j, 0, 1, ALPHA, sequential=True).max()
    return [Found(row < 1 / ALPHA, np.zeros(repetitions)) for row in peaks]


def candidates(population: Population, n: int, repetitions: int) -> Found:
    """Five claims about five policies, of which the last three are false: none of these is certified."""
    rng = np.random.default_rng([3, n])
    thresholds = population.mean + np.array([-0.15, -0.1, 1e-9, 0.02, 0.04])
    covered = np.empty(repetitions, bool)
    for i in range(repetitions):
        g = population.sample(rng, rng.random((5, n)))
        peaks = [bounds.e_process(g[k], t, 0, 1, ALPHA).max() for k, t in enumerate(thresholds)]
        covered[i] = len(bounds.fixed_sequence([5.0, 4.0, 3.0, 2.0, 1.0], np.array(peaks) >= 1 / ALPHA)) <= 2
    return Found(covered, np.zeros(repetitions))


@cache
def _truth(population: Population) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, returns and sorted residuals of many episodes."""
    rng = np.random.default_rng(4)
    s = rng.random(TESTED)
    predictions, returns = population.rough(s), population.sample(rng, s)
    return predictions, returns, np.sort(returns - predictions)


def episodes(population: Population, n: int, repetitions: int, alpha: float, delta: float) -> Found:
    """single-episode: a new episode returns L(s) or more with probability 1 − α; the gap is J − E L(s)."""
    rng = np.random.default_rng([4, n])
    predictions, _, residuals = _truth(population)
    margins = np.empty(repetitions)
    for i in range(repetitions):
        s = rng.random(n)
        margins[i] = bounds.order_bound(population.sample(rng, s), population.rough(s), alpha, delta).margin
    below = np.searchsorted(residuals, margins) / TESTED
    return Found(below <= alpha, population.mean - predictions.mean() - margins)


def risks(population: Population, n: int, repetitions: int) -> Found:
    """evaluator-overstatement, in the stronger form E[(L(s) − G)₊] ≤ ε; the gap is λ."""
    rng = np.random.default_rng([5, n])
    predictions, returns, _ = _truth(population)
    margins = np.empty(repetitions)
    for i in range(repetitions):
        s = rng.random(n)
        found = bounds.risk_control(population.sample(rng, s), population.rough(s), UNIT, EPSILON, ALPHA)
        margins[i] = found.margin
    # λ are from a grid; the loss of each is computed once.
    unique, which = np.unique(margins, return_inverse=True)
    true = np.array([np.maximum(predictions - margin - returns, 0).mean() for margin in unique])
    return Found(true[which] <= EPSILON, margins)


def errors(population: Population, n: int, repetitions: int) -> Found:
    """evaluator-error: RMSE ≤ u; the gap is u − RMSE."""
    rng = np.random.default_rng([6, n])
    s = (np.arange(TESTED) + 0.5) / TESTED
    true = np.sqrt(np.mean((population.value(s) - population.rough(s)) ** 2))
    upper = np.empty(repetitions)
    for i in range(repetitions):
        s = rng.random(n)
        twice = population.sample(rng, s), population.sample(rng, s)
        upper[i] = bounds.rmse_upper_bound(*twice, population.rough(s), UNIT, ALPHA)
    return Found(true <= upper, upper - true)


@cache
def _policies(population: Population, lower: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True values, predictions, and known values or lower bounds, of a pool of policies.

    A policy is a start state of the population, and J_p − Ĵ_p the noise of a return from there.
    """
    rng = np.random.default_rng(7)
    pool = rng.random(4000)
    values = population.value(pool)
    predictions = values - (population.sample(rng, pool) - population.mean)
    if not lower:
        return values, predictions, values
    returns = population.sample(rng, np.repeat(pool[:, None], 20, axis=1))
    return values, predictions, np.array([bounds.betting_lower_bound(row, 0, 1, VALUE_ERROR) for row in returns])


def new_policies(population: Population, m: int, repetitions: int, lower: bool) -> Found:
    """new-policy: J_new ≥ Ĵ(Ξ_new) + q from m policies whose J is known, or bounded from 20 returns; the gap is J_new − bound."""
    cost = VALUE_ERROR if lower else 0.0
    bounds.conformal_index(m, ALPHA, cost)  # refuse before anything is drawn
    values, predictions, known = _policies(population, lower)
    rng = np.random.default_rng([7, m])
    gaps = np.empty(repetitions)
    for i in range(repetitions):
        chosen = rng.choice(len(values), m + 1, replace=False)
        old, new = chosen[:-1], chosen[-1]
        gaps[i] = values[new] - bounds.conformal_bound(known[old], predictions[old], ALPHA, cost).at(predictions[new])
    return Found(gaps >= 0, gaps)


CLAIMS: dict[str, tuple[float, Callable[[Population, int, int], Found]]] = {
    "mean-return, sequential: not certified wrongly": (ALPHA, lambda p, n, r: sequential_decisions(p, n, r)[0]),
    "mean-return, sequential: not rejected wrongly": (ALPHA, lambda p, n, r: sequential_decisions(p, n, r)[1]),
    "mean-return, five candidates: none certified wrongly": (ALPHA, candidates),
    "single-episode, α = δ = .05": (0.05, lambda p, n, r: episodes(p, n, r, 0.05, 0.05)),
    "single-episode, α = δ = .2": (0.2, lambda p, n, r: episodes(p, n, r, 0.2, 0.2)),
    "evaluator-overstatement, ε = .05": (ALPHA, risks),
    "evaluator-error": (ALPHA, errors),
    "new-policy, J known": (ALPHA, lambda p, n, r: new_policies(p, n, r, False)),
    "new-policy, J bounded": (ALPHA, lambda p, n, r: new_policies(p, n, r, True)),
}
"""Claims other than plain lower bounds on J, with their levels."""


def tables(repetitions: int, notify: Callable[[str], None] = lambda line: None) -> str:
    """The tables in Markdown."""
    lines = ["| returns | n | " + " | ".join(METHODS) + " |", "| --- " * (len(METHODS) + 2) + "|"]
    for population in POPULATIONS:
        for n in (*SIZES, MORE):
            cells = [found.cell() for found in mean_bounds(population, n, repetitions)]
            lines.append(f"| {population.name} | {n} | " + " | ".join(cells) + " |")
            notify(lines[-1])
    lines += ["", "| claim | at least | n | " + " | ".join(p.name for p in POPULATIONS) + " |"]
    lines.append("| --- " * (len(POPULATIONS) + 3) + "|")
    for claim, (level, simulate) in CLAIMS.items():
        for n in SIZES:
            cells = [_cell(simulate, population, n, repetitions) for population in POPULATIONS]
            lines.append(f"| {claim} | {100 * (1 - level):g} | {n} | " + " | ".join(cells) + " |")
            notify(lines[-1])
    return "\n".join(lines)


def _cell(simulate: Callable[[Population, int, int], Found], population: Population, n: int, repetitions: int) -> str:
    try:
        found = simulate(population, n, repetitions)
    except InputError:
        return "refused"
    return found.cell() if found.gaps.any() else found.cell().partition(",")[0]


def main(
    repetitions: int = 2000,
    page: Path = PAGE,
    parts: tuple[Literal["tightness", "coverage", "sites"], ...] = ("tightness", "coverage", "sites"),
) -> None:
    """Simulate, print, and fill in the page.

    Args:
        repetitions: of each claim, for each kind of returns and each n.
        page: file that the tables are written to.
        parts: the tables that are made; the others stay as they are.
    """
    tabulate = {"tightness": tightness.table, "coverage": tables, "sites": sites.table}
    fill_page(page, {part: f"{repetitions} repetitions.\n\n{tabulate[part](repetitions, print)}" for part in parts})
    print(f"wrote {page}")


if __name__ == "__main__":
    tyro.cli(main)
