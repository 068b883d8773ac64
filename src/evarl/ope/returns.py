"""The whole distribution of the returns of a target policy, from trajectories of other policies.

With G the return of a logged trajectory, w its importance weight and F(x) = P(G ≤ x) under the target policy,

    tis   (1/n) Σ_i w_i 1{G_i ≤ x}                unbiased; above 1 it is cut, and what is missing to 1 is put on the greatest G
    wis   Σ_i w_i 1{G_i ≤ x} / Σ_i w_i            a distribution as it is; consistent
    dr    (1/n) Σ_i [w_i 1{G_i ≤ x} + Σ_t (w_{i,t−1} V_t(x) − w_{i,t} Q_t(x))]      unbiased; less variance with a good model

where Q_t(x) is a model's probability that the return of the whole trajectory is at most x under the target policy, given the
trajectory up to s_t, a_t, V_t = E_{a~π}[Q_t], and w_{−1} = 1. The doubly robust form need neither increase in x nor stay within
[0, 1]; it is replaced by the nearest function that does (isotonic regression), whose greatest distance from F is no greater.
(Chandak et al., 2021, *Universal off-policy evaluation*; Huang et al., 2021 and 2022, *Off-policy risk assessment*.)
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from evarl.bounds.bands import Band
from evarl.errors import InputError, unknown_name
from evarl.ope.log import CollapsedWeights, Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.return_bands import DEFAULT as DEFAULT_BAND, BandSettings, bootstrap_band, guaranteed_band
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories, finite_weights, trajectories
from evarl.stats import inputs
from evarl.stats.distribution import Distribution

Method = Literal["tis", "wis", "dr"]
METHODS: tuple[Method, ...] = ("tis", "wis", "dr")
DEFAULT = Settings()
MOST_POINTS = 500
"""The doubly robust form is computed at no more points than this unless they are given."""


class CDFModel(Protocol):
    """A model of the distribution of returns, for the doubly robust form."""

    def __call__(
        self, step: int, points: Float[np.ndarray, " K"]
    ) -> tuple[Float[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
        """Q_t(x) and V_t(x) of each trajectory at one step. Trajectory i must have had no part in the fit of its own row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReturnDistribution(Distribution):
    """The estimated distribution of returns: `points`, `cdf`, mean, variance, quantiles and CVaR, with a band around it."""

    method: str
    estimand: str
    """What the returns are those of."""
    band: Band | None
    """Contains the whole distribution function with the confidence of the settings; None where it would mean nothing."""
    assumptions: str
    """What the band relies on."""
    total_weight: float | None
    """The mean of the weights, whose expectation is 1 where the log covers the policy; None if self-normalised."""
    effective_sample_size: float
    warnings: tuple[str, ...]
    """Reasons not to trust the estimate."""


class _Form(NamedTuple):
    """An estimator of F at points."""

    points: Float[np.ndarray, " K"]
    of_shares: Callable[[Float[np.ndarray, "B N"]], Float[np.ndarray, "B K"]]
    """F at the points for shares of the trajectories."""


def return_distribution(
    log: Log,
    policy: TargetPolicy,
    settings: Settings = DEFAULT,
    *,
    method: Method = "wis",
    band: BandSettings = DEFAULT_BAND,
    model: CDFModel | None = None,
    points: ArrayLike | None = None,
) -> ReturnDistribution:
    """The distribution of the discounted return of a policy over the T steps of the log, with a band.

    The doubly robust form needs a `model`, such as `KernelCDF`, and is computed at `points`: the logged returns unless given.
    """
    settings.validate()
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    band.validate(method)
    logged = trajectories(log, policy, settings)
    form = _form(logged, method, model, points)
    count = len(logged.returns)
    size = logged.effective_sample_size
    collapsed = size < max(settings.warn_below * count, 1.0)
    cdf = form.of_shares(np.full((1, count), 1.0 / count))[0]
    found, assumptions = None, "no band was asked for"
    if band.kind == "bootstrap":
        assumptions = "asymptotic: many independent trajectories, none of which has much of the weight"
        found = None if collapsed else bootstrap_band(form.points, form.of_shares, settings, count, band)
    elif band.kind != "none":
        found, assumptions = guaranteed_band(logged, band, 1 - settings.confidence)
    total = None if method == "wis" else float(logged.weights.mean())
    notes = _notes(logged, settings, collapsed, band.kind == "bootstrap", total)
    return ReturnDistribution(
        points=form.points,
        cdf=cdf,
        method=method,
        estimand=f"return of {logged.mask.shape[1]} steps, discounted by {logged.discount:g}, from the logged start states",
        band=found,
        assumptions=assumptions,
        total_weight=total,
        effective_sample_size=size,
        warnings=notes,
    )


