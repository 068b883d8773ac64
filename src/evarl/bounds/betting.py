"""Bounds on a mean for every n and every distribution in a known range, by betting (Waudby-Smith & Ramdas, 2024).

Returns are scaled to x = (G − low)/(high − low) ∈ [0, 1]. The wealth of a bettor against "J ≤ m" is

    K_t(m) = Π_{i≤t} (1 + λ_i (x_i − m)),   0 ≤ λ_i ≤ c/m,   c = .95

**Validity.** λ_i depends on m, n and what came before x_i, never on x_i. No factor is negative, since λ_i (x_i − m) ≥ −c; and
if J ≤ m its expectation, given the past, is 1 + λ_i (J − m) ≤ 1. So K is a non-negative supermartingale that starts at 1, a
convex combination of such K is another, and Ville's inequality says P(K_t(m) ≥ 1/α for any t) ≤ α. This holds for any such λ_i;
their choice determines only how tight the bound is. ℓ is the end of the m that are rejected, that is, have
max_t K_t(m) ≥ 1/α. If J < ℓ, J itself was rejected, which has probability at most α.

**n fixed beforehand.** The bet aims at 1/α after the n − i + 1 rounds that are left (as STaR does, Voráček & Orabona, 2025):

    λ_i  = min((max(√(2 y), 5/4) − ¼) / (s_{i−1} √(n − i + 1)), c/m),   y = ln(1/(α K_{i−1}(m)))
    μ_i  = (½ + Σ_{j≤i} x_j)/(i + 1),   s²_i = (μ_i² + Σ_{j≤i} (x_j − μ_j)²)/(i + 1),   s²_0 = ¼

and nothing is bet once K has reached 1/α. With normal x, a known s and many rounds, the test with the greatest power has
φ(u)/Φ(u) at u = Φ⁻¹(α K) in place of √(2y) − ¼; the two differ by little. s² counts one episode that returned the least beside
the observed ones, because a crash may not have been observed yet.

**n left open.** The stake is divided, ¾ careful and ¼ bold, so that K = ¾ K_careful + ¼ K_bold:

    careful   λ_i = min(2 √(ln(1/α) / (i ln(1+i) v_{i−1})), ½/m),   v_i = (¼ + Σ_{j≤i} (x_j − μ_j)²)/(i + 1),   v_0 = ¼
    bold      λ_i = c/m

**The rejected m are an interval** from the lower end on, so bisection finds ℓ, to 10⁻¹⁰ of the range, from below.
One factor, where λ before its cap has no m in it, is 1 + λ(x − m) up to m = c/λ and 1 − c + cx/m behind it; both parts do not
increase in m, and they meet. With n open this says that K_t(m) does not increase in m. With n fixed, let b(K) = K λ_i be what
is bet. λ_i does not increase in K; so b' ≤ λ_i ≤ c/m. And b' ≥ 0: b is a multiple of K, or of K(√(2y) − ¼) with √(2y) ≥ 5/4,
whose derivative √(2y) − ¼ − 1/√(2y) is positive. So K + b(K)(x − m) does not decrease in K: for x ≥ m as b' ≥ 0, for x < m as
its derivative is at least 1 − (c/m)(m − x) > 0. For a given K it does not increase in m. By induction, as long as neither
has reached 1/α, a greater m has no greater K, and it cannot get there first.

The order of returns matters; it must be that in which they were collected.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log, log1p, log2, sqrt

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs

CAP = 0.95
"""c, the largest share of the wealth that can be lost in one round."""
CAREFUL_CAP = 0.5
"""The same for the careful part of the stake where n is left open."""
BOLD = 0.25
"""The bold part of the stake where n is left open."""

LogWealth = Callable[[float], Float[np.ndarray, " n"]]
"""A function from m in [0, 1] to ln K_t(m), [n]."""


@dataclass(frozen=True)
class Stream:
    """Numbers [n] in [low, high] whose mean is J, and the share of the stake that is bet on them."""

    values: Float[np.ndarray, " n"]
    low: float
    high: float
    share: float = 1.0


@dataclass(frozen=True)
class Range:
    """The range [low, high] of returns, known in advance, and the part [c, d] of it into which predictions are clipped."""

    low: float
    high: float
    value_low: float | None = None
    """c; `low` unless given."""
    value_high: float | None = None
    """d; `high` unless given."""

    def __post_init__(self) -> None:
        inputs.check_range(self.low, self.high)
        c, d = self.values
        if not self.low <= c <= d <= self.high:
            whole = f"[{self.low:g}, {self.high:g}]"
            raise InputError(f"value range: [{c:g}, {d:g}] is not allowed; must be a part of {whole}")

    @property
    def values(self) -> tuple[float, float]:
        """(c, d).

        >>> Range(0.0, 1.0, value_high=0.8).values
        (0.0, 0.8)
        """
        c, d = self.value_low, self.value_high
        return self.low if c is None else c, self.high if d is None else d


def betting_lower_bound(
    returns: ArrayLike, low: float, high: float, alpha: float = 0.05, *, sequential: bool = False, cap: float = CAP
) -> float:
    """The lower bound ℓ with P(J < ℓ) ≤ α, from independent returns [n] in a known range [low, high].

    With `sequential`, n need not be fixed in advance: the stopping rule may depend on the returns.

    >>> round(betting_lower_bound([0.9] * 50, 0.0, 1.0), 4)
    0.8423
    >>> betting_lower_bound([0.9], 0.0, 1.0)
    0.0
    """
    check(alpha, cap)
    return lower_bound([Stream(inputs.within("returns", returns, low, high), low, high)], alpha, sequential, cap)


def betting_upper_bound(
    returns: ArrayLike, low: float, high: float, alpha: float = 0.05, *, sequential: bool = False, cap: float = CAP
) -> float:
    """The upper bound u with P(J > u) ≤ α: minus the lower bound of −G.

    >>> round(betting_upper_bound([0.1] * 50, 0.0, 1.0), 4)
    0.1577
    """
    check(alpha, cap)
    found = inputs.within("returns", returns, low, high)
    return -lower_bound([Stream(-found, -high, -low)], alpha, sequential, cap)


def e_process(
    returns: ArrayLike,
    mean: float,
    low: float,
    high: float,
    alpha: float = 0.05,
    *,
    sequential: bool = False,
    cap: float = CAP,
) -> Float[np.ndarray, " n"]:
    """The wealth K_t [n] against the hypothesis J ≤ mean, which is rejected at level α once any K_t is 1/α or more.

    Each K_t is an e-value: its expectation is at most 1 where the hypothesis holds. The level only determines the size of bets
    and, without `sequential`, that betting stops at 1/α; 1/max_t K_t is a p-value for any level. K is cut at e^700.

    >>> e_process([1.0, 1.0, 0.0], 0.5, 0.0, 1.0, sequential=True).round(4)
    array([1.6125, 2.6381, 0.8913])
    """
    check(alpha, cap)
    stream = Stream(inputs.within("returns", returns, low, high), low, high)
    return mixture([stream], alpha, sequential, cap)(check_mean(mean, low, high))


def hedged(x: Float[np.ndarray, " n"], alpha: float, cap: float = CAP) -> LogWealth:
    """Log-wealth of bets on x [n] in [0, 1] for a fixed n: each bet aims at 1/α after the remaining rounds.

    >>> hedged(np.array([0.5, 1.0]), np.exp(-2.0))(0.5).round(4)
    array([0.    , 0.6678])
    """
    rounds = np.arange(1, len(x) + 1)
    means, squares = running(x)
    variances = np.concatenate([[0.25], ((means**2 + squares) / (rounds + 1))[:-1]])
    pairs = list(zip(x.tolist(), (1 / np.sqrt(variances * rounds[::-1])).tolist(), strict=True))

    def logs(m: float) -> Float[np.ndarray, " n"]:
        most = cap / m if m > 0 else inf
        left = log(1 / alpha)  # ln(1/(α K)); plain floats are faster here than arrays, as each bet needs the one before
        found = []
        for value, scale in pairs:
            root = sqrt(2 * left)
            bet = (root - 0.25) * scale if root > 1.25 else scale
            left -= log1p((bet if bet < most else most) * (value - m))
            found.append(left)
            if left <= 0:
                break
        found += [left] * (len(pairs) - len(found))
        return log(1 / alpha) - np.array(found)

    return logs


def open_ended(x: Float[np.ndarray, " n"], alpha: float, cap: float = CAP) -> LogWealth:
    """Log-wealth of bets on x [n] in [0, 1] for an unknown n, careful ones and bold ones.

    >>> np.exp(open_ended(np.array([1.0, 0.0]), 0.05, cap=0.9)(0.5)).round(4)
    array([1.6 , 0.61])
    """
    rounds = np.arange(1, len(x) + 1)
    _, squares = running(x)
    variances = np.concatenate([[0.25], ((0.25 + squares) / (rounds + 1))[:-1]])
    sizes = careful_bet(rounds, variances, alpha)

    def logs(m: float) -> Float[np.ndarray, " n"]:
        m = max(m, 1e-300)
        careful = np.cumsum(np.log1p(np.minimum(sizes, min(cap, CAREFUL_CAP) / m) * (x - m)))
        bold = np.cumsum(np.log1p(cap / m * (x - m)))
        return np.logaddexp(careful + log(1 - BOLD), bold + log(BOLD))

    return logs


def running(x: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Running means μ_i and sums of squares Σ_{j≤i} (x_j − μ_j)².

    >>> running(np.array([1.0, 0.0]))
    (array([0.75, 0.5 ]), array([0.0625, 0.3125]))
    """
    means = (0.5 + np.cumsum(x)) / np.arange(2, len(x) + 2)
    return means, np.cumsum((x - means) ** 2)


