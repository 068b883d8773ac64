"""Lower bounds on what a policy returns on a new site, from the test there alone.

A *site* is a context, such as the friction of a floor, that is drawn once, is not observed, and changes what the policy is worth.
On each of n calibration sites the test was taken, which gave a prediction V̂_i, and J_i was measured: the mean return of m
episodes. On a new site only the test is taken. With

    e_i = J_i − V̂_i sorted ascending,   k = ⌊(n + 1) α⌋,   J_new ≥ V̂_new + e_(k)

holds with probability at least 1 − α (split conformal prediction, one-sided), where J_new is the mean of m episodes on the new
site, *measured in the same way*. For e_new is below e_(k) only if it is among the k least of n + 1 exchangeable scores, which has
probability at most k/(n + 1): exactly that if no two scores can be equal, and less with ties, which make the bound conservative.
The least n is 1/α − 1. V̂ can be any function of the test that was fixed before the calibration; a good one makes the bound high.

**Lower quantiles.** A prediction q̂ of a lower quantile of J can take the place of V̂, e_i = J_i − q̂_i (conformalised quantile
regression, one-sided). Nothing is assumed of q̂ either; it is for tests that tell how uncertain a site is.

**Two probabilities.** 1 − α is over calibration and new site together. With δ, k = max{k : P(Binomial(n, α) ≤ k − 1) ≤ δ}
instead: the calibration is such that a share of at least 1 − α of all new sites keeps its bound, except with probability δ.
This needs sites that are independent and not only exchangeable.

**What the site is worth.** The bound on J_new is none on its expectation V_new. If episodes return 0, or −100 in one of a
hundred, every V is −1, but most J of few episodes are 0, and so is the bound. Symmetric errors of J do not suffice either: if one
site in 17 is worth −1 and all others 0, with errors within ±.1 and α = .05, the bound is near −.93 for large n. Let therefore
ℓ_i be lower bounds on V_i, all made by one procedure from m episodes, each above V_i with probability at most β whatever the
site and its test. Consider ℓ_new, made in the same way, which need not be computed. With b = V̂_new + e_(k) from the scores
e_i = ℓ_i − V̂_i,

    k/(n + 1) ≥ P(ℓ_new < b) ≥ P(V_new < b, ℓ_new ≤ V_new) ≥ (1 − β) P(V_new < b)

since the episodes on the new site are independent of its test and of the calibration. So V_new ≥ b with probability at least
1 − α for k = ⌊(n + 1) α (1 − β)⌋, and with δ likewise at α (1 − β). β is a factor and not a summand: it can be large, and the ℓ_i
close to V_i. (A J whose errors are symmetric is such an ℓ at β = ½.)

All of it is for sites that are drawn like those of the calibration, as an average over sites and not for each of them; each
new site has its probability, not all of them at once.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.bounds.betting import Range, betting_lower_bound
from evarl.bounds.ranks import RankBound, least_rollouts, order_index, written
from evarl.errors import InputError
from evarl.ranges import whole
from evarl.stats import inputs

VALUE_ERROR = 0.2
"""β, the level of the lower bounds ℓ; between .1 and .5 the gap depends little on it."""


@dataclass(frozen=True)
class SiteCalibration:
    """What was predicted and measured on n calibration sites."""

    predictions: ArrayLike
    """V̂ [n], from the test on each site."""
    returns: ArrayLike
    """[n]: the mean return of m episodes on each site, or lower bounds ℓ on its expectation."""
    episodes: int
    """m, the same on each site."""
    quantiles: ArrayLike | None = None
    """q̂ [n], predictions of a lower quantile, if there are any; scores are relative to them."""
    value_error: float = 0.0
    """0 for means; for lower bounds, which must all be made by one procedure, their level β."""

    def __post_init__(self) -> None:
        n = len(inputs.vector("predictions", self.predictions, of="sites"))
        inputs.same_length("returns", self.returns, n, of="sites")
        if self.quantiles is not None:
            inputs.same_length("quantiles", self.quantiles, n, of="sites")
        whole("episodes", self.episodes)
        _check_value_error(self.value_error)

    @classmethod
    def measured(
        cls, predictions: ArrayLike, returns: ArrayLike, quantiles: ArrayLike | None = None
    ) -> "SiteCalibration":
        """For bounds on the mean of m episodes, from returns [n, m].

        >>> SiteCalibration.measured([0.5, 0.7], [[0.0, 1.0], [1.0, 1.0]]).returns
        array([0.5, 1. ])
        """
        found = _episodes(returns)
        return cls(predictions, found.mean(axis=1), found.shape[1], quantiles)

    @classmethod
    def bounded(
        cls,
        predictions: ArrayLike,
        returns: ArrayLike,
        limits: Range,
        value_error: float = VALUE_ERROR,
        quantiles: ArrayLike | None = None,
    ) -> "SiteCalibration":
        """For bounds on the expected return of a site, from returns [n, m] in a known range: with ℓ by betting.

        >>> SiteCalibration.bounded([0.5], [[0.75] * 50], Range(0.0, 1.0)).returns.round(4)
        array([0.7219])
        """
        inputs.check_level("value_error", value_error, example=VALUE_ERROR)
        found = _episodes(returns)
        lower = np.array([betting_lower_bound(row, limits.low, limits.high, value_error) for row in found])
        return cls(predictions, lower, found.shape[1], quantiles, value_error)

    @property
    def scores(self) -> Float[np.ndarray, " n"]:
        """The scores e [n], in the order of the sites."""
        relative_to = self.predictions if self.quantiles is None else self.quantiles
        return np.asarray(self.returns, np.float64) - np.asarray(relative_to, np.float64)


@dataclass(frozen=True)
class SiteBound(RankBound):
    """The bound V̂ + margin on a new site, or q̂ + margin if quantiles were calibrated."""

    sites: int
    episodes: int
    """m: what is bounded is the mean return of so many episodes, unless lower bounds were calibrated."""
    alpha: float
    delta: float | None
    value_error: float
    """Above 0: what is bounded is the expected return."""

    def at(self, predictions: ArrayLike) -> Float[np.ndarray, "..."] | float:
        """The bounds on new sites with these predictions, or predicted quantiles."""
        # One step down, so that rounding does not put it above the return of a site whose score is the margin.
        return inputs.array("predictions", predictions) + np.nextafter(self.margin, -np.inf)

    def gap(self, predictions: ArrayLike, truths: ArrayLike) -> float:
        """The mean of truth − bound over sites with these predictions [N] and true values [N]; bounds that fail count negative.

        >>> site_bound(SiteCalibration([0.0] * 19, range(19), 1)).gap([0.0, 1.0], [2.0, 5.0])
        3.0
        """
        first, second = inputs.pair(("predictions", "truths"), predictions, truths, of="sites")
        return float(np.mean(second - self.at(first)))


def site_bound(calibration: SiteCalibration, alpha: float = 0.05, delta: float | None = None) -> SiteBound:
    """The bound on a new site; with δ at confidence 1 − δ over calibrations, else over calibration and site together.

    >>> site_bound(SiteCalibration([0.0] * 19, range(19), episodes=10))
    SiteBound(margin=0.0, index=1, sites=19, episodes=10, alpha=0.05, delta=None, value_error=0.0)
    """
    scores = np.sort(calibration.scores)
    k = site_index(len(scores), alpha, delta, calibration.value_error)
    margin = float(scores[k - 1])
    return SiteBound(margin, k, len(scores), calibration.episodes, alpha, delta, calibration.value_error)


def site_index(sites: int, alpha: float = 0.05, delta: float | None = None, value_error: float = 0.0) -> int:
    """The rank k of the score that is the margin, from 1; levels are taken as decimal numbers.

    >>> site_index(19), site_index(59, delta=0.05), site_index(24, value_error=0.2), site_index(99, 0.29)
    (1, 1, 1, 29)
    """
    least = least_sites(alpha, delta, value_error)
    if sites < least:
        levels = f"alpha {alpha:g}" + (f", delta {delta:g}" if delta is not None else "")
        levels += f", value_error {value_error:g}" if value_error else ""
        raise InputError(f"returns: there are {sites} sites; must be at least {least} for {levels}")
    level = _level(alpha, value_error)
    return floor((sites + 1) * level) if delta is None else order_index(sites, float(level), delta)


def least_sites(alpha: float = 0.05, delta: float | None = None, value_error: float = 0.0) -> int:
    """The least n for which there is a bound.

    >>> least_sites(), least_sites(delta=0.05), least_sites(value_error=0.2), least_sites(0.1, 0.1, 0.2)
    (19, 59, 24, 28)
    """
    inputs.check_level("alpha", alpha)
    _check_value_error(value_error)
    level = _level(alpha, value_error)
    return ceil(1 / level) - 1 if delta is None else least_rollouts(float(level), delta)


def _level(alpha: float, value_error: float) -> Fraction:
    """α(1 − β), what is left for the rank."""
    return written(alpha) * (1 - written(value_error))


def _check_value_error(value_error: float) -> None:
    if not 0 <= value_error < 1:
        raise InputError(f"value_error: {value_error:g} is not allowed; must be 0 or more and below 1")


def _episodes(returns: ArrayLike) -> Float[np.ndarray, "n m"]:
    found = inputs.array("returns", returns)
    if found.ndim != 2 or not found.size:
        raise InputError(f"returns: has shape {found.shape}; must be [sites, episodes], at least one of each")
    return found
