"""The two networks of DualDICE, and their features at logged steps.

    min over ν, max over ζ:   E_D[ζ(s, a) (ν(s, a) − γ E_{a′ ~ π} ν(s′, a′)) − ζ(s, a)²/2] − c E[ν(s_0, a_0)]

has its saddle at ζ = c ρ/d^D, the ratio of the policy's discounted visits to those of the log (Nachum, Chow, Dai & Li, 2019,
"DualDICE: Behavior-agnostic estimation of discounted stationary distribution corrections"). Gradient steps on both at once
learn the hidden layers. What they compute is not the estimate: `evarl.ope.dualdice` solves for the last layers exactly.

Programs see batches and blocks of fixed sizes, so that one compilation serves logs of all lengths.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from evarl.ope.fqe_table import Scales, Table
from evarl.ope.settings import DICEConfig
from evarl.worlds.world import Key, lenient_promotion

CHUNK = 50
"""Gradient steps in one call of the compiled program."""
BLOCK = 1024
"""Rows whose features are computed at once."""


class Rows(NamedTuple):
    """Rows of a log: each step, and after the steps of each trajectory its final observation."""

    features: Float[np.ndarray, "R F"]
    action: Float[np.ndarray, "R D"]
    """Standardised, or one-hot if discrete; meaningless at final observations."""
    choices: Float[np.ndarray, "R K D"] | Float[np.ndarray, "1 K D"]
    """Actions of the policy: draws, or one row with all discrete ones."""
    chances: Float[np.ndarray, "R K"]
    """Their probabilities."""

    @classmethod
    def of(cls, table: Table, target: Float[Array, "R ..."]) -> "Rows":
        """Rows of a table, with the policy's probabilities [R, A] or draws [R, S, D] there."""
        action = np.asarray(table.action)
        if table.scales.action is None:
            action = np.eye(target.shape[1], dtype=np.float32)[action]
        return cls(table.dense(), action, *as_choices(table.scales, target))

    def policy(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, actions of the policy and their probabilities at some rows, of any shape."""
        shape = (*np.shape(rows), *self.choices.shape[1:])
        at = self.choices[rows] if len(self.choices) > 1 else np.broadcast_to(self.choices[0], shape)
        return self.features[rows], at, self.chances[rows]


def as_choices(scales: Scales, target: Float[Array, "B ..."]) -> tuple[np.ndarray, np.ndarray]:
    """The policy's actions and their probabilities [B, K], from probabilities [B, A] or draws [B, S, D]."""
    if scales.action is None:
        return np.eye(target.shape[1], dtype=np.float32)[None], np.asarray(target)
    draws = np.asarray(scales.actions(target))
    return draws, np.full(draws.shape[:2], 1.0 / draws.shape[1], np.float32)


class Network(nn.Module):
    """Hidden layers over state and action; their features, and one number from these."""

    hidden_sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, state: Float[Array, "*B F"], action: Float[Array, "*B D"]) -> tuple[Array, Float[Array, "*B"]]:
        """Features [*B, H] and outputs."""
        x = jnp.concatenate([state, action], axis=-1)
        for width in self.hidden_sizes:
            x = nn.swish(nn.Dense(width)(x))
        return x, nn.Dense(1, kernel_init=nn.initializers.zeros)(x)[..., 0]


class _Batch(NamedTuple):
    """Logged steps, what follows them, and start states; [CHUNK, B, ...]."""

    here: tuple[Array, Array]
    following: tuple[Array, Array, Array]
    start: tuple[Array, Array, Array]
    discount: Array


class Training(NamedTuple):
    """Both networks while they are trained."""

    parameters: tuple
    optimizer: optax.OptState


