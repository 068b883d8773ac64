"""Marginalised importance sampling in finite worlds: weights of states and actions in place of weights of trajectories.

With the transitions and rewards estimated by their frequencies in the log, P̂ and r̂, and the policy's own probabilities π,

    d_0 = distribution of the logged start states,    d_{t+1}(s′) = Σ_{s,a} d_t(s) π(a|s) P̂(s′|s, a)
    w_t(s, a) = γ^t d_t(s) π(a|s) / d^D(s, a),        J = Σ of w r over logged steps, per trajectory

so that the variance grows with the number of states and not exponentially with the number of steps. Over an endless horizon
the occupancy ρ = Σ_t γ^t d_t solves the linear system ρ = d_0 + γ P̂^π⊤ ρ. The behaviour policy's probabilities are not used.

Finite: Xie, Ma & Wang (2019), "Towards optimal off-policy evaluation for reinforcement learning with marginalized importance
sampling", in the form without behaviour probabilities of Yin & Wang (2020), "Asymptotically efficient off-policy evaluation
for tabular reinforcement learning". Endless: the minimax weight estimator of Uehara, Huang & Jiang (2020), to which DualDICE
and GenDICE are equal in finite worlds (Nachum et al., 2019; Zhang et al., 2020).

Where the policy leaves the states and actions of the log, nothing is known. The weights of what is known are then scaled so
that they make up the whole (self-normalised), as if the unknown part had the same mean reward and did not terminate; that
part is reported. All is float64 in NumPy.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

BLOCK = 4_000_000
"""Numbers in one array of a block of bootstrap samples."""


@dataclass(frozen=True, eq=False)
class Visits:
    """Logged steps [R] of a finite world with S states and A actions, and the policy to evaluate."""

    trajectory: Int[np.ndarray, " R"]
    step: Int[np.ndarray, " R"]
    """Steps within the trajectories. Rows are ordered by these."""
    state: Int[np.ndarray, " R"]
    action: Int[np.ndarray, " R"]
    reward: Float[np.ndarray, " R"]
    following: Int[np.ndarray, " R"]
    """Next states; S where the step terminated."""
    start: Int[np.ndarray, " N"]
    """Start states of the trajectories."""
    policy: Float[np.ndarray, "S A"]
    """π(a|s)."""
    discount: float
    """γ."""
    horizon: int | None
    """Number of steps T; None if endless."""
    per_step: bool = False
    """Whether transitions of each step are estimated by themselves; only over a finite horizon."""

    @property
    def states(self) -> int:
        """S."""
        return len(self.policy)

    @property
    def unit(self) -> float:
        """Weight of one step: 1, or 1 − γ if endless, so that all steps together have the weight 1 even if γ is 1."""
        return 1.0 - self.discount if self.horizon is None else 1.0

    @cached_property
    def after(self) -> Float[np.ndarray, " _"]:
        """Discounted weight of all steps from each step t on: Σ_{k < T − t} γ^k for t = 0, …, T, or 1 if endless."""
        if self.horizon is None:
            return np.ones(1)
        return np.append(np.cumsum(self.discount ** np.arange(self.horizon, dtype=np.float64))[::-1], 0.0)

    @cached_property
    def cell(self) -> Int[np.ndarray, " R"]:
        """Index of what is estimated together: the pair of state and action, and the step if transitions are per step."""
        pair = self.state * self.policy.shape[1] + self.action
        return pair + self.step * self.policy.size if self.per_step else pair

    @cached_property
    def chance(self) -> Float[np.ndarray, " C"]:
        """π(a|s) of each cell."""
        return np.tile(self.policy.reshape(-1), self.horizon or 1) if self.per_step else self.policy.reshape(-1)

    @cached_property
    def kinds(self) -> tuple[Int[np.ndarray, " K"], Int[np.ndarray, " K"], sparse.csr_array, sparse.csr_array]:
        """Cell and next state of each kind of transition, how often each trajectory has it, and its rewards by cell."""
        wide, size = self.states + 1, len(self.start)
        kinds, kind = np.unique(self.cell * wide + self.following, return_inverse=True)
        seen = sparse.csr_array((np.ones(len(kind)), (self.trajectory, kind)), (size, len(kinds)))
        earned = sparse.csr_array((self.reward, (self.trajectory, self.cell)), (size, self.policy.size))
        return kinds // wide, kinds % wide, seen, earned

    @cached_property
    def gains(self) -> Float[np.ndarray, "R 2"]:
        """Reward and weight of each row."""
        return np.stack([self.reward, np.full(len(self.reward), self.unit)], axis=1)

    @cached_property
    def bounds(self) -> Int[np.ndarray, " T1"]:
        """First row of each step, and the number of rows."""
        return np.searchsorted(self.step, np.arange((self.horizon or 0) + 1))


@dataclass(frozen=True)
class Marginal:
    """The estimate for given shares of the trajectories."""

    value: float
    """J; NaN if nothing that the policy does is in the log."""
    supported: float
    """Part of the policy's discounted visits that is in the log, from 0 to 1."""
    weight: Float[np.ndarray, " R"]
    """Of each logged step: J = Σ_i share_i Σ_t weight r, up to self-normalisation. Over steps, ρ(s, a) / d^D(s, a)."""
    state_values: Float[np.ndarray, "T S"]
    """V_t(s), self-normalised; one row if endless. NaN where nothing that the policy does from there is in the log."""
    influence: Float[np.ndarray, " N"]
    """Derivative of J by the share of each trajectory, of mean 0: its spread divided by √N is the standard error."""


