"""A log as a table for fitted Q evaluation: one standardised row for each observation, in the order of the steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Shaped

from evarl.agents.networks import flat_features
from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.policy import TargetPolicy
from evarl.ope.policy_programs import evaluated
from evarl.ope.settings import FQEConfig
from evarl.ope.shapes import CHUNK, in_blocks as in_blocks, permutation
from evarl.worlds.world import Key

BOUND = 10.0
"""Limit of standardised features: a flag that is set once in a million rows would be 1000 deviations large."""
MOST_LEVELS = 1024
"""Whole numbers of a larger range are magnitudes and not names of states."""
FEW_LEVELS = 16
"""Widths of one-hot codes are multiples of this, so that logs which lack some states share compiled programs."""


OFFSET = 3.0
"""Mean reward, in deviations of rewards, above which its part of the values is computed apart from the network."""


class Units(NamedTuple):
    """What turns standardised values into raw ones, in float64: a network has 24 bits, which an offset of rewards may use up."""

    centre: float
    spread: float
    offset: Float[np.ndarray, " T1"] | None
    """By step, the value of a constant reward m: Σ_{k < T − t} γ^k m, or m / (1 − γ) without a time limit; None if not apart."""

    def raw(self, standardised: np.ndarray, steps: Int[np.ndarray, " B"]) -> Float[np.ndarray, "*R B"]:
        """Values at these steps in the units of rewards."""
        found = self.centre + self.spread * np.asarray(standardised, np.float64)
        return found if self.offset is None else found + self.offset[steps]


class Scales(struct.PyTreeNode):
    """Scales between raw units and those of the network, in which inputs and values have mean 0 and deviation 1."""

    observation: tuple[Float[Array, " F"], Float[Array, " F"]]
    """Mean and deviation of each feature, with t / T as the last one if time is a feature."""
    action: tuple[Float[Array, " D"], Float[Array, " D"]] | None
    """The same of continuous actions."""
    centre: Float[Array, ""]
    """The constant that is its own backup on the log: c = mean r + mean discount · c."""
    spread: Float[Array, ""]
    """Standard deviation of the logged returns to go, with c as the value after a cut."""
    horizon: int | None = struct.field(pytree_node=False)
    """T, if time is a feature."""
    levels: tuple[int, int] | None = struct.field(pytree_node=False, default=None)
    """Lowest number and width of the one-hot code of observations that are single whole numbers; None for others."""
    offset: Float[Array, " T1"] | None = None
    """`Units.offset`."""

    def raw(self, standardised: Float[Array, "B ..."], time: Int[Array, " B"] | None = None) -> Float[Array, "B ..."]:
        """Values at these steps (0 when not given) in the units of rewards."""
        found = self.centre + self.spread * standardised
        if self.offset is None:
            return found
        steps = jnp.zeros(len(found), jnp.int32) if time is None else jnp.asarray(time)
        apart = jnp.asarray(self.offset)[steps]
        return found + apart.reshape(-1, *[1] * (found.ndim - 1))

    def features(self, observation: Array, time: Int[Array, " B"] | None = None) -> Float[Array, "B F"]:
        """Standardised features of raw observations [B, ...] at these steps (0 when not given)."""
        flat = flat_features(jnp.asarray(observation), observation.ndim - 1)
        if self.levels is not None:
            lowest, width = self.levels
            flat = jax.nn.one_hot(jnp.round(flat[:, 0]).astype(jnp.int32) - lowest, width, dtype=jnp.float32)
        if self.horizon is not None:
            steps = jnp.zeros(len(flat)) if time is None else jnp.asarray(time).astype(jnp.float32)
            flat = jnp.concatenate([flat, steps[:, None] / self.horizon], axis=1)
        return _standardised(flat, self.observation)

    def actions(self, action: Array | np.ndarray) -> Float[Array, "*B D"]:
        """Standardised continuous actions."""
        assert self.action is not None
        return _standardised(jnp.asarray(action), self.action)


class Table(struct.PyTreeNode):
    """The log as rows: the steps of each trajectory and then its final observation, so that row + 1 is the next state."""

    features: Float[np.ndarray, "R F"]
    """All features, or those that are neither flags nor coded."""
    flags: Bool[np.ndarray, "R L"] | None
    """Flags of boolean observations, a byte each where a float has four; these features come first."""
    code: tuple[Int[np.ndarray, " R"], Float[np.ndarray, " L"]] | None
    """Index of each row's observation, and the size of its one-hot feature by index; these features come first."""
    action: np.ndarray
    """[R] integers or [R, D] standardised; meaningless at final observations."""
    reward: Float[np.ndarray, " R"]
    """(r + (discount − 1) · centre) / spread, the reward in the backup of standardised values."""
    discount: Float[np.ndarray, " R"]
    """γ, or 0 where the value ends."""
    training: Int[np.ndarray, " K"]
    """Rows of the training transitions."""
    held_out: Int[np.ndarray, " H"]
    """Rows of the held-out transitions, all those of some trajectories."""
    starts: Int[np.ndarray, " N"]
    """First rows of the trajectories."""
    scales: Scales
    units: Units

    def dense(self) -> Float[np.ndarray, "R F"]:
        """All features as one matrix."""
        features = np.asarray(self.features)
        if self.flags is not None:
            return np.concatenate([np.asarray(self.flags, np.float32), features], axis=1)
        if self.code is None:
            return features
        index, size = self.code
        coded = np.zeros((len(features), len(size)), np.float32)
        coded[np.arange(len(index)), index] = size[index]
        return np.concatenate([coded, features], axis=1)


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