class Networks:
    """The networks ν and ζ on one log."""

    def __init__(self, config: DICEConfig, table: Table, rows: Rows, key: Key):
        self._config, self._rows = config, rows
        self._moves, self._starts = np.asarray(table.training), np.asarray(table.starts)
        self._discount = np.asarray(table.discount)
        self.scale = float(1.0 - self._discount[self._moves].mean())
        """c, of the order of one over the number of steps that matter."""
        apart, drawn = jax.random.split(key)
        self._generator = np.random.default_rng(np.asarray(jax.random.key_data(drawn)).tolist())
        self._program = _program(config.hidden_sizes)
        self.state: Training = self._program.initial(apart, rows.features[:1], rows.action[:1])

    def train(self, first: int, last: int) -> None:
        """Gradient steps from one number to another."""
        for begin in range(first, last, CHUNK):
            # the same program for the last few steps: their step size beyond the last is 0
            steps = np.arange(begin, begin + CHUNK)
            rate = self._config.learning_rate * np.clip(1.0 - steps / self._config.steps, 0.0, 1.0)
            rate = np.where(steps < last, rate, 0.0).astype(np.float32)
            self.state = self._program.train(self.state, self._batches(), jnp.asarray(rate), jnp.float32(self.scale))

    def logged(self, rows: np.ndarray) -> tuple[Float[np.ndarray, "B H"], Float[np.ndarray, "B H"]]:
        """Features of ν and of ζ at logged steps."""
        inputs = self._rows.features[rows], self._rows.action[rows]
        found = _in_blocks(partial(self._program.logged, self.state.parameters), inputs)
        return found[0], found[1]

    def expected(self, rows: Rows, chosen: np.ndarray) -> Float[np.ndarray, "B H"]:
        """Expectations of the features of ν under the policy at some rows."""
        return _in_blocks(partial(self._program.expected, self.state.parameters), rows.policy(chosen))[0]

    def _batches(self) -> _Batch:
        size = (CHUNK, self._config.batch_size)
        move = self._generator.choice(self._moves, size)
        start = self._generator.choice(self._starts, size)
        here = self._rows.features[move], self._rows.action[move]
        parts: Any = here, self._some(move + 1), self._some(start), self._discount[move]
        return _Batch(*jax.tree.map(jnp.asarray, parts))

    def _some(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The policy at these rows: all discrete actions, or one of the draws, which is unbiased since ν enters linearly."""
        if len(self._rows.choices) == 1:
            return self._rows.policy(rows)
        drawn = self._rows.choices[rows, self._generator.integers(self._rows.choices.shape[1], size=rows.shape)]
        return self._rows.features[rows], drawn[..., None, :], np.ones((*rows.shape, 1), np.float32)


class _Program:
    """Compiled functions of networks of one size."""

    def __init__(self, hidden_sizes: tuple[int, ...]):
        self._network = Network(hidden_sizes)
        self._optimizer = optax.scale_by_adam(b1=0.5)
        self.train = jax.jit(self._train)
        self.logged = jax.jit(self._logged)
        self.expected = jax.jit(self._expected)

    def initial(self, key: Key, state: np.ndarray, action: np.ndarray) -> Training:
        keys = jax.random.split(key)
        parameters = tuple(self._network.init(one, jnp.asarray(state), jnp.asarray(action)) for one in keys)
        with lenient_promotion():
            return Training(parameters, self._optimizer.init(parameters))

    def _objective(self, parameters: tuple, batch: _Batch, scale: Float[Array, ""]) -> Float[Array, ""]:
        """Of the minimum over ν and the maximum over ζ, with ν in units of 1/c."""
        nu, zeta = parameters
        _, value = self._apply(nu, *batch.here)
        _, weight = self._apply(zeta, *batch.here)
        weight = weight + 1.0  # the networks begin where the policy is that of the log
        change = (value - batch.discount * self._mean(nu, batch.following)) / scale
        return (weight * change - 0.5 * weight**2).mean() - self._mean(nu, batch.start).mean()

    def _mean(self, nu: dict, policy: tuple[Array, Array, Array]) -> Float[Array, " B"]:
        return (self._outputs(nu, policy)[1] * policy[2]).sum(axis=1)

    def _outputs(self, nu: dict, policy: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """Features [B, K, H] and outputs [B, K] for the policy's actions."""
        state, choices, _ = policy
        state = jnp.broadcast_to(state[:, None], (*choices.shape[:2], state.shape[-1]))
        return self._apply(nu, state, choices)

    def _apply(self, parameters: Any, state: Array, action: Array) -> tuple[Array, Array]:
        """Features and outputs of one of the networks."""
        found: Any = self._network.apply(parameters, state, action)
        return found[0], found[1]

    def _train(self, begun: Training, batches: _Batch, rates: Float[Array, " C"], scale: Float[Array, ""]) -> Training:
        def one_step(state: Training, now: tuple[_Batch, Array]) -> tuple[Training, None]:
            batch, rate = now
            down, up = jax.grad(self._objective)(state.parameters, batch, scale)
            gradient = (down, jax.tree.map(jnp.negative, up))
            with lenient_promotion():
                change, optimizer = self._optimizer.update(gradient, state.optimizer)
            parameters = jax.tree.map(lambda leaf, by: leaf - rate * by, state.parameters, change)
            return Training(parameters, optimizer), None

        return jax.lax.scan(one_step, begun, (batches, rates))[0]

    def _logged(self, parameters: tuple, state: Array, action: Array) -> tuple[Array, Array]:
        return self._apply(parameters[0], state, action)[0], self._apply(parameters[1], state, action)[0]

    def _expected(self, parameters: tuple, state: Array, choices: Array, chances: Array) -> tuple[Array]:
        features, _ = self._outputs(parameters[0], (state, choices, chances))
        return ((features * chances[..., None]).sum(axis=1),)


@cache
def _program(hidden_sizes: tuple[int, ...]) -> _Program:
    return _Program(hidden_sizes)


def _in_blocks(function: Callable, inputs: tuple[np.ndarray, ...]) -> list[Float[np.ndarray, "B _"]]:
    """Results of a function of blocks of one size, the last one padded, as float64."""
    count, found = len(inputs[0]), []
    for first in range(0, count, BLOCK):
        parts = [part[first : first + BLOCK] for part in inputs]
        padded = [np.pad(part, ((0, BLOCK - len(part)), *((0, 0),) * (part.ndim - 1))) for part in parts]
        found.append([np.asarray(out, np.float64)[: len(parts[0])] for out in function(*map(jnp.asarray, padded))])
    return [np.concatenate(column) for column in zip(*found, strict=True)]
