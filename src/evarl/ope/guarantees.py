"""Lower bounds on the value of a policy that hold for every number of trajectories, from importance-weighted returns.

A contribution X ≥ 0 of a trajectory with J ≥ low + E[X] is

    X = w (G − g)                                   low = g,            from `least_return` g, or
    X = Σ_{t<T} γ^t w_t (r_t − r),                  low = r Σ_{t<T} γ^t, from `least_reward` r (r ≤ 0 if trajectories can end)

with w_t the weight of the actions up to t, and with a reward of 0 and the last weight after the end. Where the logging policy
takes every action of the target policy, J = low + E[X]. Where it does not, or where weights are clipped or X is cut at c, E[X] is
only smaller. So a lower bound on E[X] is one on J *whatever the support*, and no upper end of the range of X is needed:

    betting   on min(X, c), c fixed before the log was looked at; logging policies may change from trajectory to trajectory, and
              depend on those before. Usually the tighter one
    anderson  on X itself, without any c; needs trajectories of one distribution

Upper bounds are another matter: they need a known greatest weight. Self-normalised, doubly robust and fitted estimates are not
means of independent contributions with a known sign, and estimated log-probabilities are not those of the log: none of these
has such a bound. (Thomas, Theocharous & Ghavamzadeh, 2015; Waudby-Smith & Ramdas, 2024; Anderson, 1969.)
"""

from dataclasses import dataclass
from math import log as ln
from typing import Literal

import numpy as np
from jaxtyping import Float

from evarl.bounds.anderson import anderson_lower_bound
from evarl.bounds.betting import betting_lower_bound
from evarl.errors import InputError
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories, finite_weights, trajectories
from evarl.ranges import real

DEFAULT = Settings()
SPLIT = 0.1
"""Share of the trajectories from which c is chosen, if it is not given; the bound is that of the others."""


@dataclass(frozen=True)
class GuaranteeSettings:
    """What a guaranteed lower bound relies on. Numbers must be known, or fixed, before the log is looked at."""

    method: Literal["betting", "anderson"] = "betting"
    least_return: float | None = None
    """The least possible discounted return, for trajectory-wise weights."""
    least_reward: float | None = None
    """The least possible reward, for weights of each decision, which vary less."""
    truncate: float | None = None
    """c, at which contributions X are cut for betting. If it is not given, it is chosen from the first tenth of the trajectories,
    which then has no other part in the bound: this needs trajectories of one distribution."""
    behaviour: Literal["logged", "estimated"] = "logged"
    """Whether the log-probabilities are those with which actions were drawn, or estimates, for which nothing is guaranteed."""

    def validate(self) -> None:
        """Refuse settings under which nothing is guaranteed."""
        if self.method not in ("betting", "anderson"):
            raise InputError(
                f"method: {self.method} has no guaranteed bound, as it is no mean of independent contributions of a known sign; "
                "must be betting or anderson"
            )
        if self.behaviour != "logged":
            raise InputError(
                f"behaviour: {self.behaviour} is not allowed; must be logged, the probabilities with which actions were drawn"
            )
        if (self.least_return is None) == (self.least_reward is None):
            raise InputError(
                f"least_return: {self.least_return}, least_reward: {self.least_reward}; must be one of them, known beforehand "
                "and not read off the log"
            )
        for name in ("least_return", "least_reward"):
            if getattr(self, name) is not None:
                real(name, getattr(self, name))
        if self.truncate is not None:
            real("truncate", self.truncate, above=0)


@dataclass(frozen=True)
class GuaranteedBound:
    """A lower bound on J, with what it relies on."""

    value: float
    """P(J < value) ≤ 1 − confidence."""
    confidence: float
    method: str
    trajectories: int
    """Number from which the bound was computed."""
    truncate: float | None
    """c."""
    truncated: int
    """Number of contributions that were cut."""
    trivial: bool
    """Whether it says no more than is known without a log."""
    assumptions: str


def guaranteed_lower_bound(
    log: Log, policy: TargetPolicy, guarantee: GuaranteeSettings, settings: Settings = DEFAULT
) -> GuaranteedBound:
    """A lower bound on J that holds with the confidence of the settings, one-sided, for every number of trajectories."""
    settings.validate()
    guarantee.validate()
    return bound_from(trajectories(log, policy, settings), guarantee, settings.confidence)


def bound_from(logged: Trajectories, guarantee: GuaranteeSettings, confidence: float) -> GuaranteedBound:
    """The lower bound on J from weighted trajectories."""
    alpha = 1 - confidence
    low, x = contributions(logged, guarantee)
    c, cut = guarantee.truncate, 0
    text = "log-probabilities with which actions were drawn"
    if guarantee.least_return is not None:
        text += f", returns of at least {guarantee.least_return:g}"
    else:
        text += f", rewards of at least {guarantee.least_reward:g}"
    if guarantee.method == "anderson" or c is None:
        text += ", independent trajectories of one distribution"
    if guarantee.method == "anderson":
        c, gain = None, anderson_lower_bound(x, 0.0, alpha)
    else:
        if c is None:
            chosen = max(1, round(SPLIT * len(x)))
            if chosen == len(x):
                raise InputError(f"truncate: is missing; must be given where there are only {len(x)} trajectories")
            c, x = _cut_for(x[:chosen], len(x) - chosen, alpha), x[chosen:]
        else:
            text += f", contributions cut at {c:g}, which was fixed beforehand"
        cut = int((x > c).sum())
        gain = betting_lower_bound(np.minimum(x, c), 0.0, c, alpha)
    return GuaranteedBound(low + gain, confidence, guarantee.method, len(x), c, cut, gain <= 0, text)


def contributions(logged: Trajectories, guarantee: GuaranteeSettings) -> tuple[float, Float[np.ndarray, " N"]]:
    """What is known of J without a log, and X of each trajectory."""
    mask = logged.mask
    powers = logged.discount ** np.arange(mask.shape[1])
    if guarantee.least_return is not None:
        low = float(guarantee.least_return)
        above = logged.returns - low
        scale = max(1.0, abs(low))
        if above.min() < -1e-6 * scale:
            raise InputError(
                f"least_return: {low:g} is above a return of {above.min() + low:g}; must be the least possible"
            )
        return low, logged.weights * np.maximum(above, 0.0)
    least = float(guarantee.least_reward or 0.0)
    if least > 0 and not mask.all():
        raise InputError(
            f"least_reward: {least:g} is not allowed; must be 0 or less, the reward after the end of a trajectory"
        )
    gain = logged.reward - least * powers
    worst = np.where(mask, gain, 0.0).min()
    if worst < -1e-6 * max(1.0, abs(least)):
        raise InputError(f"least_reward: {least:g} is above a reward in the log; must be the least possible")
    return float(least * powers.sum()), (finite_weights(logged.log_weight) * np.maximum(gain, 0.0)).sum(axis=1)


def _cut_for(x: Float[np.ndarray, " m"], count: int, alpha: float) -> float:
    """C for which an empirical Bernstein bound on min(X, c) from `count` others would be greatest, judged by these."""
    doubt = ln(1 / alpha)
    tried = np.unique(np.append(x[x > 0], x.max() * np.array([1.5, 2.0, 4.0])))
    if not x.any():
        return 1.0
    kept = np.minimum(x, tried[:, None])
    bound = kept.mean(axis=1) - np.sqrt(2 * kept.var(axis=1) * doubt / count) - tried * doubt / (3 * count)
    return float(tried[np.argmax(bound)])
