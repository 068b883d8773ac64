"""Gaps of the bounds of `evarl.bounds` relative to those by plain bets, and their coverage: a table of `make coverage`.

Plain bets are those of Waudby-Smith & Ramdas with c = ½: λ_i = min(√(2 ln(1/α)/(n v_{i−1})), ½/m), with i ln(1 + i) for n
if it is unknown. All bounds are of the same returns.
"""

from collections.abc import Callable

import numpy as np

from evarl import bounds

SIZES = (20, 50, 200, 1000)
LEVELS = (0.05, 0.01)
BOUNDED = 50
"""Number of repetitions of which bounds are computed; for the others only the rejection of J is computed, which is faster."""

Sample = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _skewed(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    values = 0.02 + 0.52 * rng.random(shape) ** 3
    return rng.beta(10 * values, 10 * (1 - values))


def _crashes(share: float) -> Sample:
    return lambda rng, shape: (rng.random(shape) >= share) * rng.uniform(0.75, 0.9, shape)


def _coins(probability: float) -> Sample:
    return lambda rng, shape: (rng.random(shape) < probability).astype(float)


RETURNS: dict[str, tuple[float, Sample]] = {
    "uniform": (0.5, lambda rng, shape: rng.random(shape)),
    "Beta(10, 30)": (0.25, lambda rng, shape: rng.beta(10, 30, shape)),
    "deviation .001": (0.6, lambda rng, shape: 0.6 + 0.001 * np.sqrt(3) * rng.uniform(-1, 1, shape)),
    "constant": (0.7, lambda rng, shape: np.full(shape, 0.7)),
    "skewed": (0.15, _skewed),
    "1 % crashes": (0.99 * 0.825, _crashes(0.01)),
    "4 % crashes": (0.96 * 0.825, _crashes(0.04)),
    "2 % windfalls": (0.116, lambda rng, shape: np.where(rng.random(shape) < 0.02, 0.9, 0.1)),
    "0 or 1, p = .5": (0.5, _coins(0.5)),
    "0 or 1, p = .9": (0.9, _coins(0.9)),
    "0 or 1, p = .99": (0.99, _coins(0.99)),
}
"""Name → mean and sampler of returns [repetitions, n] in [0, 1]."""


def plain_bounds(returns: np.ndarray, alpha: float, sequential: bool) -> np.ndarray:
    """Lower bounds [repetitions] by plain bets.

    >>> plain_bounds(np.full((1, 50), 0.9), 0.05, False).round(4)
    array([0.8011])
    """
    count = np.arange(1, returns.shape[1] + 1)
    means = (0.5 + np.cumsum(returns, axis=1)) / (count + 1)
    variances = (0.25 + np.cumsum((returns - means) ** 2, axis=1)) / (count + 1)
    before = np.concatenate([np.full((len(returns), 1), 0.25), variances[:, :-1]], axis=1)
    bets = np.sqrt(2 * np.log(1 / alpha) / ((count * np.log1p(count) if sequential else len(count)) * before))
    low, high = np.zeros((len(returns), 1)), np.ones((len(returns), 1))
    for _ in range(30):
        m = (low + high) / 2
        logs = np.cumsum(np.log1p(np.minimum(bets, 0.5 / m) * (returns - m)), axis=1)
        rejected = logs.max(axis=1, keepdims=True) >= np.log(1 / alpha)
        low, high = np.where(rejected, m, low), np.where(rejected, high, m)
    return low[:, 0]


def relative_gap(returns: np.ndarray, mean: float, alpha: float, sequential: bool) -> float:
    """Mean gap J − ℓ relative to that of plain bets on the same returns."""
    lower = [bounds.betting_lower_bound(row, 0, 1, alpha, sequential=sequential) for row in returns]
    return float((mean - np.mean(lower)) / (mean - plain_bounds(returns, alpha, sequential).mean()))


def coverage(returns: np.ndarray, mean: float, alpha: float, sequential: bool) -> float:
    """Share of repetitions in which J was not rejected, that is, ℓ ≤ J."""
    peaks = np.array([bounds.e_process(row, mean, 0, 1, alpha, sequential=sequential).max() for row in returns])
    return float(np.mean(peaks < 1 / alpha))


def table(repetitions: int, notify: Callable[[str], None] = lambda line: None) -> str:
    """The table in Markdown."""
    kinds = [(alpha, sequential) for alpha in LEVELS for sequential in (False, True)]
    names = [f"α = {alpha:g}, n {'open' if sequential else 'fixed'}" for alpha, sequential in kinds]
    names += [f"α = {alpha:g}, two values" for alpha in LEVELS]
    lines = ["| returns | n | " + " | ".join(names) + " |", "| --- " * (len(names) + 2) + "|"]
    for name, (mean, sample) in RETURNS.items():
        for n in SIZES:
            returns = sample(np.random.default_rng([8, n]), (repetitions, n))
            cells = [
                f"{relative_gap(returns[:BOUNDED], mean, *kind):.2f}, {100 * coverage(returns, mean, *kind):.1f}"
                for kind in kinds
            ]
            cells += [_exact(returns[:BOUNDED], mean, alpha) if "0 or 1" in name else "" for alpha in LEVELS]
            lines.append(f"| {name} | {n} | " + " | ".join(cells) + " |")
            notify(lines[-1])
    return "\n".join(lines)


def _exact(returns: np.ndarray, mean: float, alpha: float) -> str:
    lower = [bounds.two_valued_lower_bound(row, 0, 1, alpha) for row in returns]
    return f"{(mean - np.mean(lower)) / (mean - plain_bounds(returns, alpha, False).mean()):.2f}"
