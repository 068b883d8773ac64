"""Fitted Q evaluation: Q of a policy, by regression on bootstrapped targets from logged transitions.

    minimise over θ:  mean over logged (s, a, r, s′) of  (r + discount · E_{a′ ~ π_e(s′)} Q_θ̄(s′, a′) − Q_θ(s, a))²

with θ̄ the target network, a copy of θ that is renewed every few steps. The policy enters only through its actions at each
logged observation, which are computed beforehand, so that one compiled program serves all policies and can be mapped over them.

With a trace λ > 0 the target has later errors δ_k = r_k + discount · V_θ̄(s_{k+1}) − Q_θ̄(s_k, a_k) of the same trajectory too,

    Q_θ̄(s_t, a_t) + Σ_{k≥t} (Π_{t<j≤k} discount · c_j) δ_k        over `trace_steps` steps after t,

where c_j = λ min(1, ρ_j) is Retrace (Munos et al., 2016), λ π_e(a_j | s_j) tree backup (Precup et al., 2000) and λ Q(λ)
(Harutyunyan et al., 2016). Q of the policy stays the fixed point. Retrace and tree backup converge from any behaviour; Q(λ)
only if λ < (1 − discount) / (discount · ε), with ε the largest ‖π_e(s) − π_b(s)‖₁.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_network import Layers, action_value, expected, forward, initial
from evarl.ope.fqe_table import Scales, Table, prepare, rows as log_rows, single, target_actions
from evarl.ope.fqe_training import (
    TARGETS,
    TRACE,
    Points,
    Program,
    Rows,
    Schedule,
    padded_rows,
    row_values,
    train,
    training_order,
)
from evarl.ope.policy import TargetPolicy
from evarl.ope.policy_programs import evaluated
from evarl.ope.settings import FQEConfig
from evarl.ope.shapes import padded
from evarl.ranges import flag
from evarl.worlds.world import Key


class FittedQ(struct.PyTreeNode):
    """A fitted Q function and diagnostics of the fit; all in raw units."""

    parameters: Layers
    scales: Scales
    bellman_error: Float[Array, ""]
    """Root mean square of r + discount · V(s′) − Q(s, a) on the held-out trajectories; NaN if there are none. In a
    stochastic world it is not 0 even for the true Q."""
    loss: Float[Array, " trace"]
    """Mean training loss over each twentieth of the steps."""
    start_value: Float[Array, " trace"]
    """Mean V over the trajectories' first observations, after each twentieth of the steps."""
    drift: Float[Array, ""]
    """Change of the mean start value in the last quarter of the steps."""
    remainder: Float[Array, ""]
    """Estimated distance of the values from their limit: the mean gradient of the loss on the training transitions times
    1 / (1 − mean discount), the number of backups that it takes part in, plus the gradient on their deviations from their
    mean. Both are 0 at the minimum. It detects values that would still move if the step size were not too small for it."""
    converged: Bool[Array, ""]
    """Whether drift and remainder are below the tolerance times the spread of the values."""

    def q_values(self, observation: Array, time: Int[Array | np.ndarray, " B"] | None = None) -> Float[Array, "B A"]:
        """Q of all discrete actions at a batch of observations; `time` is the step, if it is a feature, by default 0."""
        return _q_values((self.parameters, self.scales), observation, time)

    def q(
        self, observation: Array, action: Array, time: Int[Array | np.ndarray, " B"] | None = None
    ) -> Float[Array, " B"]:
        """Q of one action, discrete [B] or continuous [B, ...], for each of a batch of observations."""
        return _q((self.parameters, self.scales), observation, action, time)

    def v(
        self, observation: Array, actions: Array, time: Int[Array | np.ndarray, " B"] | None = None
    ) -> Float[Array, " B"]:
        """V of a batch of observations, given the policy's probabilities [B, A] there, or draws of its actions [B, S, D]."""
        return network_value((self.parameters, self.scales), observation, actions, time)


Network = tuple[Layers, Scales]


@jax.jit
def _q_values(network: Network, observation: Array, time: Array | None) -> Array:
    parameters, scales = network
    return scales.raw(forward(parameters, scales.features(observation, time)), time)


@jax.jit
def _q(network: Network, observation: Array, action: Array, time: Array | None) -> Array:
    return network[1].raw(standardised_q(network, observation, action, time), time)


@jax.jit
def standardised_q(network: Network, observation: Array, action: Array, time: Array | None = None) -> Array:
    """Q of actions in the units of the network."""
    parameters, scales = network
    if scales.action is not None:
        action = scales.actions(jnp.asarray(action).reshape(len(action), -1))
    return action_value(parameters, scales.features(observation, time), jnp.asarray(action))


