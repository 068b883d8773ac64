"""Values of a policy from logged data, by any of the methods, with all that is needed to believe them or not."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.errors import InputError, unknown_name
from evarl.ope.configuration import METHODS, Method, Rule
from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import Blend, doubly_robust, magic, resampled_doubly_robust, resampled_magic
from evarl.ope.fqe_configuration import FQEConfig
from evarl.ope.fqe_table import in_blocks
from evarl.ope.importance import Estimate as Weighted
from evarl.ope.importance import (
    per_decision,
    resampled_per_decision,
    resampled_shares,
    resampled_trajectory_wise,
    trajectory_wise,
)
from evarl.ope.intervals import Interval, bernstein, hoeffding, percentile, student_t
from evarl.ope.model import AlongTheLog, Convention, Model
from evarl.ope.policy import TargetPolicy
from evarl.ope.rules import shares
from evarl.ranges import MOST, whole
from evarl.sizes import check_fit, check_memory
from evarl.worlds.world import Key

BOUNDED = ("tis", "pdis", "dr")
"""Methods that are a mean of independent contributions, so that bounds for such means hold."""
WITH_MODEL = ("dr", "wdr", "magic")
DEFAULT_FQE = FQEConfig()
COLLAPSED = 0.05
"""Effective sample size, as a share of the trajectories, below which weights are said to have collapsed."""


class CollapsedWeights(UserWarning):
    """An estimate rests on few of the trajectories."""


@dataclass(frozen=True)
class Estimate:
    """What one method says of a policy."""

    method: Method
    rule: Rule
    """How trajectories speak for states; fitted Q evaluation needs none."""
    value: float
    """J, the mean value over the logged start states."""
    state_values: Float[np.ndarray, " Q"] | None
    """V at the query states; NaN where the rule finds no trajectory."""
    standard_error: float | None
    """Of the value; None for fitted Q evaluation without refits."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    """By name: bootstrap, t, and with a range bernstein (empirical) and hoeffding."""
    effective_sample_size: float | None = None
    """(Σ w)² / Σ w² of the weights of whole trajectories; None without weights."""
    largest_weight_share: float | None = None
    bellman_error: float | None = None
    """Of fitted Q evaluation on held-out trajectories."""
    converged: bool | None = None
    """Whether fitted Q evaluation did; also for methods built on it."""
    warnings: tuple[str, ...] = ()
    """What to know before believing it."""


def estimate(
    dataset: LoggedData,
    policy: TargetPolicy,
    query_states: Array | np.ndarray | None = None,
    *,
    discount: float,
    methods: Sequence[Method] = METHODS,
    rule: Rule = "pooled",
    query_times: np.ndarray | None = None,
    fqe: FQEConfig = DEFAULT_FQE,
    fqe_refits: int = 0,
    value_range: tuple[float, float] | None = None,
    clip: float | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    collapsed: float = COLLAPSED,
    seed: int = 0,
) -> dict[Method, Estimate]:
    """Estimate J, and V at query states [Q, ...], from logged data.

    A time limit does not end the value by default: fitted Q evaluation and the doubly robust forms go on with the model's
    value there. With `fqe.time_feature` the value ends at the T-th step, as it always does for pure importance sampling.

    Args:
        dataset: the log.
        policy: the policy that is asked about.
        query_states: observations at which V is wanted.
        discount: γ.
        methods: which methods; see METHODS.
        rule: which trajectories speak for a state (see `evarl.ope.rules`).
        query_times: the step at which each query state was met, if time is a feature; 0 by default.
        fqe: settings of fitted Q evaluation.
        fqe_refits: fits on resampled trajectories, from which fitted Q evaluation gets its standard error.
        value_range: least and greatest possible contribution of a trajectory, for the bounds that need it. It must come
            from knowledge of the problem, never from the data.
        clip: largest log-ratio allowed at a step; biased, none by default.
        confidence: of the two-sided intervals.
        resamples: bootstrap samples.
        collapsed: share of the trajectories; a smaller effective sample size is warned of.
        seed: fixes everything random.
    """
    _check(dataset, methods, confidence, resamples, fqe_refits, discount)
    fqe.validate()
    whole("seed", seed, least=-MOST)
    features = int(np.prod(dataset.observation.shape[2:]))
    check_fit(fqe, fqe_refits, dataset.mask.size, features)
    check_memory("resamples", resamples, 4.0 * resamples * dataset.trajectories, "what is drawn")
    parts = _Parts(dataset, policy, discount, fqe, clip, jax.random.PRNGKey(seed))
    asked = None if query_states is None else _Asked(dataset, np.asarray(query_states), rule, query_times)
    found: dict[Method, Estimate] = {}
    for method in methods:
        if method in ("fqe", "fqe-greedy-huber"):
            found[method] = parts.fitted(method, asked, rule, fqe_refits, confidence)
        else:
            found[method] = parts.weighted(method, asked, rule, value_range, confidence, resamples, collapsed)
            if any("collapsed" in note for note in found[method].warnings):
                warnings.warn(f"{method}: {'; '.join(found[method].warnings)}", CollapsedWeights, stacklevel=2)
    return found


class _Asked:
    """The query states, and the shares of trajectories in their values: distinct rows, and which row each query has."""

    def __init__(self, data: LoggedData, states: np.ndarray, rule: Rule, times: np.ndarray | None):
        self.states, self.times = states, times
        self.shares, self.row = np.unique(shares(rule, data, states), axis=0, return_inverse=True)

    def values(self, evaluate: "_OneShare") -> Float[np.ndarray, " Q"]:
        """The value for each distinct share, handed out to the queries that have it; NaN where nobody can speak."""
        values = np.full(len(self.shares), np.nan)
        for index, share in enumerate(self.shares):
            if share.sum() > 0:
                values[index] = float(evaluate(jnp.asarray(share, jnp.float32))[0].value)
        return values[self.row.reshape(-1)]


_OneShare = Callable[[Array], tuple[Weighted, Any]]
"""For the shares of trajectories: the estimate, and what its resampling has to know."""
_ManyShares = Callable[[Any, Array], Array]
"""That, and many shares: the values."""


class _Parts:
    """What methods share, made when it is first wanted."""

    def __init__(
        self, data: LoggedData, policy: TargetPolicy, discount: float, config: FQEConfig, clip: float | None, key: Key
    ):
        self.data, self.policy, self.discount, self.config, self.clip = data, policy, discount, config, clip
        self.fit_key, self.bootstrap_key = jax.random.split(key)
        self._models: dict[Convention, Model] = {}

    @functools.cached_property
    def log_ratio(self) -> Float[Array, "N T"]:
        """The log-ratios log π_e − log π_b of the logged actions; 0 in the padding."""
        data = self.data
        assert data.log_prob is not None
        log_prob = jax.jit(self.policy.log_prob)
        count, steps = data.mask.shape
        seen, done = (np.asarray(x).reshape(count * steps, *x.shape[2:]) for x in (data.observation, data.action))
        said = in_blocks(lambda at: log_prob(jnp.asarray(seen[at]), jnp.asarray(done[at])), count * steps)
        ratio = said.reshape(count, steps) - np.asarray(data.log_prob)
        if np.isnan(ratio[np.asarray(data.mask)]).any():
            raise InputError("policy.log_prob: gave NaN for some logged actions; want logarithms of probabilities")
        return jnp.asarray(np.where(data.mask, ratio, 0.0), jnp.float32)

    def model(self, convention: Convention) -> Model:
        """Fitted Q evaluation."""
        if convention not in self._models:
            config = dataclasses.replace(self.config, convention=convention)
            self._models[convention] = Model(config, self.data, self.policy, self.discount, self.fit_key)
        return self._models[convention]

    @functools.cached_property
    def along_the_log(self) -> AlongTheLog:
        """What the fit says of every logged step."""
        return self.model(self.config.convention).along_the_log()

    def fitted(self, method: Method, asked: _Asked | None, rule: Rule, refits: int, confidence: float) -> Estimate:
        """Fitted Q evaluation speaks for states directly."""
        model = self.model("greedy-huber" if method == "fqe-greedy-huber" else self.config.convention)
        value = model.start_value()
        error, intervals = None, {}
        if refits:
            numbers = np.asarray(jax.random.key_data(self.bootstrap_key)).tolist()
            again = model.refitted(refits, np.random.default_rng(numbers))
            error = float(again.std(ddof=1))
            # the spread of the refits is the standard error itself, not that of their mean
            intervals["t"] = student_t(value + (again - again.mean()) * refits**0.5, confidence=confidence)
        return Estimate(
            method=method,
            rule=rule,
            value=value,
            state_values=None if asked is None else model.at(asked.states, asked.times),
            standard_error=error,
            intervals=intervals,
            bellman_error=float(model.fitted.bellman_error),
            converged=bool(model.fitted.converged),
            warnings=_convergence(model),
        )

    def weighted(
        self,
        method: Method,
        asked: _Asked | None,
        rule: Rule,
        value_range: tuple[float, float] | None,
        confidence: float,
        resamples: int,
        collapsed: float,
    ) -> Estimate:
        """Importance sampling, with or without a model."""
        evaluate, resample = self._forms(method)
        model = self.model(self.config.convention) if method in WITH_MODEL else None
        count = self.data.trajectories
        uniform = jnp.full(count, 1.0 / count)
        overall, state = evaluate(uniform)
        again = resample(state, resampled_shares(self.bootstrap_key, uniform, resamples))
        contribution = np.asarray(overall.contribution, np.float64)
        notes: tuple[str, ...] = () if model is None else _convergence(model)
        intervals: dict[str, Interval] = {}
        if np.isfinite(contribution).all():
            intervals, refused = self._intervals(method, contribution, again, value_range, confidence)
            notes += refused
        else:
            notes += ("some weights are too large for 32 bits, so there is no interval; use a self-normalised form",)
        if isinstance(state, Blend) and state.weights[0] > 0.5:
            notes += (f"the model has {state.weights[0]:.0%} of the weight, and its own error is not in the s.e.",)
        size, largest = float(overall.effective_sample_size), float(overall.largest_weight_share)
        if size < collapsed * count:
            what = f"effective sample size {size:.1f} of {count} trajectories, the largest with {largest:.0%} of the weight"
            notes += (f"the weights have collapsed: {what}",)
        return Estimate(
            method=method,
            rule=rule,
            value=float(overall.value),
            state_values=None if asked is None else asked.values(evaluate),
            standard_error=float(overall.standard_error),
            intervals=intervals,
            effective_sample_size=size,
            largest_weight_share=largest,
            bellman_error=None if model is None else float(model.fitted.bellman_error),
            converged=None if model is None else bool(model.fitted.converged),
            warnings=notes,
        )

    def _intervals(
        self,
        method: Method,
        contribution: np.ndarray,
        resampled: Array,
        value_range: tuple[float, float] | None,
        confidence: float,
    ) -> tuple[dict[str, Interval], tuple[str, ...]]:
        """By name, and why some are missing."""
        found = {"bootstrap": percentile(np.asarray(resampled, np.float64), confidence)}
        if len(contribution) > 1:
            found["t"] = student_t(contribution, confidence)
        if value_range is None or method not in BOUNDED:
            return found, ()
        try:
            bounds = [bound(contribution, *value_range, confidence) for bound in (bernstein, hoeffding)]
        except InputError as error:
            return found, (f"no bound, since the range does not hold: {error}",)
        return found | {bound.method: bound for bound in bounds}, ()

    def _forms(self, method: Method) -> tuple[_OneShare, _ManyShares]:
        """A method as a function of the shares of trajectories."""
        log = (jnp.asarray(self.data.reward), self.log_ratio, jnp.asarray(self.data.mask))
        options: dict[str, Any] = {"clip": self.clip, "self_normalised": method in ("wis", "wpdis", "wdr")}
        if method not in WITH_MODEL:
            whole = method in ("tis", "wis")
            one, many = (
                (trajectory_wise, resampled_trajectory_wise) if whole else (per_decision, resampled_per_decision)
            )
            return _plain(partial(one, *log, self.discount, **options), partial(many, *log, self.discount, **options))
        said = self.along_the_log
        arguments: tuple[Any, ...] = (*log, said.q, said.v, self.discount)
        options["last_value"] = said.last_value
        if method != "magic":
            again = partial(resampled_doubly_robust, *arguments, **options)
            return _plain(partial(doubly_robust, *arguments, **options), again)
        options.pop("self_normalised")
        blend: Any = partial(magic, self.bootstrap_key, *arguments, **options)

        def blended(share: Array) -> tuple[Weighted, Blend | None]:
            if int((share > 0).sum()) == 1:  # there is nothing to learn a mixture from
                return doubly_robust(*arguments, share, self_normalised=True, **options), None
            found: Blend = blend(share=share)
            return found.estimate, found

        anew: Any = resampled_magic
        return blended, lambda found, shares: anew(found, *arguments, shares, **options)


def _plain(one: Callable[[Array], Weighted], many: Callable[[Array], Array]) -> tuple[_OneShare, _ManyShares]:
    return lambda share: (one(share), None), lambda _, shares: many(shares)


def _convergence(model: Model) -> tuple[str, ...]:
    fitted = model.fitted
    if bool(fitted.converged):
        return ()
    moved, pulled = float(fitted.drift), float(fitted.remainder)
    return (
        f"fitted Q evaluation has not converged: J moved by {moved:.3g} in the last quarter of the steps and is pulled by "
        f"another {pulled:.3g}; take more steps",
    )


def _check(
    data: LoggedData, methods: Sequence[Method], confidence: float, resamples: int, refits: int, discount: float
) -> None:
    if not methods:
        raise InputError(f"methods: there are none; want some of {', '.join(METHODS)}")
    for method in methods:
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
        if data.log_prob is None and not method.startswith("fqe"):
            raise InputError(f"log_prob: the log has none, and {method} needs them; want fqe alone, or another log")
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; want a number between 0 and 1, such as 0.95")
    whole("resamples", resamples, least=2)
    whole("fqe-refits", refits, least=0)
    if refits == 1:
        raise InputError(f"fqe-refits: {refits} is not allowed; want 0, or at least 2")
    if not 0 <= discount <= 1:
        raise InputError(f"discount: {discount} is not allowed; want a number from 0 to 1")
