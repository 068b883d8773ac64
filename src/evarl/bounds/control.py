"""Bounds on J with an evaluator: its prediction at the start state as a control variate, without a union bound.

With f the evaluator's value clipped into [c, d], and M fresh start states s̃_ij for *each* rollout,

    X_i = G_i − λ (f(s_i) − mean_j f(s̃_ij))   ∈ [low − λ(d − c), high + λ(d − c)],   E X_i = J

for any evaluator, because s_i and s̃_ij have the same distribution. With a good one X varies less; but its range is wider, and
bets on a wider range are smaller. X alone is worse than G for small n. So the stake is divided in advance,

    E_t(m) = ½ K_t(m; λ=0) + ¼ K_t(m; λ=½) + ¼ K_t(m; λ=1)

each K on the scale of its own range. A mixture of e-processes is an e-process: at worst half of the stake is lost, which
costs ln 2 in addition to ln(1/α), and nothing is chosen from the data.

The evaluator, [c, d], M, the λ and the shares must be fixed before the rollouts. Fresh states must be drawn independently for
each rollout: shared ones would make all X dependent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.bounds import betting
from evarl.bounds.betting import Range, Stream
from evarl.bounds.sequential import DEFAULT, Decision, Lanes, StoppingRule, decide
from evarl.errors import InputError
from evarl.stats import inputs

SHARES: Mapping[float, float] = {0.0: 0.5, 0.5: 0.25, 1.0: 0.25}
"""λ → share of the stake."""


@dataclass(frozen=True)
class EvaluatedRollouts:
    """Returns [n], predictions [n] at their start states, and predictions [n, M] at fresh start states for each of them."""

    returns: ArrayLike
    values: ArrayLike
    fresh: ArrayLike


def controlled_returns(
    returns: ArrayLike, values: ArrayLike, fresh: ArrayLike, coefficient: float, value_low: float, value_high: float
) -> Float[np.ndarray, " n"]:
    """X [n] from returns [n], values [n] at their start states and values [n, M] at fresh start states.

    >>> controlled_returns([1.0, 3.0], [1.0, 2.0], [[1.0, 2.0], [0.0, 9.0]], 1.0, 0.0, 2.0)
    array([1.5, 2. ])
    """
    found = inputs.vector("returns", returns, of="rollouts")
    at_start = inputs.same_length("values", values, len(found))
    elsewhere = inputs.array("fresh", fresh)
    if elsewhere.ndim != 2 or len(elsewhere) != len(found) or not elsewhere.shape[1]:
        raise InputError(
            f"fresh: has shape {elsewhere.shape}; must be [{len(found)}, M], M start states for each rollout"
        )
    if len(found) > 1 and np.ptp(elsewhere, axis=0).max() == 0 and np.ptp(elsewhere) > 0:
        raise InputError(
            "fresh: all rows are equal; must be start states that are drawn independently for each rollout"
        )
    if not value_low <= value_high:
        raise InputError(
            f"value range: [{value_low:g}, {value_high:g}] is not allowed; must have the lower number first"
        )
    difference = np.clip(at_start, value_low, value_high) - np.clip(elsewhere, value_low, value_high).mean(axis=1)
    return found - coefficient * difference


def mixture_lower_bound(
    rollouts: EvaluatedRollouts,
    limits: Range,
    alpha: float = 0.05,
    *,
    shares: Mapping[float, float] = SHARES,
    sequential: bool = False,
    cap: float = betting.CAP,
) -> float:
    """The lower bound ℓ with P(J < ℓ) ≤ α by bets on the mixture.

    >>> rng = np.random.default_rng(1)
    >>> start, fresh = rng.uniform(size=200), rng.uniform(size=(200, 50))
    >>> raw = betting.betting_lower_bound(start, 0.0, 1.0)
    >>> raw < mixture_lower_bound(EvaluatedRollouts(start, start, fresh), Range(0.0, 1.0))
    True
    """
    betting.check(alpha, cap)
    return betting.lower_bound(_streams(rollouts, limits, shares), alpha, sequential, cap)


def mixture_e_process(
    rollouts: EvaluatedRollouts,
    mean: float,
    limits: Range,
    alpha: float = 0.05,
    *,
    shares: Mapping[float, float] = SHARES,
    sequential: bool = False,
    cap: float = betting.CAP,
) -> Float[np.ndarray, " n"]:
    """The wealth E_t [n] against J ≤ mean.

    >>> rollouts = EvaluatedRollouts([1.0, 1.0], [0.0, 0.0], [[0.0], [0.0]])
    >>> mixture_e_process(rollouts, 0.5, Range(0.0, 1.0), sequential=True).round(4)
    array([1.4339, 2.1116])
    """
    betting.check(alpha, cap)
    streams = _streams(rollouts, limits, shares)
    return betting.mixture(streams, alpha, sequential, cap)(betting.check_mean(mean, limits.low, limits.high))


def mixture_sequential_test(
    rollouts: Iterable[tuple[float, float, ArrayLike]],
    threshold: float,
    limits: Range,
    rule: StoppingRule = DEFAULT,
    *,
    shares: Mapping[float, float] = SHARES,
) -> Decision:
    """`sequential_test` on rollouts (return, value at its start state, values [M] at fresh start states).

    >>> mixture_sequential_test([(1.0, 0.5, [0.5])] * 50, 0.5, Range(0.0, 1.0)).outcome
    'certified'
    """
    _check_shares(shares)
    low, high, (c, d) = limits.low, limits.high, limits.values
    coefficients = np.array(list(shares))
    reach = coefficients * (d - c)
    lanes = Lanes(low - reach, high + reach, np.array(list(shares.values())))

    def rows() -> Iterable[Float[np.ndarray, " K"]]:
        for result, value, fresh in rollouts:
            found = inputs.within("returns", [result], low, high)
            elsewhere = inputs.vector("fresh", fresh, of="start states")[None]
            yield np.array([controlled_returns(found, [value], elsewhere, k, c, d)[0] for k in coefficients])

    return decide(rows(), lanes, betting.check_mean(threshold, low, high), rule)


def _streams(rollouts: EvaluatedRollouts, limits: Range, shares: Mapping[float, float]) -> list[Stream]:
    """The streams that are bet on, the raw returns first."""
    low, high, (c, d) = limits.low, limits.high, limits.values
    found = inputs.within("returns", rollouts.returns, low, high)
    _check_shares(shares)
    return [
        Stream(
            controlled_returns(found, rollouts.values, rollouts.fresh, k, c, d),
            low - k * (d - c),
            high + k * (d - c),
            share,
        )
        for k, share in sorted(shares.items())
    ]


def _check_shares(shares: Mapping[float, float]) -> None:
    """Refuse shares that do not sum to 1, or without raw returns."""
    if 0.0 not in shares or min(shares) < 0 or min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise InputError(
            f"shares: {dict(shares)} is not allowed; must be λ → share with λ = 0 among them, no negative λ, and positive "
            "shares that sum to 1"
        )