@jax.jit
def network_value(network: Network, observation: Array, actions: Array, time: Array | None = None) -> Array:
    """V of a batch of observations by the parameters and scales of a fit."""
    return network[1].raw(standardised_v(network, observation, actions, time), time)


@jax.jit
def standardised_v(network: Network, observation: Array, actions: Array, time: Array | None = None) -> Array:
    """V of a batch of observations in the units of the network."""
    parameters, scales = network
    if scales.action is not None:
        actions = scales.actions(actions)
    return expected(parameters, scales.features(observation, time), actions)


def fit(
    config: FQEConfig,
    table: Table,
    target: Float[Array | np.ndarray, "R ..."],
    key: Key,
    trace: Float[np.ndarray, " R"] | None = None,
    room: int = 0,
) -> FittedQ:
    """Fit Q to one policy, given by its actions at each row: probabilities [R, A] or draws [R, S, D].

    Pure, and one compiled program for all policies, keys, numbers of steps, step sizes, and logs of one class of sizes. For
    many policies at once: `jax.vmap(partial(fit, config, table))(targets, keys)`. `trace` is that of `trace_coefficients`.
    With `room`, the program is that of a log with so many rows.
    """
    rows, program = programmed(config, table, target, trace, room)
    points, loss = trained(config, rows, program, table, key)
    starts, count = padded(table.starts, len(rows.reward)), np.int32(len(table.starts))
    values = [row_values(points, np.int32(point), rows, starts, count)[1] for point in range(TRACE)]
    everything = np.arange(len(rows.reward), dtype=np.int32)
    found = row_values(points, np.int32(TRACE - 1), rows, everything, np.int32(len(table.reward)))
    lists = tuple((padded(rows_, len(everything)), np.int32(len(rows_))) for rows_ in (table.training, table.held_out))
    bound = single(1 / float(table.scales.spread)) if program.huber else None
    measured = Measured(points, loss, found, tuple(values))
    return _diagnosed(rows, measured, (count, *lists), table.scales, (bound, single(config.tolerance)))