def doubly_robust_terms(
    logged: Trajectories, model: CDFModel, points: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "N K"]:
    """The contributions of trajectories to the doubly robust form, whose mean it is, before it is made monotone."""
    returns, weight = logged.returns, np.ones(len(logged.returns))
    found = logged.weights[:, None] * (returns[:, None] <= points)
    for step in range(logged.mask.shape[1]):
        alive = logged.mask[:, step, None]
        q, v = (np.where(alive, np.asarray(x, np.float64), 0.0) for x in model(step, points))
        for name, x in (("q", q), ("v", v)):
            if x.shape != found.shape or not ((x >= -1e-9) & (x <= 1 + 1e-9)).all():
                raise InputError(f"model: {name} at step {step} has shape {x.shape}; must be {found.shape}, of 0 to 1")
        now = finite_weights(logged.log_weight[:, step])
        found += weight[:, None] * v - now[:, None] * q
        weight = now
    return found


def proper(cdf: Float[np.ndarray, "B K"]) -> Float[np.ndarray, "B K"]:
    """Functions cut to [0, 1] whose last value is 1, and which do not decrease."""
    monotone = np.stack([isotonic_regression(row).x if (np.diff(row) < 0).any() else row for row in cdf])
    return np.concatenate([np.clip(monotone[:, :-1], 0.0, 1.0), np.ones((len(cdf), 1))], axis=1)


def _form(logged: Trajectories, method: Method, model: CDFModel | None, points: ArrayLike | None) -> _Form:
    returns = logged.returns
    if method != "dr":
        if model is not None or points is not None:
            raise InputError(f"method: {method} takes neither a model nor points; must be dr for these")
        weights = logged.relative_weights if method == "wis" else logged.weights
        if not weights.any():
            raise InputError(
                "weights: are all 0, as the policy takes none of the logged trajectories; must have support"
            )
        order = np.argsort(returns, kind="stable")
        distinct, first = np.unique(returns[order], return_index=True)
        last = np.append(first[1:], len(order)) - 1

        def of_shares(shares: Float[np.ndarray, "B N"]) -> Float[np.ndarray, "B K"]:
            summed = np.cumsum((shares * weights)[:, order], axis=1)[:, last]
            return proper(summed / np.maximum(summed[:, -1:], 1e-300) if method == "wis" else summed)

        return _Form(distinct, of_shares)
    if model is None:
        raise InputError("model: is missing; method dr requires one, such as ope.KernelCDF(log, policy, settings)")
    if points is None:
        at = np.unique(returns)
        at = (
            at
            if len(at) <= MOST_POINTS
            else np.unique(np.quantile(at, np.linspace(0, 1, MOST_POINTS), method="higher"))
        )
    else:
        at = np.unique(inputs.vector("points", points, of="points"))
        if at[-1] < returns.max():
            raise InputError(f"points: end at {at[-1]:g}; must reach {returns.max():g}, the greatest logged return")
    terms = doubly_robust_terms(logged, model, at)
    return _Form(at, lambda shares: proper(shares @ terms))


def _notes(
    logged: Trajectories, settings: Settings, collapsed: bool, bootstrap: bool, total: float | None
) -> tuple[str, ...]:
    """Reasons not to trust the estimate; a collapse of the weights is a warning of Python's too."""
    notes: list[str] = []
    count = len(logged.returns)
    if collapsed:
        band = "; there is no bootstrap band, which would not know what has not been seen" if bootstrap else ""
        notes.append(
            f"the weights have collapsed: effective sample size {logged.effective_sample_size:.1f} of {count} "
            f"trajectories{band}"
        )
        warnings.warn(f"return_distribution: {notes[0]}", CollapsedWeights, stacklevel=3)
    if settings.clip is not None:
        notes.append(f"ratios are clipped at e^{settings.clip:g}, which makes the estimate biased")
    if total is not None and abs(total - 1) > 0.1:
        notes.append(f"the mean weight is {total:.3g} and not 1: the log is small or does not cover the policy")
    return tuple(notes)
