"""Fitted Q evaluation: Q of a policy, by regression on bootstrapped targets from logged transitions.

    minimise over θ:  mean over logged (s, a, r, s′) of  (r + discount · E_{a′ ~ π_e(s′)} Q_θ̄(s′, a′) − Q_θ(s, a))²

with θ̄ the target network, a copy of θ that is renewed every few steps. The policy enters only through its actions at each
logged observation, which are computed beforehand, so that one compiled program serves all policies and can be mapped over them.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_table import Scales, Table, prepare, target_actions
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.ranges import flag
from evarl.worlds.world import Key, lenient_promotion

TRACE = 20
"""Points of the trace of training."""
BLOCK = 4096
"""Rows of the log that are evaluated at once, outside of training."""
KEPT, LAST = 0.5, 0.02
"""The step size is constant for the share KEPT of the steps and then decays linearly to the share LAST of itself."""
OPTIMIZER = optax.scale_by_adam()

Layers = tuple[tuple[Float[Array, "_ _"], Float[Array, " _"]], ...]
"""Weights and biases."""


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

    @jax.jit
    def q_values(self, observation: Array, time: Int[Array, " B"] | None = None) -> Float[Array, "B A"]:
        """Q of all discrete actions at a batch of observations; `time` is the step, if it is a feature, by default 0."""
        return self._raw(_forward(self.parameters, self.scales.features(observation, time)))

    @jax.jit
    def q(self, observation: Array, action: Array, time: Int[Array, " B"] | None = None) -> Float[Array, " B"]:
        """Q of one action, discrete [B] or continuous [B, ...], for each of a batch of observations."""
        if self.scales.action is None:
            index = jnp.asarray(action)[:, None]
            return jnp.take_along_axis(self.q_values(observation, time), index, axis=1)[:, 0]
        actions = self.scales.actions(jnp.asarray(action).reshape(len(action), -1))
        return self._raw(_value(self.parameters, self.scales.features(observation, time), actions))

    @jax.jit
    def v(self, observation: Array, actions: Array, time: Int[Array, " B"] | None = None) -> Float[Array, " B"]:
        """V of a batch of observations, given the policy's probabilities [B, A] there, or draws of its actions [B, S, D]."""
        if self.scales.action is not None:
            actions = self.scales.actions(actions)
        return self._raw(_expected(self.parameters, self.scales.features(observation, time), actions))

    def _raw(self, standardised: Array) -> Array:
        return self.scales.centre + self.scales.spread * standardised


def fit(config: FQEConfig, table: Table, target: Float[Array, "R ..."], key: Key) -> FittedQ:
    """Fit Q to one policy, given by its actions at each row: probabilities [R, A] or draws [R, S, D].

    Pure, and one compiled program for all policies, keys, numbers of steps and step sizes. For many policies at once:
    `jax.vmap(partial(fit, config, table))(targets, keys)`.
    """
    config.validate()
    discrete = table.scales.action is None
    if target.ndim != (2 if discrete else 3) or target.shape[0] != table.features.shape[0]:
        expected = "[R, A]" if discrete else "[R, S, D]"
        raise InputError(f"target: has shape {target.shape}; must be {expected} with R = {table.features.shape[0]}")
    inputs = table.features.shape[1] + (0 if discrete else table.action.shape[1])
    steps, interval = jnp.int32(config.steps), jnp.int32(config.target_interval)
    schedule = _Schedule(steps, interval, jnp.float32(config.learning_rate), jnp.float32(config.tolerance))
    sizes = (inputs, *config.hidden_sizes, target.shape[1] if discrete else 1)
    program = _Program(sizes, config.batch_size, huber=discrete and config.convention == "greedy-huber")
    return _fit(table, target if discrete else table.scales.actions(target), key, schedule, program)


def fit_policy(config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, key: Key) -> FittedQ:
    """Prepare a log, compute the policy's actions on it, and fit."""
    apart, draw, train = jax.random.split(key, 3)
    table = prepare(config, data, discount, apart)
    return fit(config, table, target_actions(config, data, policy, draw), train)


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


class _Schedule(NamedTuple):
    """Settings that a compiled program takes as arguments."""

    steps: Int[Array, ""]
    interval: Int[Array, ""]
    """Steps between two copies into the target network."""
    learning_rate: Float[Array, ""]
    tolerance: Float[Array, ""]


class _Program(NamedTuple):
    """Settings that need a program of their own."""

    sizes: tuple[int, ...]
    batch_size: int
    huber: bool