def programmed(
    config: FQEConfig,
    table: Table,
    target: Float[Array | np.ndarray, "R ..."],
    trace: np.ndarray | None = None,
    room: int = 0,
) -> tuple[Rows, Program]:
    """A table and the policy's actions in their class of sizes, and the program that they are for."""
    config.validate()
    discrete = table.scales.action is None
    if target.ndim != (2 if discrete else 3) or target.shape[0] != table.features.shape[0]:
        expected = "[R, A]" if discrete else "[R, S, D]"
        raise InputError(f"target: has shape {target.shape}; must be {expected} with R = {table.features.shape[0]}")
    if config.trace and trace is None:
        raise InputError("trace: is missing; must be given for fqe.trace above 0")
    width = table.features.shape[1] + (0 if table.code is None else len(table.code[1]))
    width += 0 if table.flags is None else table.flags.shape[1]
    sizes = (
        width + (0 if discrete else table.action.shape[1]),
        *config.hidden_sizes,
        target.shape[1] if discrete else 1,
    )
    huber = discrete and config.convention == "greedy-huber"
    window = config.trace_steps if config.trace else 0
    chunk = max(1, min(config.target_interval, TARGETS // (config.batch_size * (window + 1))))
    program = Program(sizes, config.batch_size, huber, window, chunk)
    standardised = target if discrete else table.scales.actions(target)
    return padded_rows(table, standardised, trace if config.trace else None, room), program


def trained(
    config: FQEConfig, rows: Rows, program: Program, table: Table, key: Key
) -> tuple[Points, Float[Array, " trace"]]:
    """Parameters at each point of training on the table's training transitions, and the loss."""
    steps: Any = np.int32(config.steps)
    interval: Any = np.int32(config.target_interval)
    schedule = Schedule(steps, interval, single(config.learning_rate), single(1 / float(table.scales.spread)))
    return train(initial(key, program.sizes), rows, training_order(table.training, len(rows.reward)), schedule, program)


class Measured(NamedTuple):
    """What training leaves: parameters and losses at each point, Q and V of all rows, and V of start rows at each point."""

    points: Points
    loss: Float[Array, " trace"]
    found: tuple[Float[Array, " P"], Float[Array, " P"]]
    starting: tuple[Float[Array, " P"], ...]


@jax.jit
def _diagnosed(rows: Rows, measured: Measured, lists: tuple, scales: Scales, limits: tuple) -> FittedQ:
    """The fit with its diagnostics; `lists` are the number of starts, and the rows of either kind with their numbers."""
    (starts, (row, count), (apart, others)), (bound, tolerance) = lists, limits
    value, following = measured.found[0], jnp.roll(measured.found[1], -1)
    error = rows.reward + rows.discount * following - value

    def mean(x: Array, count: Array) -> Array:
        there = jnp.arange(len(x), dtype=jnp.int32) < count
        total = jnp.where(there, x, 0.0).sum()
        return jnp.where(count > 0, total / jnp.maximum(count, 1).astype(jnp.float32), jnp.nan)

    start = jnp.stack([mean(one, starts) for one in measured.starting])
    drift = jnp.abs(start[-1] - start[-1 - TRACE // 4])
    pull = error[row] if bound is None else jnp.clip(error[row], -bound, bound)
    # |mean pull| / (1 − discount) + |cov(pull, Q)| / std(Q), with the pull (the clipped error) as the gradient
    centred = value[row] - mean(value[row], count)
    slope = jnp.abs(mean(pull * centred, count)) / (jnp.sqrt(mean(centred**2, count)) + 1e-12)
    remainder = jnp.abs(mean(pull, count)) / (1 - mean(rows.discount[row], count)) + slope
    return FittedQ(
        parameters=jax.tree.map(lambda leaf: leaf[-1], measured.points),
        scales=jax.tree.map(jnp.asarray, scales),
        bellman_error=scales.spread * jnp.sqrt(mean(error[apart] ** 2, others)),
        loss=measured.loss * scales.spread**2,
        start_value=scales.raw(start, jnp.zeros(len(start), jnp.int32)),
        drift=scales.spread * drift,
        remainder=scales.spread * remainder,
        converged=jnp.maximum(drift, remainder) < tolerance,
    )


def trace_coefficients(
    config: FQEConfig, data: LoggedData, table: Table, policy: TargetPolicy, target: np.ndarray
) -> Float[np.ndarray, " R"] | None:
    """The discount times c of the step after each row, 0 at the last step of a trajectory; None if the trace is 0."""
    if not config.trace:
        return None
    trajectory, step = log_rows(data)
    moves = step < np.asarray(data.mask).sum(axis=1)[trajectory]
    at = trajectory[moves], step[moves]
    done = np.asarray(data.action)[at]
    coefficient = np.zeros(len(step))
    if config.trace_kind == "q-lambda":
        coefficient[moves] = 1.0
    elif config.trace_kind == "tree-backup":
        if not data.discrete:
            raise InputError("fqe.trace-kind: tree-backup requires discrete actions; must be retrace or q-lambda")
        coefficient[moves] = target[moves][np.arange(len(done)), done]
    else:
        if data.log_prob is None:
            raise InputError("log_prob: is missing in the log; Retrace requires it, fqe.trace-kind q-lambda does not")
        log_prob = evaluated(policy.log_prob, np.asarray(data.observation)[at], done)
        difference = np.asarray(log_prob, np.float64) - np.asarray(data.log_prob, np.float64)[at]
        coefficient[moves] = np.exp(np.minimum(difference, 0.0))
    following = np.append(coefficient[1:], 0.0)  # 0 at final observations
    return (config.trace * np.asarray(table.discount, np.float64) * following * moves).astype(np.float32)


def fit_policy(config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, key: Key) -> FittedQ:
    """Prepare a log, compute the policy's actions on it, and fit."""
    apart, draw, train_key = jax.random.split(key, 3)
    table = prepare(config, data, discount, apart)
    target = target_actions(config, data, policy, draw)
    return fit(config, table, target, train_key, trace_coefficients(config, data, table, policy, target))


def select(
    configs: Sequence[FQEConfig], data: LoggedData, policy: TargetPolicy, discount: float, key: Key
) -> tuple[int, tuple[FittedQ, ...]]:
    """Fit several configurations; returns the index of the one with the lowest held-out Bellman error, and all fits.

    All hold out the same trajectories, and must have the same convention, time feature and share of held-out trajectories,
    since errors of different backups cannot be compared.
    """
    if not configs:
        raise InputError("configs: there are none; must be at least one")
    for name in ("convention", "time_feature", "held_out"):
        if len({getattr(config, name) for config in configs}) > 1:
            raise InputError(f"{flag('fqe', name)}: differs between configurations; must be the same")
    if not configs[0].held_out:
        raise InputError("fqe.held-out: 0 is not allowed; must be above 0 to compare configurations")
    fits = tuple(fit_policy(config, data, policy, discount, key) for config in configs)
    errors = jnp.stack([one.bellman_error for one in fits])
    return int(jnp.argmin(jnp.where(jnp.isnan(errors), jnp.inf, errors))), fits
