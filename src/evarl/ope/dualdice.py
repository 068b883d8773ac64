"""DualDICE with exact last layers: importance weights of states and actions for any observations and actions.

The two networks of `evarl.ope.dice_networks` give features φ of ν and ψ of ζ, to which a constant, the state and the action are
added. For linear functions of these the saddle point has a closed form, which is computed in float64:

    ν = b·φ,  ζ = β·ψ,   K = E_D[ψ (φ − γ E_π φ′)⊤],  M = E_D[ψ ψ⊤],  G = K⊤ M⁻¹ K
    b = c G⁻¹ E[φ_0],    β = M⁻¹ K b,    J = Σ ζ r / Σ ζ u

where Σ ζ u is what the weights must add up to (self-normalised): u counts a step, and after a termination the steps that are
then missing. The same matrices give a Q function, q = G⁻¹ K⊤ M⁻¹ E_D[ψ r], whose values V(s) = q · E_π φ(s) average to the
same J. The derivative of J by the share of a trajectory, with the features held fixed, is

    c q·φ_0 + Σ ζ (r + γ q·φ′ − q·φ) + Σ (e·ψ) (b·(φ − γ φ′) − ζ),    e = M⁻¹ (E_D[ψ r] − K q).

Nachum et al. (2019), "DualDICE"; Uehara, Huang & Jiang (2020), "Minimax weight and Q-function learning for off-policy
evaluation"; Yang et al. (2020), "Off-policy evaluation via the regularized Lagrangian".
"""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy import linalg

from evarl.ope.action_support import action_warnings
from evarl.ope.checks import state_warnings
from evarl.ope.dice_networks import Networks, Rows, as_choices
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe_table import levels_of, prepare, row_observations, rows as row_places, target_actions
from evarl.ope.log import Estimate, Log, random_keys
from evarl.ope.model import along
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import DICEConfig, FQEConfig, Settings
from evarl.ope.uncertainty import few
from evarl.sizes import check_memory, check_time, matrix_entries
from evarl.stats.skewed import skewed_t_interval

NEGATIVE = 0.1
"""Part of the weight that may be below 0: a linear function is, where the ratio is close to 0."""
WAVES = 50
"""Functions with which the flow of states and actions is checked."""
BLOCK = 4096
"""Rows for which these are computed at once."""
MISSED = 2.0
"""Deviations of returns in the standard error for each unit of the flow error. Weights that miss the flow of a function by so
much have that error in J where the function is Q; of waves, whose root mean square is known, Q may be an unlucky one."""
RIDGED = 1e-3
"""Deviations of returns that the ridge may cost, of which the standard error says nothing."""
ROWS_PER_FEATURE = 5
"""Logged steps for each feature, below which there is no standard error: the matrices would be as uncertain."""


@dataclass(frozen=True)
class Steps:
    """Logged steps [R] and start states [N] in features; E_D is the mean over steps."""

    nu: Float[np.ndarray, "R P"]
    """φ."""
    change: Float[np.ndarray, "R P"]
    """φ − γ E_π φ′; φ where the value ends."""
    zeta: Float[np.ndarray, "R Z"]
    """ψ."""
    start: Float[np.ndarray, "N P"]
    """E_π φ_0."""
    gains: Float[np.ndarray, "R 2"]
    """r and u."""
    trajectory: Int[np.ndarray, " R"]
    whole: float
    """Σ ζ u of weights that are not to be scaled, divided by c."""
    scale: float
    """c."""


@dataclass(frozen=True)
class Solution:
    """The saddle point, and what follows from it."""

    value: float
    weight: Float[np.ndarray, " R"]
    """ζ / c."""
    coefficients: Float[np.ndarray, "P 2"]
    """q of rewards and of u."""
    influence: Float[np.ndarray, " N"]
    """Derivative of J by the share of each trajectory, of mean 0."""
    largest: float
    """Largest part of the absolute weight that one trajectory has."""

    @property
    def effective(self) -> float:
        """Effective sample size (Σ ζ)² / Σ ζ² of the steps, as a share of them."""
        return float(self.weight.sum() ** 2 / (self.weight @ self.weight) / len(self.weight))

    @property
    def negative(self) -> float:
        """Part of the absolute weight that is below 0."""
        return float(-self.weight[self.weight < 0].sum() / np.abs(self.weight).sum())