class _Training(struct.PyTreeNode):
    """The state of training."""

    parameters: Layers
    optimizer: optax.OptState
    position: Int[Array, ""]
    """In the shuffled training transitions, which are passed through repeatedly: a pass weights all of them equally, where
    independent draws would add noise that accumulates over backups."""
    passes: Int[Array, ""]
    """Completed passes; each uses the next of the policy's draws."""
    loss: Float[Array, ""]
    """Sum since the last point of the trace."""


@partial(jax.jit, static_argnames="program")
def _fit(table: Table, target: Array, key: Key, schedule: _Schedule, program: _Program) -> FittedQ:
    """The whole of training, with a trace of the loss and of the mean start value, and its diagnostics."""
    spread, count = table.scales.spread, len(table.training)
    bound = 1 / spread if program.huber else None  # Huber's threshold is 1 in raw units
    begin, shuffle = jax.random.split(key)
    shuffled = jax.random.permutation(shuffle, table.training)
    # so that a batch may begin at any transition
    shuffled = jnp.concatenate([shuffled] * (1 + -(-program.batch_size // count)))
    one_round = partial(_one_round, table, target, shuffled, schedule, (program.batch_size, bound))
    steps, interval = schedule.steps, schedule.interval
    rounds = (steps + interval - 1) // interval

    def one_point(carry: tuple[_Training, Array], point: Array) -> tuple[tuple[_Training, Array], tuple[Array, Array]]:
        first, last = (-(-number * rounds // TRACE) for number in (point, point + 1))
        state = jax.lax.fori_loop(first, last, one_round, carry[0].replace(loss=jnp.zeros(())))
        made = (jnp.minimum(last * interval, steps) - jnp.minimum(first * interval, steps)).astype(jnp.float32)
        loss = jnp.where(made > 0, state.loss / jnp.maximum(made, 1.0), carry[1])  # fewer rounds than points: as before
        start = _expected(state.parameters, table.features[table.starts], target[table.starts]).mean()
        return (state, loss), (loss, start)

    parameters = _initial(begin, program.sizes)
    with lenient_promotion():
        fresh = _Training(parameters, OPTIMIZER.init(parameters), jnp.int32(0), jnp.int32(0), jnp.zeros(()))
    points = jnp.arange(TRACE, dtype=jnp.int32)
    (state, _), (loss, start) = jax.lax.scan(one_point, (fresh, jnp.zeros(())), points)
    error, value = _errors(state.parameters, table, target)
    pull = error[:count] if bound is None else jnp.clip(error[:count], -bound, bound)
    drift = jnp.abs(start[-1] - start[-1 - TRACE // 4])
    remainder = _remainder(pull, value[:count], table.discount[table.training].mean())
    return FittedQ(
        parameters=state.parameters,
        scales=table.scales,
        bellman_error=spread * jnp.sqrt((error[count:] ** 2).mean()),
        loss=loss * spread**2,
        start_value=table.scales.centre + spread * start,
        drift=spread * drift,
        remainder=spread * remainder,
        converged=jnp.maximum(drift, remainder) < schedule.tolerance,
    )


def _one_round(
    table: Table,
    target: Array,
    shuffled: Int[Array, " M"],
    schedule: _Schedule,
    batch: tuple[int, Float[Array, ""] | None],
    index: Int[Array, ""],
    state: _Training,
) -> _Training:
    """Steps that share one target network, which is the network at the beginning of the round.

    `batch` is the size of a batch, and Huber's threshold if it is used.
    """
    before, (size, bound), count = state.parameters, batch, len(table.training)
    steps, interval = schedule.steps, schedule.interval

    def one_step(step: Array, state: _Training) -> _Training:
        row = jax.lax.dynamic_slice(shuffled, (state.position,), (size,))
        following = target[row + 1]
        if following.ndim == 3:
            draw = state.passes % following.shape[1]
            following = jax.lax.dynamic_slice_in_dim(following, draw, 1, axis=1)
        label = _backup(before, table, row, following)
        inputs = table.features[row], table.action[row], label
        loss, gradient = jax.value_and_grad(_loss)(state.parameters, *inputs, bound)
        with lenient_promotion():
            change, optimizer_state = OPTIMIZER.update(gradient, state.optimizer)
        rate = schedule.learning_rate * _decay(step, steps)
        parameters = jax.tree.map(lambda leaf, by: leaf - rate * by, state.parameters, change)
        reached = state.position + size
        return _Training(
            parameters, optimizer_state, reached % count, state.passes + reached // count, state.loss + loss
        )

    return jax.lax.fori_loop(index * interval, jnp.minimum((index + 1) * interval, steps), one_step, state)


def _remainder(pull: Float[Array, " K"], value: Float[Array, " K"], discount: Float[Array, ""]) -> Float[Array, ""]:
    """|mean pull| / (1 − discount) + |cov(pull, Q)| / std(Q), with the pull (the clipped error) as the gradient."""
    centred = value - value.mean()
    return jnp.abs(pull.mean()) / (1 - discount) + jnp.abs((pull * centred).mean()) / (centred.std() + 1e-12)


def _decay(step: Int[Array, ""], steps: Int[Array, ""]) -> Float[Array, ""]:
    """The step size as a share of the first one."""
    done = step.astype(jnp.float32) / steps.astype(jnp.float32)
    return jnp.clip(1 - (1 - LAST) * (done - KEPT) / (1 - KEPT), LAST, 1.0)


def _backup(parameters: Layers, table: Table, row: Int[Array, " B"], following: Array) -> Float[Array, " B"]:
    """The regression target r + discount · V(s′), with V from the policy's actions at s′; standardised."""
    return table.reward[row] + table.discount[row] * _expected(parameters, table.features[row + 1], following)


def _errors(parameters: Layers, table: Table, target: Array) -> tuple[Float[Array, " K_H"], Float[Array, " K_H"]]:
    """Backup minus value, and value, of training and then held-out rows; in blocks, since there may be millions."""
    chosen = jnp.concatenate([table.training, table.held_out])
    size = min(BLOCK, len(chosen))
    padded = jnp.pad(chosen, (0, -len(chosen) % size)).reshape(-1, size)

    def one_block(row: Int[Array, " B"]) -> tuple[Array, Array]:
        value = _value(parameters, table.features[row], table.action[row])
        return _backup(parameters, table, row, target[row + 1]) - value, value

    error, value = jax.lax.map(one_block, padded)
    return error.reshape(-1)[: len(chosen)], value.reshape(-1)[: len(chosen)]


def _loss(
    parameters: Layers, inputs: Array, action: Array, label: Array, bound: Float[Array, ""] | None
) -> Float[Array, ""]:
    """Mean squared error; with a bound, Huber's loss: e² / 2 up to the bound, and its tangent beyond it."""
    error = label - _value(parameters, inputs, action)
    if bound is None:
        return jnp.mean(error**2)
    size = jnp.abs(error)
    inside = jnp.minimum(size, bound)
    return jnp.mean(inside * (size - inside / 2))


def _value(parameters: Layers, inputs: Float[Array, "B F"], action: Array) -> Float[Array, " B"]:
    """Standardised Q of one action for each row of features."""
    if action.ndim == 2:
        return _forward(parameters, jnp.concatenate([inputs, action], axis=1))[:, 0]
    values = _forward(parameters, inputs)
    return (values * jax.nn.one_hot(action, values.shape[1], dtype=values.dtype)).sum(axis=1)


def _expected(parameters: Layers, inputs: Float[Array, "B F"], actions: Array) -> Float[Array, " B"]:
    """Standardised V from probabilities [B, A] or draws [B, S, D]."""
    if actions.ndim == 2:
        return (_forward(parameters, inputs) * actions).sum(axis=1)
    count, samples = actions.shape[:2]
    repeated = jnp.repeat(inputs, samples, axis=0)
    return _value(parameters, repeated, actions.reshape(count * samples, -1)).reshape(count, samples).mean(axis=1)


def _forward(parameters: Layers, x: Float[Array, "B in"]) -> Float[Array, "B out"]:
    *hidden, (weight, bias) = parameters
    for inner, offset in hidden:
        x = jax.nn.relu(x @ inner + offset[None])
    return x @ weight + bias[None]


def _initial(key: Key, sizes: tuple[int, ...]) -> Layers:
    """He-normal weights; zeros in the last layer, so that every value starts at the centre.

    Not orthogonal: a QR decomposition inside a mapped program can deadlock on a CPU.
    """
    layers = []
    for one, (above, below) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        layers.append((jax.random.normal(one, (above, below)) * (2 / above) ** 0.5, jnp.zeros(below)))
    return (*layers[:-1], (jnp.zeros(sizes[-2:]), jnp.zeros(sizes[-1])))
