"""A log as a table for fitted Q evaluation: one standardised row for each observation, in the order of the steps."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Shaped

from evarl.agents.networks import flat_features
from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.worlds.world import Key

BOUND = 10.0
"""Limit of standardised features: a flag that is set once in a million rows would be 1000 deviations large."""
CHUNK = 16_384
"""Observations that a policy is applied to at once."""


class Scales(struct.PyTreeNode):
    """Scales between raw units and those of the network, in which inputs and values have mean 0 and deviation 1."""

    observation: tuple[Float[Array, " F"], Float[Array, " F"]]
    """Mean and deviation of each entry of an observation, with t / T as the last one if time is a feature."""
    action: tuple[Float[Array, " D"], Float[Array, " D"]] | None
    """The same of continuous actions."""
    centre: Float[Array, ""]
    """The constant that is its own backup on the log: c = mean r + mean discount · c."""
    spread: Float[Array, ""]
    """Standard deviation of the logged returns to go, with c as the value after a cut."""
    horizon: int | None = struct.field(pytree_node=False)
    """T, if time is a feature."""

    def features(self, observation: Array, time: Int[Array, " B"] | None = None) -> Float[Array, "B F"]:
        """Standardised features of raw observations [B, ...] at these steps (0 when not given)."""
        flat = flat_features(jnp.asarray(observation), observation.ndim - 1)
        if self.horizon is not None:
            steps = jnp.zeros(len(flat)) if time is None else jnp.asarray(time).astype(jnp.float32)
            flat = jnp.concatenate([flat, steps[:, None] / self.horizon], axis=1)
        return _standardised(flat, self.observation)

    def actions(self, action: Array) -> Float[Array, "*B D"]:
        """Standardised continuous actions."""
        assert self.action is not None
        return _standardised(jnp.asarray(action), self.action)


class Table(struct.PyTreeNode):
    """The log as rows: the steps of each trajectory and then its final observation, so that row + 1 is the next state."""

    features: Float[Array, "R F"]
    action: Array
    """[R] integers or [R, D] standardised; meaningless at final observations."""
    reward: Float[Array, " R"]
    """(r + (discount − 1) · centre) / spread, the reward in the backup of standardised values."""
    discount: Float[Array, " R"]
    """γ, or 0 where the value ends."""
    training: Int[Array, " K"]
    """Rows of the training transitions."""
    held_out: Int[Array, " H"]
    """Rows of the held-out transitions, all those of some trajectories."""
    starts: Int[Array, " N"]
    """First rows of the trajectories."""
    scales: Scales


def rows(data: LoggedData) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " R"]]:
    """Trajectory and step of each row of a table; a trajectory of L steps has L + 1 rows, the last its final observation.

    >>> step = np.zeros((2, 2))
    >>> rows(LoggedData.from_arrays(observation=step, action=step, reward=step, log_prob=step,
    ...     mask=np.array([[1, 0], [1, 1]]), final_observation=np.zeros(2)))
    (array([0, 0, 1, 1, 1]), array([0, 1, 0, 1, 2]))
    """
    lengths = np.asarray(data.mask).sum(axis=1)
    trajectory = np.repeat(np.arange(len(lengths)), lengths + 1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    return trajectory, np.arange(len(trajectory)) - first[trajectory]


def row_observations(data: LoggedData) -> Shaped[np.ndarray, "R ..."]:
    """The raw observations of a table's rows."""
    trajectory, step = rows(data)
    final = step == np.asarray(data.mask).sum(axis=1)[trajectory]
    seen = np.asarray(data.observation)[trajectory, np.where(final, 0, step)]
    seen[final] = np.asarray(data.final_observation)
    return seen


def prepare(config: FQEConfig, data: LoggedData, discount: float, key: Key) -> Table:
    """The table of a log, with some trajectories held out at random.

    The value ends at terminated steps; under greedy-huber also at truncated ones; with time as a feature, at step T.
    """
    config.validate()
    if not 0 <= discount <= 1:
        raise InputError(f"discount: {discount} is not allowed; must be from 0 to 1")
    trajectory, step = rows(data)
    moves = step < np.asarray(data.mask).sum(axis=1)[trajectory]
    at = (trajectory, np.where(moves, step, 0))
    ends = np.asarray(data.terminated)[at]
    if config.convention == "greedy-huber":
        ends = ends | np.asarray(data.truncated)[at]
    if config.time_feature:
        ends = ends | (step == data.length - 1)
    discounts = np.where(ends, 0.0, discount)
    if discounts[moves].mean() == 1:
        raise InputError(
            "discount: 1 is not allowed where no step ends the value; must be below 1, or set fqe.time-feature"
        )
    rewards = np.where(moves, np.asarray(data.reward, np.float64)[at], 0.0)
    centre = rewards[moves].mean() / (1 - discounts[moves].mean())
    spread = _spread(np.where(moves, rewards, centre), discounts, moves, step)
    actions = np.asarray(data.action)[at]
    if not data.discrete:
        actions = actions.reshape(len(actions), -1)
    seen = row_observations(data)
    flat = seen.reshape(len(seen), -1).astype(np.float32)
    units = [(np.zeros(flat.shape[1]), np.ones(flat.shape[1])) if seen.dtype == bool else _moments(flat)]
    if config.time_feature:
        clock = (step / data.length).astype(np.float32)[:, None]
        flat = np.concatenate([flat, clock], axis=1)
        units.append(_moments(clock))
    scales = Scales(
        observation=(_single(np.concatenate([u[0] for u in units])), _single(np.concatenate([u[1] for u in units]))),
        action=None if data.discrete else jax.tree.map(_single, _moments(actions[moves])),
        centre=_single(centre),
        spread=_single(spread),
        horizon=data.length if config.time_feature else None,
    )
    apart = _held_out(config, data.trajectories, key)[trajectory]
    return Table(
        features=_standardised(jnp.asarray(flat), scales.observation),
        action=jnp.asarray(actions) if data.discrete else scales.actions(_single(actions)),
        reward=_single((rewards + (discounts - 1) * centre) / spread),
        discount=_single(discounts),
        training=jnp.asarray(np.flatnonzero(moves & ~apart), jnp.int32),
        held_out=jnp.asarray(np.flatnonzero(moves & apart), jnp.int32),
        starts=jnp.asarray(np.flatnonzero(step == 0), jnp.int32),
        scales=scales,
    )


