"""More robust doubly robust estimation (MRDR; Farajtabar, Chow & Ghavamzadeh, 2018): the Q function for which DR varies least.

DR with Q_t(s, a) = c_t + φ_t(s, a)·β is linear in β. With φ̄_t(s) = Σ_a π(a | s) φ_t(s, a) and the weights w_t, w_{−1} = 1,

    DR_i(β) = DR_i(0) − x_i·β,      x_i = Σ_t γ^t (w_it φ_t(s_it, a_it) − w_i,t−1 φ̄_t(s_it)),      E x_i = 0,

so that the Q function with the least variance is a least-squares regression of DR_i(0) on x_i. This is the objective of the
authors, the variance of DR, in a form that takes the logged ratios alone: theirs adds up conditional variances step by step, has
the same expectation, and takes the behaviour policy's probabilities of all actions.

Features are those of `linear`, and these times the share of steps to go. A ridge draws β to the fit of linear fitted Q
evaluation; it is the one of a grid, ∞ included, that has the least variance on trajectories it was not fitted to. Q is
cross-fitted, so that the estimate stays unbiased whatever Q is.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from evarl.errors import InputError
from evarl.ope import doubly_robust as corrected, importance
from evarl.ope.cross_fitting import CrossFitted, folds_of
from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe_table import row_observations, rows
from evarl.ope.importance import Steps
from evarl.ope.linear import Features, LinearQ, feature_count, prepare_linear, solve_linear
from evarl.ope.log import Estimate, Log, generator
from evarl.ope.methods import weighted_doubly_robust, weighted_estimate
from evarl.ope.model import along
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig, Settings

RIDGES = (*np.geomspace(1e-4, 1e4, 9).tolist(), np.inf)
"""Multiples of the mean square of the x."""
PARTS = 5
"""Parts of the trajectories by which the ridge is chosen."""
MOST = 1000
"""Parameters, at most."""


class TimedQ(NamedTuple):
    """Q_t(s, a) = c_t + φ(s, a)·(β₀ + (T − t)/T · β₁)."""

    features: Features
    centre: Float[np.ndarray, " H"]
    """By steps to go, 0 to T."""
    beta: Float[np.ndarray, "2 d"]

    def values_of(self, other: LoggedData) -> ModelValues:
        """Q and V at every step of a log of the same kind."""
        seen, step = row_observations(other), rows(other)[1]
        values = self._values(self.features.expected(seen), step)
        return along(
            other,
            len(self.centre) - 1,
            values,
            lambda states, action, steps: self._values(self.features.taken(states, action), steps),
        )

    def _values(self, features: sparse.csr_matrix, step: np.ndarray) -> Float[np.ndarray, " B"]:
        left = len(self.centre) - 1 - step
        first, second = (features @ one for one in self.beta)
        return self.centre[left] + first + left / (len(self.centre) - 1) * second


def mrdr(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """DR with the linear Q function for which it varies least, cross-fitted."""
    if why := mrdr_obstacle(log):
        raise InputError(why)
    steps, rng, count = log.steps(policy, settings.clip), generator(settings), log.data.trajectories
    fold = folds_of(count, settings.folds, rng)
    q, v = np.zeros((2, *log.data.mask.shape))
    last = np.zeros(count)
    for k in range(fold.max() + 1):
        inside = np.flatnonzero(fold == k)
        outside = np.flatnonzero(fold != k) if fold.max() else inside
        own = Steps(steps.reward[outside], steps.log_ratio[outside], steps.mask[outside], steps.discount)
        fitted = fit_mrdr(settings.fitting(), log.data.rows(outside), policy, own, rng, settings.ridge)
        found = fitted.values_of(log.data.rows(inside))
        q[inside], v[inside] = found.q, found.v
    model = CrossFitted(ModelValues(q, v, last), fold)
    return weighted_estimate(log, settings, weighted_doubly_robust(log, policy, settings, False, model))


def mrdr_obstacle(log: Log) -> str | None:
    """Why the method cannot be used with a log."""
    if log.data.cut.any():
        return "truncated: some trajectories stop before step T without having ended; mrdr requires that none does"
    if (count := 2 * feature_count(log.data)) > MOST:
        return f"observation: gives {count} parameters; mrdr requires at most {MOST}"
    return None


def fit_mrdr(
    config: FQEConfig,
    data: LoggedData,
    policy: TargetPolicy,
    steps: Steps,
    rng: np.random.Generator,
    ridge: float,
) -> TimedQ:
    """The Q function for which DR varies least on a log."""
    prepared = prepare_linear(config, data, policy, steps.discount)
    start = _timed(solve_linear(prepared, ridge, np.ones(len(prepared.transitions.row))), data, ridge)
    if len(steps.mask) < 2 * PARTS:
        return start
    x = control_variates(start.features, data, steps)
    rest = corrected.doubly_robust(steps, start.values_of(data)).contribution
    if not (np.isfinite(x).all() and np.isfinite(rest).all()):
        return start
    change = least_variance(x, rest, rng)
    return start._replace(beta=start.beta + change.reshape(2, -1))


def control_variates(features: Features, data: LoggedData, steps: Steps) -> Float[np.ndarray, "N d2"]:
    """x_i, so that DR with parameters β is DR with 0 minus x·β; those of φ, and then of φ times the share of steps to go."""
    (trajectory, step), seen = rows(data), row_observations(data)
    moves = step < np.asarray(data.mask).sum(axis=1)[trajectory]
    at = trajectory[moves], step[moves]
    taken, expected = features.taken(seen[moves], np.asarray(data.action)[at]), features.expected(seen[moves])
    log_weight = importance.log_weights(steps)
    before = np.concatenate([np.zeros((len(log_weight), 1)), log_weight[:, :-1]], axis=1)
    with np.errstate(over="ignore"):
        now, earlier = np.exp(log_weight[at]), np.exp(before[at])
    power, left = importance.discounts(steps)[at[1]], 1 - at[1] / data.length
    parts = []
    for scale in (np.ones_like(left), left):
        terms = taken.multiply((power * scale * now)[:, None]) - expected.multiply((power * scale * earlier)[:, None])
        owner = sparse.csr_matrix(
            (np.ones(len(at[0])), (at[0], np.arange(len(at[0])))), shape=(len(log_weight), len(at[0]))
        )
        parts.append((owner @ terms.tocsr()).toarray())
    return np.concatenate(parts, axis=1)


def least_variance(
    x: Float[np.ndarray, "N d"], y: Float[np.ndarray, " N"], rng: np.random.Generator
) -> Float[np.ndarray, " d"]:
    """The β with the least variance of y − xβ plus a ridge, which is chosen by the variance on other rows."""
    part = rng.permutation(np.arange(len(y)) % PARTS)
    scores = np.zeros(len(RIDGES))
    for k in range(PARTS):
        solutions = _solutions(x[part != k], y[part != k])
        scores += (y[part == k][:, None] - x[part == k] @ solutions).var(axis=0) * (part == k).sum()
    return _solutions(x, y)[:, int(np.argmin(scores))]


def _solutions(x: Float[np.ndarray, "N d"], y: Float[np.ndarray, " N"]) -> Float[np.ndarray, "d ridges"]:
    """[mean (x − x̄)(x − x̄)ᵀ + ridge · I]⁻¹ mean (x − x̄)(y − ȳ) for each ridge."""
    centred = x - x.mean(axis=0)
    value, vector = np.linalg.eigh(centred.T @ centred / len(x))
    right = vector.T @ (centred.T @ (y - y.mean()) / len(y))
    scale = max(float(np.maximum(value, 0.0).mean()), np.finfo(np.float64).tiny)
    return np.stack([vector @ (right / (np.maximum(value, 0.0) + ridge * scale)) for ridge in RIDGES], axis=1)


def _timed(fitted: LinearQ, data: LoggedData, ridge: float) -> TimedQ:
    """The nearest function of this form to a fit of linear fitted Q evaluation, on the logged steps."""
    (trajectory, step), seen = rows(data), row_observations(data)
    moves = step < np.asarray(data.mask).sum(axis=1)[trajectory]
    done = np.asarray(data.action)[trajectory[moves], step[moves]]
    taken = fitted.features.taken(seen[moves], done)
    both = sparse.hstack([taken, taken.multiply((1 - step[moves] / data.length)[:, None])]).tocsr()
    left = data.length - step[moves]
    wanted = np.zeros(len(left))
    for h in np.unique(left):
        wanted[left == h] = taken[left == h] @ fitted.beta[h]
    square = (both.T @ both).toarray() / len(left) + ridge * np.eye(both.shape[1])
    return TimedQ(fitted.features, fitted.centre, np.linalg.solve(square, both.T @ wanted / len(left)).reshape(2, -1))
