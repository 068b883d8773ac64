"""The compiled programs of fitted Q evaluation: initial weights, training, and values at rows of the log.

All take arrays that are padded to a class of sizes, and the true numbers of rows as arguments, so that a log of another size
needs no other program. Rows of the padding are never read.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evarl.ope.fqe_network import Coded, Inputs, Layers, action_value, expected, forward, taken
from evarl.ope.fqe_table import Table
from evarl.ope.shapes import padded, shuffled, size_class, sorts
from evarl.worlds.world import Key

TRACE = 20
"""Points of the trace of training."""
TARGETS = 8192
"""Targets that are computed at once, at most."""
BLOCK = 256
"""Rows of the log that are evaluated at once, outside of training."""
KEPT, LAST = 0.5, 0.02
"""The step size is constant for the share KEPT of the steps and then decays linearly to the share LAST of itself."""
MOMENTS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's decay rates and the least denominator."""

Points = tuple[tuple[Float[Array, "trace _ _"], Float[Array, "trace _"]], ...]
"""The same after each point of training."""


class Rows(NamedTuple):
    """A table, padded to a class of sizes."""

    features: Float[Array, "P F"]
    flags: Bool[Array, "P L"] | None
    code: tuple[Int[Array, " P"], Float[Array, " L"]] | None
    action: Array
    reward: Float[Array, " P"]
    discount: Float[Array, " P"]
    trace: Float[Array, " P"] | None
    """discount · c of the next step, by which its temporal-difference error enters the target; None for one-step targets."""
    target: Array
    """The policy's actions: probabilities [P, A] or standardised draws [P, S, D]."""

    def inputs(self, row: Int[Array, " B"]) -> "Inputs":
        """Features of rows."""
        if self.flags is not None:
            return jnp.concatenate([jnp.where(self.flags[row], 1.0, 0.0), self.features[row]], axis=1)
        if self.code is None:
            return self.features[row]
        index, scale = self.code
        return Coded(index[row], scale[index[row]], self.features[row])


class Schedule(NamedTuple):
    """Settings that a compiled program takes as arguments."""

    steps: Int[Array, ""]
    interval: Int[Array, ""]
    """Steps between two copies into the target network."""
    learning_rate: Float[Array, ""]
    bound: Float[Array, ""]
    """Huber's threshold, if it is used: 1 in raw units."""


class Program(NamedTuple):
    """Settings that need a program of their own."""

    sizes: tuple[int, ...]
    batch_size: int
    huber: bool
    window: int
    """Steps after the first whose errors enter a target; 0 for one-step targets."""
    chunk: int
    """Steps whose targets are computed at once."""


class Training(NamedTuple):
    """The state of training."""

    parameters: Layers
    moments: tuple[Layers, Layers]
    """Adam's running means of gradients and of their squares."""
    position: Int[Array, ""]
    """In the shuffled training transitions, which are passed through repeatedly: a pass weights all of them equally, where
    independent draws would add noise that accumulates over backups."""
    passes: Int[Array, ""]
    """Completed passes; each uses the next of the policy's draws."""
    loss: Float[Array, ""]
    """Sum since the last point of the trace."""


def padded_rows(table: Table, target: Array | np.ndarray, trace: Float[np.ndarray, " R"] | None, room: int = 0) -> Rows:
    """The arrays of a table in their class of sizes, or that of `room` rows if these are more; `target` may be traced.

    They are put on the device here, once, and not by each of the programs that read them.
    """
    size = size_class(max(len(table.reward), room))
    book: Any = None if table.code is None else table.code[1]
    found = Rows(
        features=padded(table.features, size),
        flags=None if table.flags is None else padded(table.flags, size),
        code=None if table.code is None else (padded(table.code[0], size), book),
        action=padded(table.action, size),
        reward=padded(table.reward, size),
        discount=padded(table.discount, size),
        trace=None if trace is None else padded(trace, size),
        target=padded(target, size),
    )
    return jax.device_put(found)


def training_order(rows: Int[np.ndarray, " K"], size: int) -> tuple[Int[np.ndarray, " P"], np.int32, np.int32]:
    """Padded rows of training transitions, their number, and how often to sort in order to shuffle them."""
    return padded(rows, size), np.int32(len(rows)), np.int32(sorts(len(rows)))