def solve(steps: Steps, ridge: float) -> Solution:
    """The saddle point for these features, with a penalty relative to their mean squares."""
    count, trajectories = len(steps.zeta), len(steps.start)
    cross = steps.zeta.T @ steps.change / count
    factor = linalg.cho_factor(_ridged(steps.zeta.T @ steps.zeta / count, ridge))
    solved = linalg.cho_solve(factor, cross)
    gram = linalg.cho_factor(_ridged(cross.T @ solved, ridge))
    nu = steps.scale * linalg.cho_solve(gram, steps.start.mean(axis=0))
    weight = steps.zeta @ (solved @ nu)
    target = steps.zeta.T @ steps.gains / count
    q = linalg.cho_solve(gram, solved.T @ target)
    left = linalg.cho_solve(factor, target - cross @ q)
    # derivatives of Σ ζ r and Σ ζ u
    misfit = steps.change @ nu - weight
    each = weight[:, None] * (steps.gains - steps.change @ q) + (steps.zeta @ left) * misfit[:, None]
    by_trajectory = np.stack([np.bincount(steps.trajectory, column, trajectories) for column in each.T], axis=1)
    influence = steps.scale * steps.start @ q + by_trajectory * (trajectories / count)
    total = weight @ steps.gains / count
    value = steps.whole * total[0] / total[1]
    change = (influence[:, 0] - total[0] / total[1] * influence[:, 1]) * steps.whole / total[1]
    owned = np.bincount(steps.trajectory, np.abs(weight), trajectories)
    parts = weight / steps.scale, q, change - change.mean(), float(owned.max() / owned.sum())
    return Solution(float(value), *parts)


def _ridged(matrix: Float[np.ndarray, "P P"], ridge: float) -> Float[np.ndarray, "P P"]:
    """With a penalty on all but the constant, which comes first."""
    penalty = np.full(len(matrix), ridge * np.trace(matrix) / len(matrix))
    penalty[0] *= 1e-6
    return matrix + np.diag(penalty)


class _Units(NamedTuple):
    """Mean and deviation of features, the constant left as it is."""

    mean: Float[np.ndarray, " P"]
    deviation: Float[np.ndarray, " P"]

    @classmethod
    def of(cls, features: Float[np.ndarray, "R P"]) -> "_Units":
        deviation = features.std(axis=0)
        return cls(np.append(0.0, features.mean(axis=0)[1:]), np.where(deviation > 1e-6, deviation, 1.0))

    def __call__(self, features: Float[np.ndarray, "B P"]) -> Float[np.ndarray, "B P"]:
        return (features - self.mean) / self.deviation


