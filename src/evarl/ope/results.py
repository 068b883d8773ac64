"""The result of one estimator. NumPy only."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from evarl.ope.settings import Rule
from evarl.stats.intervals import Interval


class CollapsedWeights(UserWarning):
    """The effective sample size of an estimate is a small part of the trajectories."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of J and of state values, with its uncertainty and diagnostics."""

    method: str = ""
    """Name of the estimator; `ope.estimate` fills it in."""
    rule: Rule | None = None
    """Trajectories from which values of states are estimated; `ope.estimate` fills it in."""
    value: float
    """J, the mean value over the logged start states."""
    state_values: Float[np.ndarray, " Q"] | None = None
    """V at the query states; NaN where the rule selects no trajectory."""
    standard_error: float | None = None
    """Of the value; None for fitted Q evaluation without refits."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    """By name: bootstrap, t, and with a range bernstein (empirical) and hoeffding."""
    effective_sample_size: float | None = None
    """(Σ w)² / Σ w² of the weights of whole trajectories; None without weights."""
    largest_weight_share: float | None = None
    bellman_error: float | None = None
    """Of fitted Q evaluation on held-out trajectories."""
    converged: bool | None = None
    """Whether fitted Q evaluation converged; None for methods that do not use it."""
    warnings: tuple[str, ...] = ()
    """Reasons not to trust the estimate."""