def careful_bet(
    i: int | Int[np.ndarray, " n"], variance: Float[np.ndarray, " n"], alpha: float
) -> Float[np.ndarray, " n"]:
    """λ_i of the careful bets before the cap, from v_{i−1}.

    >>> careful_bet(1, np.array([0.25]), 0.5)
    array([4.])
    """
    return 2 * np.sqrt(log(1 / alpha) / (i * np.log1p(i) * variance))


def mixture(
    streams: Sequence[Stream], alpha: float, sequential: bool, cap: float
) -> Callable[[float], Float[np.ndarray, " n"]]:
    """The wealth Σ_k share_k K_t [n] of bets on several streams, as a function of the mean J; cut at e^700.

    A convex combination of e-processes is one: no union bound is paid for not knowing which stream is best. With n fixed each
    stream aims at what its share needs to reach 1/α alone, and bets no more when it has; so as long as the sum is below 1/α none
    has, all of them do not increase in m, and neither does the sum.
    """
    games = []
    for stream in streams:
        x = np.clip((stream.values - stream.low) / (stream.high - stream.low), 0, 1)
        games.append(open_ended(x, alpha, cap) if sequential else hedged(x, alpha * stream.share, cap))

    def wealth(mean: float) -> Float[np.ndarray, " n"]:
        total = np.zeros(len(streams[0].values))
        for stream, logs in zip(streams, games, strict=True):
            m = min(max((mean - stream.low) / (stream.high - stream.low), 0.0), 1.0)
            total = total + stream.share * np.exp(np.minimum(logs(m), 700))
        return total

    return wealth