@partial(jax.jit, static_argnames="program")
def train(
    beginning: tuple[Layers, Key],
    rows: Rows,
    order: tuple[Array, Array, Array],
    schedule: Schedule,
    program: Program,
) -> tuple[Points, Float[Array, " trace"]]:
    """Parameters [TRACE, ...] at each point of training, and the mean loss between points; from initial weights and a key."""
    parameters, shuffle = beginning
    training, count, rounds = order
    shuffled_rows = training[shuffled(shuffle, count, rounds, len(training))]
    one_round = partial(_one_round, rows, (shuffled_rows, count), schedule, program)
    steps, interval = schedule.steps, schedule.interval
    all_rounds = (steps + interval - 1) // interval

    def one_point(carry: tuple[Training, Array], point: Array) -> tuple[tuple[Training, Array], tuple[Layers, Array]]:
        first, last = (-(-number * all_rounds // TRACE) for number in (point, point + 1))
        state = jax.lax.fori_loop(first, last, one_round, carry[0]._replace(loss=jnp.zeros(())))
        made = (jnp.minimum(last * interval, steps) - jnp.minimum(first * interval, steps)).astype(jnp.float32)
        loss = jnp.where(made > 0, state.loss / jnp.maximum(made, 1.0), carry[1])  # fewer rounds than points: as before
        return (state, loss), (state.parameters, loss)

    nothing = jax.tree.map(jnp.zeros_like, parameters)
    zero = jnp.int32(0)
    fresh = Training(parameters, (nothing, nothing), zero, zero, jnp.zeros(()))
    return jax.lax.scan(one_point, (fresh, jnp.zeros(())), jnp.arange(TRACE, dtype=jnp.int32))[1]


def _one_round(
    rows: Rows,
    order: tuple[Int[Array, " P"], Int[Array, ""]],
    schedule: Schedule,
    program: Program,
    index: Int[Array, ""],
    state: Training,
) -> Training:
    """Steps that share one target network, which is the network at the beginning of the round.

    Their targets are therefore computed for many steps at once, which is faster than step by step.
    """
    first = index * schedule.interval
    last = jnp.minimum(first + schedule.interval, schedule.steps)

    def one_chunk(number: Array, carry: Training) -> Training:
        begin = first + number * program.chunk
        end = jnp.minimum(begin + program.chunk, last)
        batches, loss = _batches(state.parameters, rows, order, carry, program), partial(_loss, schedule, program)

        def one_step(step: Array, now: Training) -> Training:
            batch = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, step - begin, keepdims=False), batches)
            found, gradient = jax.value_and_grad(loss)(now.parameters, *batch)
            rate = schedule.learning_rate * _decay(step, schedule.steps)
            parameters, moments = adam(now, gradient, rate, step + 1)
            return now._replace(parameters=parameters, moments=moments, loss=now.loss + found)

        done = jax.lax.fori_loop(begin, end, one_step, carry)
        reached = carry.position + (end - begin) * program.batch_size
        return done._replace(position=reached % order[1], passes=carry.passes + reached // order[1])

    return jax.lax.fori_loop(0, (last - first + program.chunk - 1) // program.chunk, one_chunk, state)


def _batches(
    target_network: Layers,
    rows: Rows,
    order: tuple[Int[Array, " P"], Int[Array, ""]],
    state: Training,
    program: Program,
) -> tuple[Array | Coded, Array, Float[Array, "C B"]]:
    """Inputs, actions and targets of the next steps of a chunk."""
    (shuffled_rows, count), shape = order, (program.chunk, program.batch_size)
    place = state.position + jnp.arange(program.chunk * program.batch_size, dtype=jnp.int32)
    row = shuffled_rows[place % count]
    begins = jnp.repeat(place[:: program.batch_size], program.batch_size)
    passes = state.passes + begins // count  # a batch uses the draws of the pass in which it begins
    if program.window:
        label = traced_backup(target_network, rows, row, program.window, passes)
    else:
        label = backup(target_network, rows, row, passes)
    action = rows.action[row]
    inputs = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), rows.inputs(row))
    return inputs, action.reshape(*shape, *action.shape[1:]), label.reshape(shape)