class Problem:
    """A log in the units of networks, the policy's actions on it, and the networks."""

    def __init__(self, log: Log, policy: TargetPolicy, settings: Settings):
        self._log, self._policy, data = log, policy, log.data
        finite, draws = settings.horizon == "finite", settings.dice.action_samples
        apart, draw, train, self._query = jax.random.split(random_keys(settings)[0], 4)
        self._as = FQEConfig(time_feature=finite, held_out=0.0, action_samples=draws)
        self.table = prepare(self._as, data, log.discount, apart)
        self._rows = Rows.of(self.table, jnp.asarray(target_actions(self._as, data, policy, draw)))
        self.networks = Networks(settings.dice, self.table, self._rows, train)
        self._moves, self._starts = np.asarray(self.table.training), np.asarray(self.table.starts)
        trajectory, step = row_places(data)
        self._trajectory = trajectory[self._moves]
        self._discount = np.asarray(self.table.discount, np.float64)[self._moves]
        self._gains, self._whole = _gains(log, (self._trajectory, step[self._moves]), finite)

    def steps(self) -> Steps:
        """The log in features of the networks as they are."""
        rows, moves = self._rows, self._moves
        logged = rows.features[moves], rows.action[moves]
        nu, zeta = (_with_inputs(part, *logged) for part in self.networks.logged(moves))
        self._units, weights = _Units.of(nu), _Units.of(zeta)
        nu, zeta = self._units(nu), weights(zeta)
        change = nu - self._discount[:, None] * self._expected(rows, moves + 1)
        parts = nu, change, zeta, self._expected(rows, self._starts), self._gains, self._trajectory
        return Steps(*parts, whole=self._whole, scale=self.networks.scale)

    def values(self, q: Float[np.ndarray, " P"]) -> Float[np.ndarray, " Q"] | None:
        """V at the query states, if there are any."""
        log, scales = self._log, self.table.scales
        if log.states is None:
            return None
        states = np.asarray(log.states)
        act = jnp.asarray(target_actions(self._as, log.data, self._policy, self._query, states))
        times = None if log.times is None else jnp.asarray(log.times, jnp.int32)
        features = np.asarray(scales.features(jnp.asarray(states), times))
        unused = np.zeros((len(states), self._rows.action.shape[1]), np.float32)
        return self._expected(Rows(features, unused, *as_choices(scales, act)), np.arange(len(states))) @ q

    def values_along(self, steps: Steps, q: Float[np.ndarray, " P"]) -> ModelValues:
        """Q and V at every step of the log."""
        blocks = np.array_split(np.arange(len(self._rows.features)), 1 + len(self._rows.features) // BLOCK)
        v = np.concatenate([self._expected(self._rows, at) @ q for at in blocks])
        horizon = self._log.data.length if self._as.time_feature else None
        return along(self._log.data, horizon, v, lambda states, action, times: steps.nu @ q)

    def flow_error(self, weight: Float[np.ndarray, " R"], generator: np.random.Generator) -> tuple[float, float]:
        """Root mean square of E_D[ζ (f − γ E_π f′)]/c − E_π[f_0] over random waves f(s, a), and its sampling error.

        Both are 0 for the right weights and an infinite log, whatever f is. Waves have a mean square of 1.
        """
        rows = self._rows
        sizes = rows.features.shape[1], rows.action.shape[1]
        direction = generator.normal(size=(sum(sizes), WAVES)) / np.sqrt(sum(sizes))
        phase = generator.uniform(0.0, 2.0 * np.pi, WAVES)
        by_state, by_action = direction[: sizes[0]], direction[sizes[0] :]

        def expected(chosen: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B W"]:
            features, choices, chances = rows.policy(chosen)
            return np.einsum(
                "bk,bkw->bw", chances, np.cos((features @ by_state + phase)[:, None] + choices @ by_action)
            )

        each = np.zeros((len(self._starts), WAVES))
        for at in np.array_split(np.arange(len(weight)), 1 + len(weight) // BLOCK):
            here = self._moves[at]
            logged = np.cos(rows.features[here] @ by_state + rows.action[here] @ by_action + phase)
            flow = weight[at, None] * (logged - self._discount[at, None] * expected(here + 1))
            np.add.at(each, self._trajectory[at], flow * (len(each) / len(weight)))
        each = np.sqrt(2.0) * (each - expected(self._starts))
        error, spread = np.square(each.mean(axis=0)).mean(), each.var(axis=0).mean()
        return float(np.sqrt(error)), float(np.sqrt(spread / len(each)))

    def _expected(self, rows: Rows, chosen: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B P"]:
        """Expectations of φ under the policy."""
        features, choices, chances = rows.policy(chosen)
        action = np.einsum("bk,bkd->bd", chances, choices)
        return self._units(_with_inputs(self.networks.expected(rows, chosen), features, action))


def _with_inputs(hidden: Float[np.ndarray, "B H"], state: np.ndarray, action: np.ndarray) -> Float[np.ndarray, "B P"]:
    """A constant, state, action and the features of a network."""
    return np.concatenate([np.ones((len(hidden), 1)), state, action, hidden], axis=1, dtype=np.float64)


def _gains(log: Log, at: tuple[np.ndarray, np.ndarray], finite: bool) -> tuple[Float[np.ndarray, "R 2"], float]:
    """Rewards and u of the steps at these trajectories and places, and the whole of u, as in `evarl.ope.marginal`."""
    ended, discount = np.asarray(log.data.terminated)[at], log.discount
    powers = discount ** np.arange(log.data.length, dtype=np.float64)
    after = np.append(np.cumsum(powers)[::-1], 0.0) if finite else np.ones(log.data.length + 1)
    weight = (1.0 if finite else 1.0 - discount) + discount * ended * after[at[1] + 1]
    return np.stack([np.asarray(log.data.reward, np.float64)[at], weight], axis=1), float(after[0])


def check_dice(config: DICEConfig, steps: int, features: int) -> None:
    """Raise InputError if DualDICE on so many logged steps does not fit into memory, or takes hours."""
    widest = max(config.hidden_sizes)
    check_memory("dice.batch-size", config.batch_size, 400.0 * config.batch_size * (features + widest), "a batch")
    network = 32 * matrix_entries(features, *config.hidden_sizes)
    table = 32.0 * steps * (config.hidden_sizes[-1] + features)
    check_memory("dice.hidden-sizes", config.hidden_sizes, network + table, "the table of features")
    drawn = 4.0 * config.action_samples * steps
    check_memory("dice.action-samples", config.action_samples, drawn, "the sample of actions")
    check_time("dice.steps", config.steps, config.steps, "training")


def dualdice(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """DualDICE, with the last layers of both networks solved for."""
    config = settings.dice
    levels = levels_of(FQEConfig(), row_observations(log.data))
    entries = int(np.prod(log.data.observation.shape[2:])) if levels is None else levels[1]
    check_dice(config, log.data.mask.size, entries)
    problem, before = Problem(log, policy, settings), config.steps - config.steps // 4
    problem.networks.train(0, before)
    early = solve(problem.steps(), config.ridge).value
    problem.networks.train(before, config.steps)
    steps = problem.steps()
    found = solve(steps, config.ridge)
    flow = problem.flow_error(found.weight, np.random.default_rng(settings.random_seed % 2**32))
    drift = abs(found.value - early) / float(problem.table.scales.spread)
    # what the weights get wrong of the flow may be half of what the sample gets wrong of it, unless that is much too
    allowed = config.tolerance * max(1.0, min(flow[1] / (2.0 * config.tolerance), 4.0))
    converged = drift <= config.tolerance and flow[0] <= allowed
    notes = (*(() if converged else (_not_converged(drift, flow),)), *_doubts(steps, found))
    estimate = Estimate(
        value=found.value,
        state_values=problem.values(found.coefficients[:, 0]),
        effective_sample_size=found.effective * len(steps.start),
        largest_weight_share=found.largest,
        converged=bool(converged),
        warnings=notes,
    )
    if notes:
        return estimate
    sampling = float(found.influence.std(ddof=1) / len(steps.start) ** 0.5)
    spread = float(problem.table.scales.spread)
    missed = MISSED * flow[0] * spread
    error = float(np.hypot(sampling, missed))
    wider = error / sampling if sampling > 0 else 1.0
    interval = skewed_t_interval(found.value, found.value + wider * found.influence, settings.confidence)
    doubtful = few(found.influence, "the estimate") + action_warnings(log, policy, settings)
    values, each = problem.values_along(steps, found.coefficients[:, 0]), found.value + found.influence
    doubtful += state_warnings(log, policy, settings, values, each, missed + max(drift, RIDGED) * spread)
    return dataclasses.replace(estimate, standard_error=error, intervals={"t": interval}, warnings=doubtful)


def _not_converged(drift: float, flow: tuple[float, float]) -> str:
    return (
        f"DualDICE has not converged: the last quarter of training changed J by {drift:.2g} deviations of returns, and the "
        f"weights miss the flow of states by {flow[0]:.2g} (sampling error {flow[1]:.2g}); use more steps or wider layers, "
        "or the log does not cover the policy"
    )


def _doubts(steps: Steps, found: Solution) -> tuple[str, ...]:
    """Reasons for which there is no standard error."""
    rows, notes = len(found.weight), tuple[str, ...]()
    if found.negative > NEGATIVE:
        notes += (f"{found.negative:.0%} of the weight is negative, where ratios cannot be; no standard error",)
    if rows < ROWS_PER_FEATURE * steps.nu.shape[1]:
        notes += (f"{rows} logged steps for {steps.nu.shape[1]} features are too few for a standard error",)
    if len(steps.start) < 2:
        notes += ("one trajectory has no standard error",)
    return notes
