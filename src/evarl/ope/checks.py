"""Checks of fitted Q functions by weighted residuals, where refits cannot tell that all of them are wrong in the same way."""

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.ope import doubly_robust as corrected
from evarl.ope.action_support import action_warnings
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.importance import Steps, WeightedEstimate, log_weights
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.tails import pareto_k
from evarl.ope.uncertainty import NONE, UNEXPECTED, UNRELIABLE, doubts

ROUNDING = 1e-6
"""Of residuals in units of the value: where all is deterministic nothing else is left, and policies have 32 bits."""
REFITS_ALONE = "the interval holds the variance of refits alone, not the error of the fitted Q function"


def fit_warnings(
    log: Log, policy: TargetPolicy, settings: Settings, values: ModelValues, tabular: bool = False
) -> tuple[str, ...]:
    """What there is to say of a Q function: actions that the log does not support, or else its mean weighted residual.

    The latter is the correction of the doubly robust estimate, E[Σ_t γ^t w_t (r_t + γ V(s_{t+1}) − Q(s_t, a_t))] = J − E V(s₀),
    and 0 for the Q function of the policy. A warning says that it is not, or that it cannot be known: without
    log-probabilities, or where the weights have collapsed or their tail is too heavy. The latter is not said of a `tabular`
    function, which has a parameter for every pair and is wrong only if observations are no states.
    """
    notes = action_warnings(log, policy, settings)
    if notes:
        return notes
    if log.data.log_prob is None:
        return () if tabular else (f"{REFITS_ALONE}, which the log has no log-probabilities to check by",)
    steps = log.steps(policy, settings.clip)
    found = corrected.doubly_robust(steps, values)
    if reasons := _unable(steps, found, settings):
        return () if tabular else (f"{REFITS_ALONE}, and weighted residuals cannot tell it: {reasons[0]}",)
    said = _difference(found.contribution - np.where(steps.mask[:, 0], values.v[:, 0], 0.0), found)
    return (f"{REFITS_ALONE}; {said}",) if said else ()


def state_warnings(
    log: Log,
    policy: TargetPolicy,
    settings: Settings,
    values: ModelValues,
    each: Float[np.ndarray, " N"],
    slack: float = 0.0,
) -> tuple[str, ...]:
    """What there is to say of an estimate by weights of states and actions, which takes observations for states.

    The doubly robust estimate with any `values` has the mean J, if the log has log-probabilities, weights have not collapsed and
    their tail is not too heavy. `each` are contributions of trajectories to the estimate, linearised, and `slack` is an error of
    it that these do not show. A warning says that both estimates differ by more than their difference varies.
    """
    if log.data.log_prob is None:
        return ()
    try:
        steps = log.steps(policy, settings.clip)
    except InputError:  # such as of a deterministic policy, which has no density
        return ()
    found = corrected.doubly_robust(steps, values)
    said = None if _unable(steps, found, settings) else _difference(found.contribution - each, found, slack)
    return (f"observations may be no states, as the estimate takes them to be: {said}",) if said else ()


def _unable(steps: Steps, found: WeightedEstimate, settings: Settings) -> tuple[str, ...]:
    """Why weighted residuals tell nothing."""
    reasons = [one.removeprefix(f"{NONE}: ") for one in doubts(steps, found, settings)]
    log_weight = log_weights(steps)[:, -1]
    k = pareto_k(np.exp(log_weight - max(float(log_weight.max()), -700.0)))
    if not reasons and k is not None and k > UNRELIABLE:
        reasons.append(f"Pareto k {k:.2f} of the weights is above {UNRELIABLE}")
    return tuple(reasons)


def _difference(correction: Float[np.ndarray, " N"], found: WeightedEstimate, slack: float = 0.0) -> str | None:
    """What a correction of the estimate says, of mean 0 if the estimate is right; None if it is that but for noise."""
    mean, error = float(correction.mean()), float(correction.std(ddof=1) / len(correction) ** 0.5)
    error = float(np.hypot(error, slack))
    if abs(mean) <= UNEXPECTED * error + ROUNDING * float(np.abs(found.contribution).mean()):
        return None
    return (
        f"weighted residuals put the value {abs(mean):.3g} {'above' if mean > 0 else 'below'} the estimate, with a standard "
        f"error of {error:.3g}"
    )
