"""What estimators are given, a log with what several of them need computed once, and what they return, an estimate."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from evarl.errors import InputError
from evarl.ope.behaviour import estimated_log_prob
from evarl.ope.cross_fitting import CrossFitted, OwnModel, cross_fitted
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_table import in_blocks
from evarl.ope.importance import Steps
from evarl.ope.model import Model
from evarl.ope.policy import TargetPolicy, check_log_prob, fingerprint, on_host
from evarl.ope.settings import Convention, Rule, Settings
from evarl.settings import conforming
from evarl.stats.intervals import Interval
from evarl.worlds.world import Key

T = TypeVar("T")
SAME = 1e-5
"""Observations that differ by less, as a share of the range of each coordinate, belong to one state."""
ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Relative difference of numbers that is taken for rounding."""


@dataclass(frozen=True, eq=False)
class Log:
    """Logged data, the discount, and the states whose values are asked for.

    Importance ratios and fitted Q functions are computed when an estimator first asks for them, and kept.
    """

    data: LoggedData
    discount: float
    """γ."""
    states: Shaped[Array | np.ndarray, "Q ..."] | None = None
    """Observations at which V is estimated."""
    times: Int[Array | np.ndarray, " Q"] | None = None
    """The step at which each state was observed; 0 when not given. With a finite horizon it has T − t steps to go."""
    own_model: OwnModel | None = None
    """Q and V that doubly robust methods use in place of fitted ones; they must not have been fitted to this log."""
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        conforming("data", self.data, LoggedData)
        if not isinstance(self.discount, numbers.Real) or not 0 <= self.discount <= 1:
            raise InputError(f"discount: {self.discount!r:.60} is not allowed; must be from 0 to 1")
        if self.states is None:
            if self.times is not None:
                raise InputError("times: are given without states; must be the step of each state")
            return
        states, expected = np.asarray(self.states), self.data.observation.shape[2:]
        if states.ndim == 0 or states.shape[1:] != expected:
            raise InputError(
                f"states: have shape {states.shape[1:]} each; must be {expected}, that of the logged observations"
            )
        if not len(states) or not np.isfinite(states).all():
            raise InputError("states: there are none, or some are not finite; must be finite numbers")
        object.__setattr__(self, "states", states)
        if self.times is not None:
            object.__setattr__(self, "times", _checked_times(self.times, len(states), self.data.length))

    @property
    def uniform(self) -> Float[np.ndarray, " N"]:
        """Equal shares of all trajectories."""
        return np.full(self.data.trajectories, 1.0 / self.data.trajectories)

    def log_ratio(self, policy: TargetPolicy) -> Float[np.ndarray, "N T"]:
        """Log importance ratios log π_e − log π_b of the logged actions; 0 in the padding."""
        return self.once(("log_ratio", id(policy)), policy, lambda: _log_ratio(self.data, policy))

    def steps(self, policy: TargetPolicy, clip: float | None = None) -> Steps:
        """Rewards and log-ratios, which are limited to at most `clip`; −∞, the ratio of an impossible action, stays."""
        log_ratio = self.log_ratio(policy)
        if clip is not None:
            log_ratio = np.minimum(log_ratio, clip)
        reward = np.asarray(self.data.reward, np.float64)
        return Steps(reward, log_ratio, np.asarray(self.data.mask), float(self.discount))

    def model(self, policy: TargetPolicy, settings: Settings, convention: Convention | None = None) -> Model:
        """Fitted Q evaluation of a policy, by the convention of the settings unless given."""
        config = settings.fitting(convention)
        name = ("model", id(policy), config, settings.random_seed)
        return self.once(
            name, policy, lambda: Model(config, self.data, policy, self.discount, random_keys(settings)[0])
        )

    def cross_fitted(self, policy: TargetPolicy, settings: Settings) -> CrossFitted:
        """Values of a model along the log, of fits to other trajectories or of the user's own model."""
        if (own := self.own_model) is not None:
            finite = settings.horizon == "finite"
            make = lambda: CrossFitted(own.values_of(self.data, finite, policy), None)  # noqa: E731
            return self.once(("own", id(policy), finite), policy, make)
        config, folds = settings.fitting(), settings.folds
        fits, (key, _) = (self.data, policy, float(self.discount), folds), random_keys(settings)
        name = ("cross-fitted", id(policy), config, folds, settings.random_seed)
        return self.once(name, policy, lambda: cross_fitted(config, *fits, jax.random.fold_in(key, 1)))

    def with_behaviour(self, settings: Settings) -> "Log":
        """The log, with estimated log-probabilities of the behaviour policy, if the settings ask for these."""
        if settings.behaviour == "logged":
            return self

        def make() -> Log:
            found = estimated_log_prob(self.data, settings.folds, generator(settings))
            return replace(self, data=self.data.replace(log_prob=found))

        return self.once(("behaviour", settings.folds, settings.random_seed), None, make)

    def checked(self, policy: TargetPolicy) -> tuple[str, ...]:
        """Raise InputError if the policy's log-probabilities cannot be right; what else there is to say of them."""
        return self.once(("checked", id(policy)), policy, lambda: check_log_prob(policy, self.data))

    def forget(self, policy: TargetPolicy) -> None:
        """Drop what is kept of a policy."""
        for name in [name for name, (owner, _) in self._kept.items() if owner is policy]:
            del self._kept[name]

    def state_values(
        self, rule: Rule, value: Callable[[Float[np.ndarray, " N"]], float]
    ) -> Float[np.ndarray, " Q"] | None:
        """V at the query states from a function of the trajectories' shares; NaN where the rule selects none."""
        if self.states is None:
            return None
        states = np.asarray(self.states)
        distinct, row = self.once(
            ("shares", rule), None, lambda: np.unique(shares(rule, self.data, states), axis=0, return_inverse=True)
        )
        values = [value(share) if share.sum() > 0 else np.nan for share in distinct]
        return np.asarray(values, np.float64)[row.reshape(-1)]

    def once(self, name: Any, policy: TargetPolicy | None, make: Callable[[], T]) -> T:
        """What was made under this name before, or is made now. The policy is kept too, so that its id stays its own.

        What is kept of a policy is dropped once its functions return something else.
        """
        if policy is not None and (now := fingerprint(policy, self.data)) != self._kept.get(id(policy), (None, now))[1]:
            self.forget(policy)
        if policy is not None:
            self._kept[id(policy)] = policy, now
        if name not in self._kept:
            self._kept[name] = policy, make()
        found: T = self._kept[name][1]
        return found


