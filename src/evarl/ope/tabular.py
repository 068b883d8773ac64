"""Tabular fitted Q evaluation: the exact values of the process that the log's frequencies define (certainty equivalence).

With n(s, a) the number of times that action a was logged at observation s,

    r̂(s, a) = mean r,   P̂(s′ | s, a) = n(s, a, s′) / n(s, a),   V(s) = Σ_a π(a | s) Q(s, a),   Q = r̂ + γ P̂ V,

solved in float64: without a time limit as a sparse linear system, over T steps by backward induction. Frequencies are pooled over
time. It is what fitted Q evaluation with one parameter for each pair (s, a) converges to, and the maximum-likelihood estimate of
a Markov process that is finite.

A pair that was never logged has the value of the log's mean reward (`Transitions.centres`), and the estimate says how likely the
policy is to come to one. V of an observation that was never logged is NaN.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import splu

from evarl.errors import InputError
from evarl.ope.checks import fit_warnings
from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe_table import row_observations, rows, target_actions
from evarl.ope.log import Estimate, Log
from evarl.ope.model import along
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig, Settings
from evarl.ope.transitions import Distinct, Solved, Transitions, logged_pairs, solved_estimate, steps_of

REPEATED = 2.0
"""Logged steps for each distinct observation, at least."""
MOST = 100_000_000
"""Values of observations, actions and steps to go, at most."""
UNLOGGED = 0.01
"""Probability of coming to a pair that was never logged, above which the estimate carries a warning."""


class TabularQ(NamedTuple):
    """Q of an empirical process."""

    distinct: Distinct
    transitions: Transitions
    policy: Float[np.ndarray, "S A"]
    q: Float[np.ndarray, "H S A"]
    """By steps to go; without a time limit H = 1."""
    v: Float[np.ndarray, "H S"]
    unlogged: Float[np.ndarray, "H S"]
    """Discounted probability of coming to a pair that was never logged."""

    def start_values(self) -> Float[np.ndarray, " N"]:
        """V of the logged first observations, with all steps to go."""
        return self.v[-1, self.distinct.row[self.transitions.start]]

    def start_unlogged(self) -> float:
        """Mean discounted probability of coming to a pair that was never logged, from the logged first observations."""
        return float(self.unlogged[-1, self.distinct.row[self.transitions.start]].mean())

    def at(self, states: np.ndarray, times: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
        """V at states, observed at these steps; NaN at states that are not in the log."""
        number, left = self.distinct.numbers(states), steps_of(times, self.transitions.horizon)
        return np.where(number >= 0, self.v[left, number], np.nan)

    def values_of(self, other: LoggedData) -> ModelValues:
        """Q and V at every step of a log of the same kind; an observation that is not in this one has the log's mean value."""
        _, step = rows(other)
        mean = self.v[:, self.distinct.row].mean(axis=1)
        number, left = self.distinct.numbers(row_observations(other)), steps_of(step, self.transitions.horizon)
        values = np.where(number >= 0, self.v[left, number], mean[left])

        def q(states: np.ndarray, action: np.ndarray, steps: np.ndarray) -> np.ndarray:
            own, left = self.distinct.numbers(states), steps_of(steps, self.transitions.horizon)
            return np.where(own >= 0, self.q[left, own, action], mean[left])

        return along(other, self.transitions.horizon, values, q)


