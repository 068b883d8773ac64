"""Fitted Q evaluation: the values of a policy, by regression of the logged actions' values on their own backups.

    minimise over θ:  mean over logged (s, a, r, s′) of  (r + discount · E_{a′ ~ π_e(s′)} Q_θ̄(s′, a′) − Q_θ(s, a))²

with θ̄ a copy of θ that is renewed every few steps. The policy enters only through what it does at each logged
observation, which is computed beforehand, so one compiled program serves all policies and can be mapped over them.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_configuration import FQEConfig
from evarl.ope.fqe_table import Scales, Table, prepare, target_actions
from evarl.ope.policy import TargetPolicy
from evarl.worlds.third_party import lenient_promotion
from evarl.worlds.world import Key

TRACE = 20
"""Points of the training trace."""
BLOCK = 4096
"""Rows of the log at once, outside of training."""
KEPT, LAST = 0.5, 0.02
"""The step size is constant for this share of the steps and then falls in a line to that share of itself."""

Layers = tuple[tuple[Float[Array, "in out"], Float[Array, " out"]], ...]
"""Weights and biases."""


class FittedQ(struct.PyTreeNode):
    """A fitted Q function and how the fit went; all in raw units."""

    parameters: Layers
    scales: Scales
    bellman_error: Float[Array, ""]
    """Root of the mean squared r + discount · V(s′) − Q(s, a) on the held-out trajectories; NaN if there are none. In a
    random world even the true Q has some, the noise of the backup."""
    loss: Float[Array, " trace"]
    """Mean training loss over each twentieth of the steps."""
    start_value: Float[Array, " trace"]
    """Mean V over the trajectories' first observations, after each twentieth of the steps."""
    drift: Float[Array, ""]
    """How far the mean start value went in the last quarter of the steps."""
    remainder: Float[Array, ""]
    """Where values would still go: the mean pull of the loss on the training transitions times 1 / (1 − mean discount), the
    number of backups that a pull takes part in; and the pull on their deviations from their mean. At the minimum both are
    0. They see values that are on their way still, though the step size no longer lets them move, or never did."""
    converged: Bool[Array, ""]
    """Whether both are below the tolerance times the spread of the values."""

    @jax.jit
    def q_values(self, observation: Array, time: Int[Array, " B"] | None = None) -> Float[Array, "B A"]:
        """Q of all discrete actions at a batch of observations; `time` is the step, 0 when not given, if a feature."""
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
        """V for a batch of observations, given the policy's probabilities [B, A] there, or draws of its actions [B, S, D]."""
        if self.scales.action is not None:
            actions = self.scales.actions(actions)
        return self._raw(_expected(self.parameters, self.scales.features(observation, time), actions))

    def _raw(self, standardised: Array) -> Array:
        return self.scales.centre + self.scales.spread * standardised


def fit(config: FQEConfig, table: Table, target: Float[Array, "R ..."], key: Key) -> FittedQ:
    """Fit Q to one policy, given by what it does at each row: probabilities [R, A] or actions [R, S, D].

    Pure, and one compiled program whatever the policy, the key, the number of steps and their size. For many policies
    at once: `jax.vmap(partial(fit, config, table))(targets, keys)`.
    """
    config.validate()
    discrete = table.scales.action is None
    if target.ndim != (2 if discrete else 3) or target.shape[0] != table.features.shape[0]:
        wanted = "[R, A]" if discrete else "[R, S, D]"
        raise InputError(f"target: has shape {target.shape}; want {wanted} with R = {table.features.shape[0]}")
    inputs = table.features.shape[1] + (0 if discrete else table.action.shape[1])
    return _fit(
        table,
        target if discrete else table.scales.actions(target),
        key,
        jnp.int32(config.steps),
        jnp.int32(config.target_interval),
        jnp.float32(config.learning_rate),
        jnp.float32(config.tolerance),
        sizes=(inputs, *config.hidden_sizes, target.shape[1] if discrete else 1),
        batch_size=config.batch_size,
        huber=discrete and config.convention == "greedy-huber",
    )


def fit_policy(config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, key: Key) -> FittedQ:
    """Prepare a log, ask the policy about it, and fit."""
    apart, draw, train = jax.random.split(key, 3)
    table = prepare(config, data, discount, apart)
    return fit(config, table, target_actions(config, data, policy, draw), train)


def select(
    configs: Sequence[FQEConfig], data: LoggedData, policy: TargetPolicy, discount: float, key: Key
) -> tuple[int, tuple[FittedQ, ...]]:
    """Fit several configurations; the number of the one with the lowest held-out Bellman error, and all the fits.

    All hold out the same trajectories. Errors of unlike backups are not compared: convention, time and share are one.
    """
    if not configs:
        raise InputError("configs: there are none; want at least one")
    for name in ("convention", "time_feature", "held_out"):
        if len({getattr(config, name) for config in configs}) > 1:
            raise InputError(f"fqe.{name.replace('_', '-')}: differs between configurations whose errors are compared")
    if not configs[0].held_out:
        raise InputError("fqe.held-out: 0 is not allowed; want some trajectories to compare configurations on")
    fits = tuple(fit_policy(config, data, policy, discount, key) for config in configs)
    errors = jnp.stack([one.bellman_error for one in fits])
    return int(jnp.argmin(jnp.where(jnp.isnan(errors), jnp.inf, errors))), fits


class _Training(struct.PyTreeNode):
    """What changes from step to step."""

    parameters: Layers
    optimizer: optax.OptState
    position: Int[Array, ""]
    """In the shuffled training transitions, which are gone through again and again: a pass weighs all of them alike, where
    independent draws would add noise that the backups pile up."""
    passes: Int[Array, ""]
    """So far; each takes the next of the policy's draws."""
    loss: Float[Array, ""]
    """Sum since the last point of the trace."""