class CollapsedWeights(UserWarning):
    """The effective sample size of an estimate is a small part of the trajectories."""


DIVERGED = "diverged"
"""How the warning begins that a value means nothing."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of J and of state values, with its uncertainty and diagnostics."""

    method: str = ""
    """Name of the estimator; `ope.estimate` fills it in."""
    rule: Rule | None = None
    """Trajectories from which values of states are estimated; `ope.estimate` fills it in."""
    value: float
    """J, the mean value over the logged start states."""
    estimand: str = ""
    """What is estimated: the return of how many steps, discounted how, from which starts; `ope.estimate` fills it in."""
    state_values: Float[np.ndarray, " Q"] | None = None
    """V at the query states; NaN where the rule selects no trajectory."""
    state_errors: Float[np.ndarray, " Q"] | None = None
    """Standard errors of V at the query states, NaN where it is extrapolated; None for fitted Q evaluation without refits, and
    for weighted methods."""
    state_intervals: Float[np.ndarray, "Q 2"] | None = None
    """Lower and upper ends of t intervals for V at the query states, from refits to resampled trajectories."""
    state_support: Float[np.ndarray, " Q"] | None = None
    """p-value of the distance of each query state to the nearest logged observation: where it is small, V is extrapolated."""
    standard_error: float | None = None
    """Of the value; None for fitted Q evaluation without refits, and where a warning says why there is none."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    """By name: bootstrap, t, and with a range bernstein (empirical) and hoeffding."""
    effective_sample_size: float | None = None
    """(Σ w)² / Σ w² of the weights of whole trajectories; None without weights."""
    largest_weight_share: float | None = None
    pareto_k: float | None = None
    """The larger Pareto k̂ of the tails of weights and contributions: above 0.5 their variance may be infinite."""
    bellman_error: float | None = None
    """Of fitted Q evaluation on held-out trajectories."""
    converged: bool | None = None
    """Whether fitted Q evaluation converged; None for methods that do not use it."""
    warnings: tuple[str, ...] = ()
    """Reasons not to trust the estimate."""

    def __repr__(self) -> str:
        """The value with its uncertainty; everything else has a name."""
        over = "" if self.standard_error is None else f" ± {self.standard_error:.2g}"
        value = "diverged" if self.diverged else f"{self.value:.4g}{over}"
        ends = "".join(f", {name} {one.low:.4g} to {one.high:.4g}" for name, one in self.intervals.items())
        notes = f", {len(self.warnings)} warnings" if self.warnings else ""
        return f"<Estimate {self.method}: {value}{ends}{notes}>"

    @property
    def diverged(self) -> bool:
        """Whether the value means nothing, since it is far outside of what rewards like the logged ones add up to."""
        return any(one.startswith(DIVERGED) for one in self.warnings)


def generator(settings: Settings) -> np.random.Generator:
    """Random numbers of bootstrap samples on the host."""
    return np.random.default_rng(settings.random_seed % 2**64)


def random_keys(settings: Settings) -> tuple[Key, Key]:
    """The random keys of fits and of bootstrap samples."""
    fits, samples = jax.random.split(jax.random.PRNGKey(settings.random_seed))
    return fits, samples


def estimand(log: Log, settings: Settings, of: str = "the policy") -> str:
    """What is estimated, in words."""
    over = f"over {log.data.length} steps" if settings.horizon == "finite" else "without a time limit"
    behaviour = ", by ratios to an estimated behaviour policy" if settings.behaviour == "estimate" else ""
    return f"return of {of} {over}, discounted by {log.discount:g}, from the {log.data.trajectories} logged starts{behaviour}"


def _checked_times(times: Any, count: int, length: int) -> Int[np.ndarray, " Q"]:
    found = np.asarray(times)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise InputError(f"times: have shape {found.shape} and type {found.dtype}; must be {count} whole numbers")
    if found.min() < 0 or found.max() >= length:
        raise InputError(f"times: {found.min()} to {found.max()} is not allowed; must be from 0 to {length - 1}")
    return found


def _log_ratio(data: LoggedData, policy: TargetPolicy) -> Float[np.ndarray, "N T"]:
    assert data.log_prob is not None
    mask, ratio = np.asarray(data.mask), np.zeros(data.mask.shape)
    seen, done = np.asarray(data.observation)[mask], np.asarray(data.action)[mask]
    target: np.ndarray = in_blocks(lambda at: on_host(policy.log_prob, seen[at], done[at]), len(seen))
    if np.isnan(target).any() or np.isposinf(target).any():
        raise InputError("policy.log_prob: is NaN or infinite for some logged actions; must be logarithms")
    ratio[mask] = target - np.asarray(data.log_prob)[mask]
    return ratio


def shares(rule: Rule, data: LoggedData, states: Array | np.ndarray) -> Float[np.ndarray, "Q N"]:
    """The share of each trajectory in the value of each query state [Q, ...], for methods that only weight trajectories.

        pooled       equal shares of all: J for every s
        per-start    equal shares of those that start at s, as in the paper
        neighbours   a Gaussian kernel between s and their start states

    Each row sums to 1, or is 0 where the rule selects no trajectory.

    >>> data = LoggedData.from_arrays(observation=np.array([[[0.0]], [[1.0]], [[1.0]]]), action=np.zeros((3, 1), int),
    ...     reward=np.ones((3, 1)), final_observation=np.zeros((3, 1)))
    >>> shares("per-start", data, np.array([[1.0], [2.0]])).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    """
    starts, queries = _flat(data.observation[:, 0]), _flat(states)
    count = len(starts)
    if rule == "pooled":
        return np.full((len(queries), count), 1.0 / count)
    size = np.abs(starts).max(axis=0)
    if rule == "per-start":
        near = SAME * np.ptp(starts, axis=0) + ROUNDING * size
        same = np.stack([(np.abs(starts - query) <= near).all(axis=1) for query in queries]).astype(np.float64)
        return same / np.maximum(same.sum(axis=1, keepdims=True), 1.0)
    deviation = starts.std(axis=0)
    scale = np.where(deviation > ROUNDING * size, deviation, np.where(size > 0, size, 1.0))
    # one query at a time, since Q × N × F numbers may not fit into memory
    distance = np.stack([(((starts - query) / scale) ** 2).sum(axis=1) for query in queries])
    # Silverman's rule for the width, in units of the spread of start states; relative to the nearest, so that no row is 0
    width = count ** (-1.0 / (starts.shape[1] + 4.0))
    kernel = np.exp(-(distance - distance.min(axis=1, keepdims=True)) / (2.0 * width**2))
    return kernel / kernel.sum(axis=1, keepdims=True)


def _flat(observation: Array | np.ndarray) -> Float[np.ndarray, "B F"]:
    array = np.asarray(observation)
    return array.reshape(len(array), -1).astype(np.float64)