def tabular(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """Tabular fitted Q evaluation, with errors by the bootstrap over trajectories."""
    if why := tabular_obstacle(log):
        raise InputError(why)
    prepared = prepare_tabular(settings.fitting(), log.data, policy, log.discount)
    solve = partial(solve_tabular, *prepared)

    def notes(solved: Solved) -> tuple[str, ...]:
        assert isinstance(solved, TabularQ)
        return _notes(solved) or fit_warnings(log, policy, settings, solved.values_of(log.data), tabular=True)

    return solved_estimate(log, settings, solve, prepared[1].trajectory, notes)


def tabular_obstacle(log: Log) -> str | None:
    """Why the method cannot be used with a log."""
    if not log.data.discrete:
        return "action: is continuous; fqe-tabular requires discrete actions"
    steps, count = (
        int(np.asarray(log.data.mask).sum()),
        len(log.once(("distinct",), None, lambda: Distinct.of(log.data)).keys),
    )
    if steps < REPEATED * count:
        return f"observation: there are {count} distinct ones in {steps} steps; fqe-tabular requires that they repeat"
    numbers = count * log.data.length * (1 + int(np.asarray(log.data.action)[np.asarray(log.data.mask)].max()))
    if numbers > MOST:
        return f"observation: {count} distinct ones over {log.data.length} steps are too many for fqe-tabular"
    return None


def prepare_tabular(
    config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float
) -> tuple[Distinct, Transitions, Float[np.ndarray, "S A"]]:
    """Distinct observations, transitions, and the policy's probabilities at the observations."""
    distinct = Distinct.of(data)
    transitions = Transitions.of(data, discount, data.length if config.time_feature else None)
    chances = target_actions(config, data, policy, jax.random.PRNGKey(0), distinct.observation).astype(np.float64)
    return distinct, transitions, chances / chances.sum(axis=1, keepdims=True)


def solve_tabular(
    distinct: Distinct, transitions: Transitions, policy: Float[np.ndarray, "S A"], weight: Float[np.ndarray, " K"]
) -> TabularQ:
    """Q and V of the empirical process in which each transition counts as often as its weight says."""
    (states, actions), kept = policy.shape, weight > 0
    before, after = distinct.row[transitions.row], distinct.row[transitions.row + 1]
    pair = (before * actions + transitions.action)[kept]
    weighted, size = weight[kept], states * actions
    total = np.bincount(pair, weighted, minlength=size)
    share = weighted / total[pair]
    reward = np.bincount(pair, share * transitions.reward[kept], minlength=size)
    moves = sparse.csr_matrix((share * transitions.discount[kept], (pair, after[kept])), shape=(size, states))
    missing = ~logged_pairs(pair, size)
    centres = transitions.centres(weight)

    def backup(value: Float[np.ndarray, " S"], centre: float) -> Float[np.ndarray, "S A"]:
        return np.where(missing, centre, reward + moves @ value).reshape(states, actions)

    def expected(q: Float[np.ndarray, "S A"]) -> Float[np.ndarray, " S"]:
        return (policy * q).sum(axis=1)

    lost = missing.reshape(states, actions).astype(np.float64)
    if transitions.horizon is None:
        choice = sparse.csr_matrix(
            (policy.reshape(-1), (np.repeat(np.arange(states), actions), np.arange(size))), shape=(states, size)
        )
        try:
            solved = splu(sparse.eye(states, format="csc") - (choice @ moves).tocsc())
        except RuntimeError as error:  # exactly singular
            raise InputError("discount: 1 is not allowed where the policy may never end; must be below 1") from error
        value = solved.solve(expected(backup(np.zeros(states), centres[0])))
        out = solved.solve(expected(lost))
        return TabularQ(distinct, transitions, policy, backup(value, centres[0])[None], value[None], out[None])
    qs, vs, outs = [np.zeros((states, actions))], [np.zeros(states)], [np.zeros(states)]
    for centre in centres[1:]:
        qs.append(backup(vs[-1], centre))
        outs.append(expected(np.where(lost > 0, 1.0, (moves @ outs[-1]).reshape(states, actions))))
        vs.append(expected(qs[-1]))
    return TabularQ(distinct, transitions, policy, np.stack(qs), np.stack(vs), np.stack(outs))


def _notes(solved: TabularQ) -> tuple[str, ...]:
    chance = solved.start_unlogged()
    if chance <= UNLOGGED:
        return ()
    return (
        f"with discounted probability {chance:.2g} the policy comes to an observation and an action that were never logged "
        "together; their value is taken to be that of the log's mean reward",
    )