def adam(
    state: Training, gradient: Layers, rate: Float[Array, ""], made: Int[Array, ""]
) -> tuple[Layers, tuple[Layers, Layers]]:
    """Parameters and moments after one step of Adam (Kingma & Ba, 2015), the `made`-th."""
    scale, power = (-jnp.expm1(made.astype(jnp.float32) * np.float32(np.log(decay))) for decay in MOMENTS)
    # Two numbers that are computed once, and not, as by a fused loop, again for each parameter.
    size, root = jax.lax.optimization_barrier((rate / scale, 1 / jnp.sqrt(power)))
    mean = jax.tree.map(lambda old, new: MOMENTS[0] * old + (1 - MOMENTS[0]) * new, state.moments[0], gradient)
    square = jax.tree.map(lambda old, new: MOMENTS[1] * old + (1 - MOMENTS[1]) * new**2, state.moments[1], gradient)

    def moved(leaf: Array, first: Array, second: Array) -> Array:
        return leaf - size * first / (jnp.sqrt(second) * root + EPSILON)

    return jax.tree.map(moved, state.parameters, mean, square), (mean, square)


def _decay(step: Int[Array, ""], steps: Int[Array, ""]) -> Float[Array, ""]:
    """The step size as a share of the first one."""
    done = step.astype(jnp.float32) / steps.astype(jnp.float32)
    return jnp.clip(1 - (1 - LAST) * (done - KEPT) / (1 - KEPT), LAST, 1.0)


def backup(parameters: Layers, rows: Rows, row: Int[Array, " B"], passes: Int[Array, " B"]) -> Float[Array, " B"]:
    """The regression target r + discount · V(s′), with V from the policy's actions at s′; standardised.

    Of several draws of continuous actions, that of the pass is used.
    """
    actions = rows.target[row + 1]
    if actions.ndim == 3:
        actions = jnp.take_along_axis(actions, (passes % actions.shape[1])[:, None, None], axis=1)
    following = expected(parameters, rows.inputs(row + 1), actions)
    return rows.reward[row] + rows.discount[row] * following


def traced_backup(
    parameters: Layers, rows: Rows, row: Int[Array, " B"], window: int, passes: Int[Array, " B"]
) -> Float[Array, " B"]:
    """The regression target G_t = B_t + discount_t c_{t+1} (G_{t+1} − Q_{t+1}), and G = B, the backup, after `window` steps."""
    many = row[:, None] + jnp.arange(window + 1, dtype=jnp.int32)[None]
    flat = jnp.minimum(many.reshape(-1), len(rows.reward) - 2)  # beyond the end of a trajectory the trace is 0
    each = backup(parameters, rows, flat, jnp.repeat(passes, window + 1)).reshape(many.shape)
    value = action_value(parameters, rows.inputs(flat), rows.action[flat]).reshape(many.shape)
    assert rows.trace is not None
    trace = rows.trace[flat].reshape(many.shape)
    found = each[:, window]
    for place in reversed(range(window)):
        found = each[:, place] + trace[:, place] * (found - value[:, place + 1])
    return found


@jax.jit
def row_values(
    points: Points, point: Int[Array, ""], rows: Rows, chosen: Int[Array, " P"], count: Int[Array, ""]
) -> tuple[Float[Array, " P"], Float[Array, " P"]]:
    """Standardised Q of the logged action and V at the first `count` of the chosen rows, after one point of training.

    In blocks, since there may be millions of rows.
    """
    parameters = jax.tree.map(lambda leaf: leaf[point], points)
    size = min(BLOCK, len(chosen))

    def one_block(index: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        row = jax.lax.dynamic_slice(chosen, (index * size,), (size,))
        inputs, action, target = rows.inputs(row), rows.action[row], rows.target[row]
        if target.ndim == 2:
            values = forward(parameters, inputs)
            both = taken(values, action), (values * target).sum(axis=1)
        else:
            both = action_value(parameters, inputs, action), expected(parameters, inputs, target)
        at = (index * size,)
        return jax.lax.dynamic_update_slice(found[0], both[0], at), jax.lax.dynamic_update_slice(found[1], both[1], at)

    nothing = jnp.zeros(len(chosen))
    return jax.lax.fori_loop(0, (count + size - 1) // size, one_block, (nothing, nothing))


def _loss(
    schedule: Schedule, program: Program, parameters: Layers, inputs: Inputs, action: Array, label: Array
) -> Float[Array, ""]:
    """Mean squared error; or Huber's loss: e² / 2 up to the bound, and its tangent beyond it."""
    error = label - action_value(parameters, inputs, action)
    if not program.huber:
        return jnp.mean(error**2)
    size = jnp.abs(error)
    inside = jnp.minimum(size, schedule.bound)
    return jnp.mean(inside * (size - inside / 2))