def levels_of(config: FQEConfig, seen: Shaped[np.ndarray, "R ..."]) -> tuple[int, int] | None:
    """Lowest number and width of a one-hot code, if each observation is one whole number of a small range.

    Such a number is the name of a state (Taxi, FrozenLake) and not a magnitude: 0 and 1 are no more alike than 0 and 400.
    Numbers are counted from 0 if none is negative.
    """
    if not config.one_hot or seen[0].size != 1 or seen.dtype == bool:
        return None
    flat = seen.reshape(-1)
    lowest, highest = min(float(flat.min()), 0.0), float(flat.max())
    if highest - lowest >= MOST_LEVELS or not (flat == np.round(flat)).all():
        return None
    count = int(highest - lowest) + 1
    return int(lowest), -(-count // FEW_LEVELS) * FEW_LEVELS


def value_ends(config: FQEConfig, data: LoggedData) -> Bool[np.ndarray, "N T"]:
    """Where the value ends: at terminated steps; under greedy-huber also at truncated ones; in finite time at step T."""
    ends = np.array(data.terminated)
    if config.convention == "greedy-huber":
        ends = ends | np.asarray(data.truncated)
    if config.time_feature:
        ends[:, -1] = True
    return ends & np.asarray(data.mask)


def prepare(config: FQEConfig, data: LoggedData, discount: float, key: Key) -> Table:
    """The table of a log, with some trajectories held out at random. The value ends as `value_ends` says."""
    config.validate()
    if not 0 <= discount <= 1:
        raise InputError(f"discount: {discount} is not allowed; must be from 0 to 1")
    trajectory, step = rows(data)
    moves = step < np.asarray(data.mask).sum(axis=1)[trajectory]
    at = (trajectory, np.where(moves, step, 0))
    discounts = np.where(value_ends(config, data)[at], 0.0, discount)
    if discounts[moves].mean() == 1:
        raise InputError(
            "discount: 1 is not allowed where no step ends the value; must be below 1, or set fqe.time-feature"
        )
    rewards, offset = _without_offset(config, np.asarray(data.reward, np.float64)[at], discounts, (moves, step))
    centre = rewards[moves].mean() / (1 - discounts[moves].mean())
    spread = _spread(np.where(moves, rewards, centre), discounts, moves, step)
    actions = np.asarray(data.action)[at]
    if not data.discrete:
        actions = actions.reshape(len(actions), -1)
    inputs = _inputs(config, row_observations(data), (step / data.length).astype(np.float32)[:, None])
    scales = Scales(
        observation=inputs[2],
        action=None if data.discrete else _units(_moments(actions[moves])),
        centre=single(centre),
        spread=single(spread),
        horizon=data.length if config.time_feature else None,
        levels=inputs[3],
        offset=None if offset is None else jnp.asarray(offset, jnp.float32),
    )
    apart = _held_out(config, data.trajectories, key)[trajectory]
    return Table(
        features=inputs[0],
        flags=inputs[4],
        code=inputs[1],
        action=actions if scales.action is None else _standard(actions.astype(np.float32), scales.action),
        reward=((rewards + (discounts - 1) * centre) / spread).astype(np.float32),
        discount=discounts.astype(np.float32),
        training=np.flatnonzero(moves & ~apart).astype(np.int32),
        held_out=np.flatnonzero(moves & apart).astype(np.int32),
        starts=np.flatnonzero(step == 0).astype(np.int32),
        scales=scales,
        units=Units(float(centre), float(spread), offset),
    )


def target_actions(
    config: FQEConfig, data: LoggedData, policy: TargetPolicy, key: Key, at: Shaped[np.ndarray, "B ..."] | None = None
) -> Float[np.ndarray, "B ..."]:
    """The policy's actions `at` a batch of observations, by default the R rows of the log: all that fitting needs of it.

    Discrete actions: probabilities [B, A]; under greedy-huber, 1 for the most probable. Continuous actions: draws [B, S, D];
    under greedy-huber the mode alone, [B, 1, D].
    """
    observation = row_observations(data) if at is None else at
    greedy = config.convention == "greedy-huber"
    if data.discrete:
        if policy.probabilities is None:
            raise InputError("policy.probabilities: are missing; must be given for discrete actions")
        weights = evaluated(policy.probabilities, observation)
        count = 1 + int(np.asarray(data.action)[np.asarray(data.mask)].max())
        if weights.ndim != 2 or weights.shape[1] < count:
            raise InputError(f"policy.probabilities: have shape {weights.shape}; must be [B, A], A at least {count}")
        if not ((weights >= 0).all() and np.allclose(weights.sum(axis=1), 1.0, atol=1e-3)):
            raise InputError(
                "policy.probabilities: are below 0 or do not sum to 1; must be probabilities, not logarithms"
            )
        if greedy:
            return np.eye(weights.shape[1], dtype=np.float32)[weights.argmax(axis=1)]
        return weights.astype(np.float32)
    if greedy:
        draws = [evaluated(policy.mode, observation)]
    else:
        keys = jax.random.split(key, config.action_samples)
        draws = [evaluated(policy.sample, observation, key=one) for one in keys]
    return np.stack([draw.reshape(len(observation), -1) for draw in draws], axis=1).astype(np.float32)


def _inputs(
    config: FQEConfig, seen: Shaped[np.ndarray, "R ..."], clock: Float[np.ndarray, "R 1"]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None, Any, tuple[int, int] | None, np.ndarray | None]:
    """Standardised features, codes, means and deviations of all features, the range of codes, and flags."""
    levels = levels_of(config, seen)
    timed = [clock] if config.time_feature else []
    flat = seen.reshape(len(seen), -1)
    if seen.dtype == bool:
        units = [(np.zeros(flat.shape[1]), np.ones(flat.shape[1])), *map(_moments, timed)]
        both = _units(tuple(np.concatenate(parts) for parts in zip(*units, strict=True)))
        return _clock(clock, both, timed), None, both, None, flat
    if levels is None:
        flat = flat.astype(np.float32)
        units = [_moments(flat), *map(_moments, timed)]
        both = _units(tuple(np.concatenate(parts) for parts in zip(*units, strict=True)))
        return _standard(np.concatenate([flat, *timed], axis=1), both), None, both, None, None
    index = np.round(seen.reshape(-1).astype(np.float64)).astype(np.int32) - levels[0]
    chance = np.bincount(index, minlength=levels[1]) / len(index)
    # not centred, so that most features are 0; 0 for numbers that were never logged
    deviation = np.where(chance > 0, np.maximum(np.sqrt(chance * (1 - chance)), 1 / BOUND), np.inf)
    units = [(np.zeros(levels[1]), deviation), *map(_moments, timed)]
    both = _units(tuple(np.concatenate(parts) for parts in zip(*units, strict=True)))
    book = 1 / both[1][: levels[1]]
    return _clock(clock, both, timed), (index, book), both, levels, None


def _clock(clock: Float[np.ndarray, "R 1"], units: tuple, timed: list) -> Float[np.ndarray, "R F"]:
    """The standardised step as the only feature, or no feature; its mean and deviation are the last of the units."""
    return _standard(clock, (units[0][-1:], units[1][-1:])) if timed else np.zeros((len(clock), 0), np.float32)


def _units(moments: tuple[np.ndarray, ...]) -> Any:
    mean, deviation = (part.astype(np.float32) for part in moments)
    return mean, deviation


def single(number: float) -> Any:
    """A number of 32 bits as an array of JAX or NumPy, without a program that converts it."""
    return np.float32(number)


def _standardised(raw: Float[Array, "*B F"], units: tuple) -> Float[Array, "*B F"]:
    mean, deviation = (jnp.broadcast_to(jnp.asarray(unit), raw.shape) for unit in units)
    return jnp.clip((raw - mean) / deviation, -BOUND, BOUND)


def _standard(raw: Float[np.ndarray, "B F"], units: tuple) -> Float[np.ndarray, "B F"]:
    """The same on the host, in blocks."""
    found = np.empty_like(raw)
    for i in range(0, len(raw), CHUNK):
        found[i : i + CHUNK] = np.clip((raw[i : i + CHUNK] - units[0]) / units[1], -BOUND, BOUND)
    return found


def _moments(raw: Float[np.ndarray, "R F"]) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """Mean and deviation of columns; the deviation of constant columns is set to 1."""
    mean = raw.mean(axis=0, dtype=np.float64)
    blocks = (raw[i : i + CHUNK] for i in range(0, len(raw), CHUNK))
    deviation = np.sqrt(sum(((block - mean) ** 2).sum(axis=0) for block in blocks) / len(raw))
    return mean, np.where(deviation > 1e-6 * np.abs(raw).max(axis=0), deviation, 1.0)


def _without_offset(
    config: FQEConfig,
    rewards: Float[np.ndarray, " R"],
    discounts: Float[np.ndarray, " R"],
    at: tuple[Bool[np.ndarray, " R"], Int[np.ndarray, " R"]],
) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " T1"] | None]:
    """Rewards less their mean m, with the values of a constant reward m by step, if m is large and these values are known.

    They are where no trajectory ends before step T, whatever the policy does: Σ_{k < T − t} γ^k m, or m / (1 − γ) without a time
    limit. A network would have to learn them, to a precision that is small against the differences that the policy makes.
    """
    moves, step = at
    length, mean, discount = int(step.max()), float(rewards[moves].mean()), float(discounts[moves].max())
    early = moves & (discounts == 0) & (step < (length - 1 if config.time_feature else length))
    if early.any() or abs(mean) <= OFFSET * rewards[moves].std():
        return np.where(moves, rewards, 0.0), None
    if config.time_feature:
        values = np.append(np.cumsum(discount ** np.arange(length, dtype=np.float64))[::-1], 0.0)
    else:
        values = np.full(length + 1, 1 / (1 - discount))
    return np.where(moves, rewards - mean, 0.0), mean * values


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
    return float(spread) if spread > 0 else 1.0


def _held_out(config: FQEConfig, trajectories: int, key: Key) -> Bool[np.ndarray, " N"]:
    """Which trajectories are held out."""
    count = max(1, round(config.held_out * trajectories)) if config.held_out else 0
    if count >= trajectories:
        raise InputError(
            f"fqe.held-out: {config.held_out} of {trajectories} trajectories leaves none for training; must be less"
        )
    apart = np.zeros(trajectories, bool)
    apart[permutation(key, trajectories)[:count]] = True
    return apart