@partial(jax.jit, static_argnames=("sizes", "batch_size", "huber"))
def _fit(
    table: Table,
    target: Array,
    key: Key,
    steps: Int[Array, ""],
    interval: Int[Array, ""],
    learning_rate: Float[Array, ""],
    tolerance: Float[Array, ""],
    *,
    sizes: tuple[int, ...],
    batch_size: int,
    huber: bool,
) -> FittedQ:
    """The whole of training: rounds of `interval` steps, each against the network as it was when the round began."""
    spread, count = table.scales.spread, len(table.training)
    bound = 1 / spread if huber else None  # Huber's threshold is 1 in raw units
    rounds = (steps + interval - 1) // interval
    begin, shuffle = jax.random.split(key)
    shuffled = jax.random.permutation(shuffle, table.training)
    shuffled = jnp.concatenate([shuffled] * (1 + -(-batch_size // count)))  # so that a batch may begin at any of them
    optimizer = optax.scale_by_adam()

    def one_round(index: Array, state: _Training) -> _Training:
        before = state.parameters

        def one_step(step: Array, state: _Training) -> _Training:
            row = jax.lax.dynamic_slice(shuffled, (state.position,), (batch_size,))
            following = target[row + 1]
            if following.ndim == 3:
                draw = state.passes % following.shape[1]
                following = jax.lax.dynamic_slice_in_dim(following, draw, 1, axis=1)
            wanted = _backup(before, table, row, following)
            batch = table.features[row], table.action[row], wanted
            loss, gradient = jax.value_and_grad(_loss)(state.parameters, *batch, bound)
            with lenient_promotion():
                change, optimizer_state = optimizer.update(gradient, state.optimizer)
            rate = learning_rate * _schedule(step, steps)
            parameters = jax.tree.map(lambda leaf, by: leaf - rate * by, state.parameters, change)
            reached = state.position + batch_size
            return _Training(
                parameters, optimizer_state, reached % count, state.passes + reached // count, state.loss + loss
            )

        return jax.lax.fori_loop(index * interval, jnp.minimum((index + 1) * interval, steps), one_step, state)

    def one_point(carry: tuple[_Training, Array], point: Array) -> tuple[tuple[_Training, Array], tuple[Array, Array]]:
        first, last = (-(-number * rounds // TRACE) for number in (point, point + 1))
        state = jax.lax.fori_loop(first, last, one_round, carry[0].replace(loss=jnp.zeros(())))
        made = (jnp.minimum(last * interval, steps) - jnp.minimum(first * interval, steps)).astype(jnp.float32)
        loss = jnp.where(made > 0, state.loss / jnp.maximum(made, 1.0), carry[1])  # fewer rounds than points: as before
        start = _expected(state.parameters, table.features[table.starts], target[table.starts]).mean()
        return (state, loss), (loss, start)

    parameters = _initial(begin, sizes)
    with lenient_promotion():
        fresh = _Training(parameters, optimizer.init(parameters), jnp.int32(0), jnp.int32(0), jnp.zeros(()))
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
        converged=jnp.maximum(drift, remainder) < tolerance,
    )


def _remainder(pull: Float[Array, " K"], value: Float[Array, " K"], discount: Float[Array, ""]) -> Float[Array, ""]:
    """|mean pull| / (1 − discount) + |cov(pull, Q)| / std(Q)."""
    centred = value - value.mean()
    return jnp.abs(pull.mean()) / (1 - discount) + jnp.abs((pull * centred).mean()) / (centred.std() + 1e-12)


def _schedule(step: Int[Array, ""], steps: Int[Array, ""]) -> Float[Array, ""]:
    done = step.astype(jnp.float32) / steps.astype(jnp.float32)
    return jnp.clip(1 - (1 - LAST) * (done - KEPT) / (1 - KEPT), LAST, 1.0)


def _backup(parameters: Layers, table: Table, row: Int[Array, " B"], following: Array) -> Float[Array, " B"]:
    """What Q is to become, r + discount · V(s′), with V from what the policy does at s′; standardised."""
    return table.reward[row] + table.discount[row] * _expected(parameters, table.features[row + 1], following)


def _errors(parameters: Layers, table: Table, target: Array) -> tuple[Float[Array, " K_H"], Float[Array, " K_H"]]:
    """Backup less value, and value, of training and then held-out rows; block by block, since there may be millions."""
    chosen = jnp.concatenate([table.training, table.held_out])
    size = min(BLOCK, len(chosen))
    padded = jnp.pad(chosen, (0, -len(chosen) % size)).reshape(-1, size)

    def one_block(row: Int[Array, " B"]) -> tuple[Array, Array]:
        value = _value(parameters, table.features[row], table.action[row])
        return _backup(parameters, table, row, target[row + 1]) - value, value

    error, value = jax.lax.map(one_block, padded)
    return error.reshape(-1)[: len(chosen)], value.reshape(-1)[: len(chosen)]


def _loss(
    parameters: Layers, inputs: Array, action: Array, wanted: Array, bound: Float[Array, ""] | None
) -> Float[Array, ""]:
    """Mean squared error; with a bound, Huber's: e² / 2 up to the bound, and beyond it the tangent there."""
    error = wanted - _value(parameters, inputs, action)
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
    """He's normal weights; zeros in the last layer, so that every value starts at the centre.

    Not orthogonal ones: their QR inside a mapped program can deadlock on a CPU.
    """
    layers = []
    for one, (above, below) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        layers.append((jax.random.normal(one, (above, below)) * (2 / above) ** 0.5, jnp.zeros(below)))
    return (*layers[:-1], (jnp.zeros(sizes[-2:]), jnp.zeros(sizes[-1])))
