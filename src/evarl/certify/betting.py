"""C1: bounds on a mean that hold for every n and every distribution in a known range (Waudby-Smith & Ramdas, 2024).

Returns are scaled to x = (G − low)/(high − low) ∈ [0, 1]. Somebody who believes that J is more than m bets against "J ≤ m":

    K_t(m) = Π_{i≤t} (1 + min(λ_i, c/m) (x_i − m)),   0 < c < 1
    λ_i    = √(2 ln(1/α) / (n s²_{i−1}))              n fixed beforehand
    λ_i    = √(2 ln(1/α) / (i ln(1+i) s²_{i−1}))      sequential
    μ_i    = (½ + Σ_{j≤i} x_j)/(i+1),   s²_i = (¼ + Σ_{j≤i} (x_j − μ_j)²)/(i+1),   s²_0 = ¼

λ_i is known before x_i. If J ≤ m, K is therefore a non-negative supermartingale that starts at 1, and Ville's inequality says
P(K_t(m) ≥ 1/α for any t) ≤ α. The bound ℓ is where the scan of m upwards meets the first m that is not rejected, that is,
with max_t K_t(m) < 1/α. J is then below ℓ with probability at most α; with either λ_i for all t at once.

**The scan is exact.** One factor, as a function of m, is 1 + λ(x − m) up to m = c/λ and 1 − c + cx/m behind it; both parts
are positive and do not increase, and they meet. So K_t(m), its maximum over t and every mixture of such wealths do not
increase in m, cap or no cap: what is rejected is an interval that begins at the lower end. `last_rejected` needs this only to be
*tight*; it returns the last of the grid points from the lower end on that are all rejected, at most 1e-12 of the
range below the first that is not.

The order of returns matters; it has to be that in which they were collected.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evarl.certify import inputs
from evarl.errors import InputError

BLOCK = 2**20
"""Wealths that are held in memory at a time."""


@dataclass(frozen=True)
class Stream:
    """Numbers [n] in [low, high] whose mean is J, and the share of the stake that is bet on them."""

    values: np.ndarray
    low: float
    high: float
    share: float = 1.0


def betting_lower_bound(
    returns: ArrayLike, low: float, high: float, alpha: float = 0.05, *, sequential: bool = False, cap: float = 0.5
) -> float:
    """The ℓ with P(J < ℓ) ≤ α, from independent returns [n] in a range [low, high] that was known beforehand.

    With `sequential`, n need not have been fixed: rollouts may have ended for any reason that the returns gave.

    >>> round(betting_lower_bound([0.9] * 50, 0.0, 1.0), 4)
    0.8011
    >>> betting_lower_bound([0.9], 0.0, 1.0)
    0.0
    """
    check(alpha, cap)
    return lower_bound([Stream(inputs.returns_in("returns", returns, low, high), low, high)], alpha, sequential, cap)


def betting_upper_bound(
    returns: ArrayLike, low: float, high: float, alpha: float = 0.05, *, sequential: bool = False, cap: float = 0.5
) -> float:
    """The u with P(J > u) ≤ α: the lower bound of −G, with its sign turned.

    >>> round(betting_upper_bound([0.1] * 50, 0.0, 1.0), 4)
    0.1989
    """
    check(alpha, cap)
    found = inputs.returns_in("returns", returns, low, high)
    return -lower_bound([Stream(-found, -high, -low)], alpha, sequential, cap)


def e_process(
    returns: ArrayLike,
    mean: float,
    low: float,
    high: float,
    alpha: float = 0.05,
    *,
    sequential: bool = False,
    cap: float = 0.5,
) -> np.ndarray:
    """K_t [n] against the hypothesis J ≤ mean, which is rejected at level α once any K_t is 1/α or more.

    Each K_t is an e-value: its expectation is at most 1 where the hypothesis holds. The level only decides how boldly is
    bet; 1/max_t K_t is a p-value whichever it was. K is cut at e^700.

    >>> e_process([1.0, 1.0, 0.0], 0.5, 0.0, 1.0, sequential=True).round(4)
    array([1.5  , 2.25 , 1.125])
    """
    check(alpha, cap)
    stream = Stream(inputs.returns_in("returns", returns, low, high), low, high)
    return mixture([stream], alpha, sequential, cap)(check_mean(mean, low, high))


def bets(x: np.ndarray, alpha: float, sequential: bool) -> np.ndarray:
    """λ_i before its cap, [..., n], of x [..., n] in [0, 1].

    >>> bets(np.array([0.5, 1.0]), np.exp(-2.0), sequential=False).round(4)
    array([2.8284, 4.    ])
    """
    count = np.arange(1, x.shape[-1] + 1)
    means = (0.5 + np.cumsum(x, axis=-1)) / (count + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2, axis=-1)) / (count + 1)
    before = np.concatenate([np.full_like(x[..., :1], 0.25), variances[..., :-1]], axis=-1)
    rounds = count * np.log1p(count) if sequential else np.full(len(count), x.shape[-1])
    return np.sqrt(2 * np.log(1 / alpha) / (rounds * before))


def log_wealth(x: np.ndarray, bet: np.ndarray, mean: ArrayLike, cap: float) -> np.ndarray:
    """Logarithms of K_t [..., n] of x [..., n] in [0, 1] and their bets [..., n] against means [...] in [0, 1].

    >>> log_wealth(np.array([1.0]), np.array([9.0]), [0.5, 1.0], 0.5).round(4)
    array([[0.4055],
           [0.    ]])
    """
    m = np.asarray(mean, np.float64)[..., None]
    return np.cumsum(np.log1p(np.minimum(bet, cap / np.maximum(m, 1e-300)) * (x - m)), axis=-1)


def mixture(streams: Sequence[Stream], alpha: float, sequential: bool, cap: float) -> Callable[[ArrayLike], np.ndarray]:
    """Σ_k share_k K_t [..., n], k over streams, as a function of means [...] in the units of returns; cut at e^700.

    A convex combination of e-processes is one: no union bound is paid for not knowing which stream is best.
    """
    scaled = [np.clip((stream.values - stream.low) / (stream.high - stream.low), 0, 1) for stream in streams]
    sizes = [bets(x, alpha, sequential) for x in scaled]

    def wealth(mean: ArrayLike) -> np.ndarray:
        total = np.zeros(())
        for stream, x, bet in zip(streams, scaled, sizes, strict=True):
            m = np.clip((np.asarray(mean) - stream.low) / (stream.high - stream.low), 0, 1)
            total = total + stream.share * np.exp(np.minimum(log_wealth(x, bet, m, cap), 700))
        return total

    return wealth


def lower_bound(streams: Sequence[Stream], alpha: float, sequential: bool, cap: float) -> float:
    """The scan over the range of the first stream, which has to be that of the returns."""
    wealth, raw = mixture(streams, alpha, sequential, cap), streams[0]
    cells = int(np.clip(BLOCK // len(raw.values), 8, 16))
    return last_rejected(lambda means: wealth(means).max(axis=-1) >= 1 / alpha, raw.low, raw.high, cells)


def last_rejected(
    rejects: Callable[[np.ndarray], np.ndarray], low: float, high: float, cells: int = 16, width: float = 1e-12
) -> float:
    """Scan [low, high] upwards and return the last point before the first that is not rejected.

    A grid over the range is followed by a grid over the cell between the last rejected point and the first that is not,
    and so on until the cell is less than `width` of the range.

    >>> round(last_rejected(lambda m: m < 0.3, 0.0, 1.0), 9)
    0.3
    >>> last_rejected(lambda m: m < 0, 0.0, 1.0), last_rejected(lambda m: m < 2, 0.0, 1.0)
    (0.0, 1.0)
    """
    for _ in range(int(np.ceil(-np.log(width) / np.log(cells)))):
        grid = np.linspace(low, high, cells + 1)
        kept = ~rejects(grid)
        if not kept.any():
            return high
        first = int(np.argmax(kept))
        if first == 0:
            return low
        low, high = float(grid[first - 1]), float(grid[first])
    return low


def check(alpha: float, cap: float) -> None:
    """Refuse levels and caps that cannot be."""
    inputs.check_level("alpha", alpha)
    inputs.check_cap(cap)


def check_mean(mean: float, low: float, high: float) -> float:
    """A hypothesis about J that is not decided already."""
    inputs.check_range(low, high)
    if not low <= mean <= high:
        raise InputError(f"mean: {mean:g} is outside the range [{low:g}, {high:g}]; nothing has to be tested there")
    return float(mean)