def target_actions(
    config: FQEConfig, data: LoggedData, policy: TargetPolicy, key: Key, at: Shaped[np.ndarray, "B ..."] | None = None
) -> Float[Array, "B ..."]:
    """The policy's actions `at` a batch of observations, by default the R rows of the log: all that fitting needs of it.

    Discrete actions: probabilities [B, A]; under greedy-huber, 1 for the most probable. Continuous actions: draws [B, S, D];
    under greedy-huber the mode alone, [B, 1, D].
    """
    observation = row_observations(data) if at is None else at

    def ask(function: Callable[[Array], Array]) -> np.ndarray:
        return in_blocks(lambda block: function(jnp.asarray(observation[block])), len(observation))

    greedy = config.convention == "greedy-huber"
    if data.discrete:
        if policy.probabilities is None:
            raise InputError("policy.probabilities: are missing; must be given for discrete actions")
        weights = ask(jax.jit(policy.probabilities))
        count = 1 + int(np.asarray(data.action)[np.asarray(data.mask)].max())
        if weights.ndim != 2 or weights.shape[1] < count:
            raise InputError(f"policy.probabilities: have shape {weights.shape}; must be [B, A], A at least {count}")
        if not ((weights >= 0).all() and np.allclose(weights.sum(axis=1), 1.0, atol=1e-3)):
            raise InputError(
                "policy.probabilities: are below 0 or do not sum to 1; must be probabilities, not logarithms"
            )
        if greedy:
            return jax.nn.one_hot(weights.argmax(axis=1), weights.shape[1], dtype=jnp.float32)
        return _single(weights)
    keys = jax.random.split(key, config.action_samples)
    draws = [ask(jax.jit(policy.mode))] if greedy else [ask(partial(jax.jit(policy.sample), one)) for one in keys]
    return _single(np.stack([draw.reshape(len(observation), -1) for draw in draws], axis=1))


def in_blocks(function: Callable[[slice], Array], count: int) -> np.ndarray:
    """The results of a function of slices, concatenated; in blocks, since observations may be large."""
    return np.concatenate([np.asarray(function(slice(i, min(i + CHUNK, count)))) for i in range(0, count, CHUNK)])


def _standardised(raw: Float[Array, "*B F"], units: tuple[Array, Array]) -> Float[Array, "*B F"]:
    mean, deviation = (jnp.broadcast_to(unit, raw.shape) for unit in units)
    return jnp.clip((raw - mean) / deviation, -BOUND, BOUND)


def _single(array: np.ndarray | float) -> Float[Array, "..."]:
    return jnp.asarray(array, jnp.float32)


def _moments(raw: Float[np.ndarray, "R F"]) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """Mean and deviation of columns; the deviation of constant columns is set to 1."""
    mean = raw.mean(axis=0, dtype=np.float64)
    blocks = (raw[i : i + CHUNK] for i in range(0, len(raw), CHUNK))
    deviation = np.sqrt(sum(((block - mean) ** 2).sum(axis=0) for block in blocks) / len(raw))
    return mean, np.where(deviation > 1e-6 * np.abs(raw).max(axis=0), deviation, 1.0)


def _spread(
    rewards: Float[np.ndarray, " R"],
    discounts: Float[np.ndarray, " R"],
    moves: Bool[np.ndarray, " R"],
    step: Int[np.ndarray, " R"],
) -> float:
    """Deviation of the returns to go Gₜ = rₜ + discountₜ Gₜ₊₁ (G = c at final observations), never close to 0."""
    going = np.array(rewards)
    by_step = np.argsort(np.where(moves, step, -1), kind="stable")
    counts = np.bincount(step[moves])
    for here in reversed(np.split(by_step[len(step) - counts.sum() :], np.cumsum(counts)[:-1])):
        going[here] += discounts[here] * going[here + 1]
    spread = max(going[moves].std(), 1e-3 * np.abs(going[moves]).max())
    return spread if spread > 0 else 1.0


def _held_out(config: FQEConfig, trajectories: int, key: Key) -> Bool[np.ndarray, " N"]:
    """Which trajectories are held out."""
    count = max(1, round(config.held_out * trajectories)) if config.held_out else 0
    if count >= trajectories:
        raise InputError(
            f"fqe.held-out: {config.held_out} of {trajectories} trajectories leaves none for training; must be less"
        )
    apart = np.zeros(trajectories, bool)
    apart[np.asarray(jax.random.permutation(key, trajectories))[:count]] = True
    return apart
