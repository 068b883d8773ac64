"""Linear fitted Q evaluation (LSTD-Q; Lagoudakis & Parr, 2003): the exact fixed point of a linear Q function.

With Q(s, a) = c + φ(s, a)·β, φ̄(s) = Σ_a π(a | s) φ(s, a), the constant c of `Transitions.centres`, and sums over the log,

    [Σ φ (φ − γ φ̄(s′))ᵀ + ridge · I] β = Σ φ (r + (γ − 1) c)                          without a time limit,
    [Σ φ φᵀ + ridge · I] β_h = Σ φ (r + γ (c_{h−1} + φ̄(s′)·β_{h−1}) − c_h)             with h steps to go,

where γ is 0 at terminated steps. Solved in float64. The ridge is that of the settings, 10⁻⁴ by default: so many transitions by
which each parameter is drawn to 0. It decides what the log leaves open.

Features. Observations that are single whole numbers of a small range: one for each pair of number and action, so that the method
is tabular fitted Q evaluation. Other observations with discrete actions: the standardised entries and 1, for each action apart.
Continuous actions: the standardised entries of observation and action, and 1; φ̄ is a mean over draws of the policy.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import splu

from evarl.errors import InputError
from evarl.ope.checks import fit_warnings
from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe_table import levels_of, row_observations, rows, target_actions
from evarl.ope.log import Estimate, Log
from evarl.ope.model import along
from evarl.ope.policy import TargetPolicy, action_count
from evarl.ope.settings import FQEConfig, Settings
from evarl.ope.transitions import Solved, Transitions, solved_estimate, steps_of

DENSE = 500
"""Features up to which equations are solved with dense matrices; those of observations with many entries are dense throughout."""
MOST = 4000
"""Features, at most."""

Matrix = Any
"""A sparse matrix in rows, or a dense one."""


class Features(NamedTuple):
    """The feature map of a log."""

    config: FQEConfig
    data: LoggedData
    policy: TargetPolicy
    levels: tuple[int, int] | None
    units: tuple[np.ndarray, np.ndarray]
    """Mean and deviation of the entries of observations (and of continuous actions after them)."""
    actions: int
    """Discrete actions; 0 if continuous."""

    @classmethod
    def of(cls, config: FQEConfig, data: LoggedData, policy: TargetPolicy) -> "Features":
        """The default features of a log."""
        mask, seen = np.asarray(data.mask), row_observations(data)
        parts = [seen.reshape(len(seen), -1).astype(np.float64)]
        count = 0
        if data.discrete:
            chances = target_actions(config, data, policy, jax.random.PRNGKey(0), seen[:1])
            count = chances.shape[1]
        else:
            done = np.asarray(data.action)[mask]
            parts.append(done.reshape(len(done), -1).astype(np.float64))
        mean, deviation = (np.concatenate([getattr(part, name)(axis=0) for part in parts]) for name in ("mean", "std"))
        largest = np.concatenate([np.abs(part).max(axis=0) for part in parts])
        return cls(
            config,
            data,
            policy,
            levels_of(config, seen) if data.discrete else None,
            (mean, np.where(deviation > 1e-6 * largest, deviation, 1.0)),
            count,
        )

    @property
    def size(self) -> int:
        """Number of features."""
        width = len(self.units[0]) + 1 if self.levels is None else self.levels[1]
        return width * max(self.actions, 1)

    def taken(self, states: np.ndarray, action: np.ndarray) -> Matrix:
        """φ(s, a) of states and actions, [B, d]."""
        if not self.actions:
            return sparse.csr_matrix(self._entries(states, action.reshape(len(action), -1)))
        return self._blocks(states, np.eye(self.actions)[action])

    def expected(self, states: np.ndarray) -> Matrix:
        """φ̄(s) of the policy at states, [B, d]."""
        asked = target_actions(self.config, self.data, self.policy, jax.random.PRNGKey(1), states).astype(np.float64)
        if not self.actions:
            return sparse.csr_matrix(self._entries(states, asked.mean(axis=1)))
        return self._blocks(states, asked / asked.sum(axis=1, keepdims=True))

    def _entries(self, *parts: np.ndarray) -> Float[np.ndarray, "B d"]:
        flat = np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in parts], axis=1)
        mean, deviation = (unit[: flat.shape[1]] for unit in self.units)
        return np.concatenate([(flat - mean) / deviation, np.ones((len(flat), 1))], axis=1)

    def _blocks(self, states: np.ndarray, weight: Float[np.ndarray, "B A"]) -> Matrix:
        """[B, A · width]: features of states times the weight of each action."""
        if self.levels is None:
            entries = self._entries(states)
            return sparse.csr_matrix((weight[:, :, None] * entries[:, None]).reshape(len(states), -1))
        lowest, width = self.levels
        place = np.round(states.reshape(len(states)).astype(np.float64)).astype(int) - lowest
        inside = ((place >= 0) & (place < width)).astype(np.float64)
        column = np.arange(self.actions)[None] * width + np.clip(place, 0, width - 1)[:, None]
        row = np.repeat(np.arange(len(states)), self.actions)
        data = (weight * inside[:, None]).reshape(-1)
        return sparse.csr_matrix((data, (row, column.reshape(-1))), shape=(len(states), width * self.actions))


class LinearQ(NamedTuple):
    """A linear Q function."""

    features: Features
    transitions: Transitions
    starts: Matrix
    """φ̄ of the logged first observations."""
    centre: Float[np.ndarray, " H"]
    beta: Float[np.ndarray, "H d"]
    """By steps to go; without a time limit H = 1."""

    def start_values(self) -> Float[np.ndarray, " N"]:
        """V of the logged first observations, with all steps to go."""
        return self.centre[-1] + self.starts @ self.beta[-1]

    def at(self, states: np.ndarray, times: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
        """V at states, observed at these steps."""
        return self._values(self.features.expected(states), times)

    def values_of(self, other: LoggedData) -> ModelValues:
        """Q and V at every step of a log of the same kind."""
        values = self.at(row_observations(other), rows(other)[1])
        return along(
            other, self.transitions.horizon, values, lambda s, a, t: self._values(self.features.taken(s, a), t)
        )

    def _values(self, features: Matrix, times: np.ndarray) -> Float[np.ndarray, " B"]:
        left = steps_of(times, self.transitions.horizon)
        found = np.zeros(len(left))
        for h in np.unique(left):
            found[left == h] = self.centre[h] + features[left == h] @ self.beta[h]
        return found


class Prepared(NamedTuple):
    """Features of all transitions."""

    features: Features
    transitions: Transitions
    taken: Matrix
    following: Matrix
    """discount · φ̄ of the next observations."""
    starts: Matrix


def linear(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """Linear fitted Q evaluation, with errors by the bootstrap over trajectories."""
    prepared = prepare_linear(settings.fitting(), log.data, policy, log.discount)
    solve = partial(solve_linear, prepared, settings.ridge)

    def notes(solved: Solved) -> tuple[str, ...]:
        assert isinstance(solved, LinearQ)
        numbered = solved.features.levels is not None
        return fit_warnings(log, policy, settings, solved.values_of(log.data), tabular=numbered)

    return solved_estimate(log, settings, solve, prepared.transitions.trajectory, notes)


def linear_obstacle(log: Log) -> str | None:
    """Why the method cannot be used with a log."""
    count = feature_count(log.data)
    return f"observation: gives {count} features; fqe-linear requires at most {MOST}" if count > MOST else None


def feature_count(data: LoggedData) -> int:
    """Number of features that are the logged entries and 1 (for each logged action)."""
    entries = int(np.prod(data.observation.shape[2:])) + 1
    return entries * action_count(data) if data.discrete else entries


def prepare_linear(config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float) -> Prepared:
    """Features of all transitions of a log."""
    features = Features.of(config, data, policy)
    if features.size > MOST:
        raise InputError(f"observation: gives {features.size} features; fqe-linear requires at most {MOST}")
    transitions, seen = (
        Transitions.of(data, discount, data.length if config.time_feature else None),
        row_observations(data),
    )
    taken = features.taken(seen[transitions.row], transitions.action)
    expected = features.expected(seen)
    if features.levels is None and features.size <= DENSE:  # few zeros: products of dense matrices are faster
        taken, expected = taken.toarray(), expected.toarray()
    following = _scaled(expected[transitions.row + 1], transitions.discount)
    return Prepared(features, transitions, taken, following, expected[transitions.start])


def solve_linear(prepared: Prepared, ridge: float, weight: Float[np.ndarray, " K"]) -> LinearQ:
    """The fixed point of transitions of which each counts as often as its weight says."""
    features, transitions, taken, _, starts = prepared
    centre, going, reward = transitions.centres(weight), transitions.discount, transitions.reward
    square, further = _products(prepared, weight)
    if transitions.horizon is None:
        right = taken.T @ (weight * (reward + (going - 1) * centre[0]))
        beta = _solver(square - further, ridge)(right)
        return LinearQ(features, transitions, starts, centre, beta[None])
    solve, found = _solver(square, ridge), [np.zeros(features.size)]
    first, second, third = (taken.T @ (weight * x) for x in (reward, going, np.ones(len(weight))))
    for h in range(1, transitions.horizon + 1):
        found.append(solve(first + second * centre[h - 1] + further @ found[-1] - third * centre[h]))
    return LinearQ(features, transitions, starts, centre, np.stack(found))


def _products(prepared: Prepared, weight: Float[np.ndarray, " K"]) -> tuple[Matrix, Matrix]:
    """Σ φ φᵀ and Σ γ φ φ̄(s′)ᵀ of weighted transitions, [d, d]."""
    features, transitions, taken, following, _ = prepared
    if sparse.issparse(taken):
        weighted = _scaled(taken, weight).T
        return weighted @ taken, weighted @ following
    square, further = np.zeros((2, features.size, features.size))
    width = features.size // max(features.actions, 1)
    for action in range(max(features.actions, 1)):  # only the features of an action that was taken are not 0
        at = slice(action * width, (action + 1) * width)
        there = transitions.action == action if features.actions else slice(None)
        own = taken[there, at]
        weighted = (own * weight[there, None]).T
        square[at, at], further[at] = weighted @ own, weighted @ following[there]
    return square, further


def _scaled(matrix: Matrix, scale: Float[np.ndarray, " B"]) -> Matrix:
    """Rows times numbers."""
    return matrix.multiply(scale[:, None]).tocsr() if sparse.issparse(matrix) else matrix * scale[:, None]


def _solver(matrix: Matrix, ridge: float) -> Callable[[Float[np.ndarray, " d"]], Float[np.ndarray, " d"]]:
    """The function that solves (matrix + ridge · I) x = y."""
    size = matrix.shape[0]
    if size <= DENSE:
        dense = matrix.toarray() if sparse.issparse(matrix) else matrix
        inverse = np.linalg.inv(dense + ridge * np.eye(size))
        return lambda right: inverse @ right
    return splu((matrix + ridge * sparse.eye(size)).tocsc()).solve