def marginal(visits: Visits, share: Float[np.ndarray, " N"]) -> Marginal:
    """Estimate J and the weights of steps, with trajectories that have these shares (which sum to 1)."""
    # a row's probability under the policy in its state
    mass = share[visits.trajectory]
    ratio = _quotient(visits.chance, np.bincount(visits.cell, mass, visits.chance.size))[visits.cell]
    first = np.bincount(visits.start, share, visits.states)
    solve = _per_step if visits.per_step else _endless if visits.horizon is None else _pooled
    occupancy, values, onward = solve(visits, mass * ratio, first)
    # the influence of a row is what it is worth minus the mean of its cell (Q), times its weight
    worth = occupancy[:, None] * visits.gains + onward
    mean = _by_cell(visits, mass, worth)
    influence = values[0, visits.start]
    for column in range(2):
        each = ratio * (worth - mean)[:, column]
        influence[:, column] += np.bincount(visits.trajectory, each, len(share))
    total = first @ values[0, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        value, kept = np.float64(visits.after[0]) * total[0] / total[1], total[1] / visits.after[0]
        change = (influence[:, 0] - total[0] / total[1] * influence[:, 1]) * visits.after[0] / total[1]
        known = (values[:, :-1, 0] / values[:, :-1, 1] * visits.after[:, None])[: visits.horizon or 1]
    return Marginal(float(value), float(kept), occupancy * ratio, known, change)


def resampled(visits: Visits, shares: Float[np.ndarray, "B N"]) -> Float[np.ndarray, " B"]:
    """J for many shares of the same trajectories, with everything estimated anew."""
    values = (_values_per_step if visits.per_step else _values_pooled)(visits, shares)
    total = np.einsum("bs,bsc->bc", shares @ _indicator(visits.start, visits.states), values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return visits.after[0] * total[:, 0] / total[:, 1]


def bootstrap(visits: Visits, samples: int, generator: np.random.Generator) -> Float[np.ndarray, " {samples}"]:
    """J of bootstrap samples: as many trajectories, drawn with replacement; in blocks, since they may not fit into memory."""
    count = len(visits.start)
    numbers = count + visits.policy.size if visits.per_step else max(count, visits.states * (visits.states + 1))
    values, size = np.empty(samples), max(1, BLOCK // numbers)
    for first in range(0, samples, size):
        drawn = generator.multinomial(count, np.full(count, 1.0 / count), min(size, samples - first))
        values[first : first + size] = resampled(visits, drawn / count)
    return values


def work(visits: Visits) -> float:
    """Number of multiplications for the value of one bootstrap sample."""
    if visits.per_step:
        return 10.0 * len(visits.state) + 4.0 * visits.chance.size
    square = float(visits.states) ** 2
    return 2.0 * len(visits.state) + square * (visits.states if visits.horizon is None else 4.0 * visits.horizon)


# --- Solutions: the occupancy of the state of each row, values [T + 1, S + 1, 2] of rewards and of the weight of steps (with
# the terminal state as the last one), and what follows each row, γ Σ_t γ^t d_t(s) V_{t+1}(s′), summed over what it stands for

_Solution = tuple[Float[np.ndarray, " R"], Float[np.ndarray, "T1 S1 2"], Float[np.ndarray, "R 2"]]


def _pooled(visits: Visits, chance: Float[np.ndarray, " R"], first: Float[np.ndarray, " S"]) -> _Solution:
    """By recursion over T steps with one transition matrix."""
    steps, count = visits.horizon or 0, visits.states
    matrix, gain = _matrix(visits, chance)
    transposed = matrix[:, :-1].T.tocsr()
    values, visited = _ended(visits, steps + 1), np.zeros((steps, count))
    for t in reversed(range(steps)):
        values[t, :-1] = gain + visits.discount * (matrix @ values[t + 1])
    now = first
    for t in range(steps):
        visited[t] = now
        now = visits.discount * (transposed @ now)
    onward = np.empty((len(visits.state), 2))
    for column in range(2):
        table = visits.discount * visited.T @ values[1:, :, column]
        onward[:, column] = table[visits.state, visits.following]
    return visited.sum(axis=0)[visits.state], values, onward


def _endless(visits: Visits, chance: Float[np.ndarray, " R"], first: Float[np.ndarray, " S"]) -> _Solution:
    """By the linear systems ρ = d_0 + γ P^π⊤ ρ and V = r + γ P^π V."""
    matrix, gain = _matrix(visits, chance)
    values = _ended(visits, 1)
    system = np.eye(visits.states) - visits.discount * matrix[:, :-1].toarray()
    ended = visits.discount * (matrix[:, -1:] @ values[0, -1:])
    values[0, :-1] = np.linalg.solve(system, gain + ended)
    occupancy = np.linalg.solve(system.T, first)[visits.state]
    return occupancy, values, visits.discount * occupancy[:, None] * values[0, visits.following]


def _per_step(visits: Visits, chance: Float[np.ndarray, " R"], first: Float[np.ndarray, " S"]) -> _Solution:
    """By recursion over T steps, each with its own rows."""
    steps, count = visits.horizon or 0, visits.states
    values, occupancy = _ended(visits, steps + 1), np.empty(len(visits.state))
    onward = np.empty((len(visits.state), 2))
    for t in reversed(range(steps)):
        at = slice(*visits.bounds[t : t + 2])
        onward[at] = visits.discount * values[t + 1, visits.following[at]]
        for column in range(2):
            each = chance[at] * (visits.gains[at, column] + onward[at, column])
            values[t, :-1, column] = np.bincount(visits.state[at], each, count)
    now = first
    for t in range(steps):
        at = slice(*visits.bounds[t : t + 2])
        occupancy[at] = now[visits.state[at]]
        moved = visits.discount * chance[at] * occupancy[at]
        now = np.bincount(visits.following[at], moved, count + 1)[:-1]
    return occupancy, values, occupancy[:, None] * onward


# --- Values for many shares, as [B, S, 2] of the first step


def _values_pooled(visits: Visits, shares: Float[np.ndarray, "B N"]) -> Float[np.ndarray, "B S 2"]:
    (count, actions), wide = visits.policy.shape, visits.states + 1
    cell, following, seen, earned = visits.kinds
    number, size = shares @ seen, len(shares)
    everywhere = np.broadcast_to(visits.chance, (size, visits.policy.size))
    ratio = _quotient(everywhere, number @ _indicator(cell, visits.policy.size))
    to_matrix = _indicator(cell // actions * wide + following, count * wide)
    matrix = ((number * ratio[:, cell]) @ to_matrix).reshape(size, count, wide)
    reward = ((shares @ earned) * ratio).reshape(size, count, actions).sum(axis=2)
    return _values_of(visits, matrix, np.stack([reward, visits.unit * matrix.sum(axis=2)], axis=2))


def _values_of(
    visits: Visits, matrix: Float[np.ndarray, "B S S1"], gain: Float[np.ndarray, "B S 2"]
) -> Float[np.ndarray, "B S 2"]:
    among, discount = visits.discount * matrix[:, :, :-1], visits.discount
    ended = discount * matrix[:, :, -1]
    if visits.horizon is None:
        gain[:, :, 1] += ended
        return np.linalg.solve(np.eye(visits.states) - among, gain)
    value = np.zeros_like(gain)
    for t in reversed(range(visits.horizon)):
        value = gain + among @ value
        value[:, :, 1] += ended * visits.after[t + 1]
    return value


def _values_per_step(visits: Visits, shares: Float[np.ndarray, "B N"]) -> Float[np.ndarray, "B S 2"]:
    (count, actions), size = visits.policy.shape, len(shares)
    chance = np.broadcast_to(visits.policy.reshape(-1), (size, visits.policy.size))
    after = np.zeros((size, count + 1, 2))
    for t in reversed(range(visits.horizon or 0)):
        at = slice(*visits.bounds[t : t + 2])
        to_cell = _indicator(visits.state[at] * actions + visits.action[at], visits.policy.size)
        mass = shares[:, visits.trajectory[at]]
        ratio = _quotient(chance, mass @ to_cell)
        after[:, -1, 1] = visits.after[t + 1]
        onward = visits.discount * after[:, visits.following[at]]
        for column in range(2):
            each = mass * (visits.gains[at, column] + onward[:, :, column])
            after[:, :-1, column] = ((each @ to_cell) * ratio).reshape(size, count, actions).sum(axis=2)
    return after[:, :-1]


# --- Parts


def _matrix(visits: Visits, chance: Float[np.ndarray, " R"]) -> tuple[sparse.csr_array, Float[np.ndarray, "S 2"]]:
    """P^π [S, S + 1], and the mean reward and weight of a step in each state; what is not in the log counts as 0."""
    shape = visits.states, visits.states + 1
    matrix = sparse.csr_array((chance, (visits.state, visits.following)), shape)
    gains = chance[:, None] * visits.gains
    return matrix, np.stack([np.bincount(visits.state, column, shape[0]) for column in gains.T], axis=1)


def _ended(visits: Visits, rows: int) -> Float[np.ndarray, "T1 S1 2"]:
    """Values, 0 but for the weight of the steps after a termination."""
    values = np.zeros((rows, visits.states + 1, 2))
    values[:, -1, 1] = visits.after[:rows]
    return values


def _by_cell(
    visits: Visits, mass: Float[np.ndarray, " R"], worth: Float[np.ndarray, "R 2"]
) -> Float[np.ndarray, "R 2"]:
    """Mean of each row's cell."""
    total = np.bincount(visits.cell, mass, visits.chance.size)
    means = [_quotient(np.bincount(visits.cell, mass * column, visits.chance.size), total) for column in worth.T]
    return np.stack(means, axis=1)[visits.cell]


def _indicator(index: Int[np.ndarray, " R"], count: int) -> sparse.csr_array:
    """[R, count] with a 1 in the column of each row."""
    return sparse.csr_array((np.ones(len(index)), index, np.arange(len(index) + 1)), (len(index), count))


def _quotient(x: Float[np.ndarray, "*N"], y: Float[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
    """Quotient x / y, and 0 where y is 0."""
    return np.divide(x, y, out=np.zeros_like(y), where=y > 0)