def lower_bound(streams: Sequence[Stream], alpha: float, sequential: bool, cap: float) -> float:
    """The largest rejected mean in the range of the first stream, which must be that of the returns."""
    wealth, raw = mixture(streams, alpha, sequential, cap), streams[0]
    return last_rejected(lambda mean: bool(wealth(mean).max() >= 1 / alpha), raw.low, raw.high)


def last_rejected(rejects: Callable[[float], bool], low: float, high: float, width: float = 1e-10) -> float:
    """The largest mean in [low, high] that is rejected, by bisection to `width` of the range; low where none is.

    The rejected means must be an interval that begins at the lower end. The mean that is returned was itself rejected.

    >>> round(last_rejected(lambda m: m < 0.3, 0.0, 1.0), 9)
    0.3
    >>> last_rejected(lambda m: m < 0, 0.0, 1.0), last_rejected(lambda m: m < 2, 0.0, 1.0)
    (0.0, 1.0)
    """
    if rejects(high):
        return high
    for _ in range(ceil(-log2(width))):
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
    return low


def check(alpha: float, cap: float) -> None:
    """Refuse invalid levels and caps."""
    inputs.check_level("alpha", alpha)
    if not 0 < cap < 1:
        raise InputError(f"cap: {cap} is not allowed; must be a number between 0 and 1, such as 0.5 or 0.75")


def check_mean(mean: float, low: float, high: float) -> float:
    """The mean of a hypothesis, which must be inside the range."""
    inputs.check_range(low, high)
    if not low <= mean <= high:
        raise InputError(f"mean: {mean:g} is outside the range [{low:g}, {high:g}]; must be inside")
    return float(mean)
