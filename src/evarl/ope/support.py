"""Whether the log supports the values of states: the distance to logged observations, compared with usual distances.

The distance of a query state to the nearest logged observation is compared with the distance of each logged observation to the
nearest one of *another* trajectory. The p-value is that of conformal prediction: at most a with probability a for a state that
was drawn like the logged ones. A fitted function extrapolates at other states, and nothing in the fit says how wrong it is.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_table import levels_of
from evarl.ope.settings import FQEConfig
from evarl.stats.conformal import conformal_p_value

LEVEL = 0.02
"""A state is not supported if its p-value is below this, or if it is farther than FAR times any usual distance."""
FAR = 2.0
APART = 10.0
"""Distance between states that are names and not magnitudes, in deviations."""
SAMPLE, POOL = 500, 20_000
"""Logged observations whose distances are usual ones, and among which neighbours are searched, at most."""
MOST = 20_000_000
"""Entries of observations that are looked at, at most."""
SAME = 1e-5
"""Distances below this are 0."""


class Support(NamedTuple):
    """How far query states are from logged observations."""

    distance: Float[np.ndarray, " Q"]
    """To the nearest logged observation: root of the sum of squares, in deviations of each entry, and of the time if that
    matters."""
    usual: Float[np.ndarray, " n"]
    """Distance of logged observations to the nearest one of another trajectory."""
    p_value: Float[np.ndarray, " Q"]

    @property
    def missing(self) -> Bool[np.ndarray, " Q"]:
        """Which states the log does not support."""
        return (self.p_value < LEVEL) | (self.distance > FAR * self.usual.max())

    def warnings(self) -> tuple[str, ...]:
        """A line that says which values are extrapolated, if there are any."""
        count = int(self.missing.sum())
        if not count:
            return ()
        worst = int(np.argmax(np.where(self.missing, self.distance, -1.0)))
        return (
            f"V is extrapolated at {count} of {len(self.distance)} states, such as number {worst}: the nearest logged "
            f"observation is {self.distance[worst]:.2g} deviations away, where {np.median(self.usual):.2g} is usual "
            f"(p = {self.p_value[worst]:.3f})",
        )


def support(
    config: FQEConfig,
    data: LoggedData,
    states: np.ndarray,
    times: Int[Array | np.ndarray, " Q"] | None,
    rng: np.random.Generator,
) -> Support:
    """The support of states [Q, ...], observed at these steps; the time matters if it is a feature."""
    entries = int(np.prod(data.observation.shape[2:])) * data.mask.size
    if entries > MOST:  # of large logs, some trajectories
        data = data.rows(rng.permutation(data.trajectories)[: max(2, data.trajectories * MOST // entries)])
    mask = np.asarray(data.mask)
    owner, step = np.nonzero(mask)
    scaled = Scaled(config, data, step)
    clock = np.zeros(len(states), int) if times is None else np.asarray(times)
    queries = scaled.points(np.asarray(states), clock)
    drawn = rng.permutation(len(owner))[:SAMPLE]
    sample = scaled.points(np.asarray(data.observation)[mask][drawn], step[drawn])
    pool, sole, row = pool_of(np.asarray(data.observation)[mask], owner, step, config.time_feature, rng)
    points = scaled.points(*pool)
    between = distances(sample, points)
    own = owner[drawn][:, None] == sole[None]
    if data.trajectories == 1:
        own = row[drawn][:, None] == np.arange(len(points))[None]
    usual = np.where(own, np.inf, between).min(axis=1)
    usual = usual[np.isfinite(usual)] if np.isfinite(usual).any() else np.zeros(1)
    distance = distances(queries, points).min(axis=1)
    return Support(distance, usual, np.array([conformal_p_value(usual, one) for one in distance]))


class Scaled:
    """Observations and steps as points."""

    def __init__(self, config: FQEConfig, data: LoggedData, step: Int[np.ndarray, " M"]):
        logged = np.asarray(data.observation)[np.asarray(data.mask)]
        self.timed, self.length = bool(config.time_feature), data.length
        self.levels = levels_of(config, logged)
        flat = logged.reshape(len(logged), -1)
        self.mean = flat.mean(axis=0, dtype=np.float64)
        deviation = flat.std(axis=0, dtype=np.float64)
        self.deviation = np.where(deviation > SAME * np.abs(flat).max(axis=0), deviation, 1.0)
        self.clock = max(float(step.std()), SAME)

    def points(self, observation: np.ndarray, step: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """In deviations of each entry, and of the time if that matters."""
        flat = observation.reshape(len(observation), -1).astype(np.float64)
        if self.levels is None:
            found = (flat - self.mean) / self.deviation
        else:
            lowest, width = self.levels
            index = np.round(flat[:, 0]).astype(int) - lowest
            inside = (index >= 0) & (index < width) & (flat[:, 0] == np.round(flat[:, 0]))
            found = np.zeros((len(flat), width + 1))  # the last column is for numbers outside of the code
            found[np.arange(len(flat)), np.where(inside, index, width)] = APART / 2**0.5
        return np.concatenate([found, step[:, None] / self.clock], axis=1) if self.timed else found


def pool_of(
    seen: np.ndarray,
    owner: Int[np.ndarray, " M"],
    step: Int[np.ndarray, " M"],
    timed: bool | None,
    rng: np.random.Generator,
) -> tuple[tuple[np.ndarray, np.ndarray], Int[np.ndarray, " P"], Int[np.ndarray, " M"]]:
    """Distinct observations with their steps, the trajectory of each if it is only one (−1 if not), and the row of each step."""
    flat = np.ascontiguousarray(seen.reshape(len(seen), -1))
    parts = [np.packbits(flat, axis=1) if flat.dtype == bool else _bytes(flat)]
    if timed:
        parts.append(_bytes(np.asarray(step, np.int64)[:, None]))
    keys = np.ascontiguousarray(np.concatenate(parts, axis=1))
    whole = keys.view(np.dtype((np.void, keys.shape[1]))).reshape(-1)
    _, first, row = np.unique(whole, return_index=True, return_inverse=True)
    low, high = np.full(len(first), len(seen)), np.full(len(first), -1)
    np.minimum.at(low, row, owner)
    np.maximum.at(high, row, owner)
    sole = np.where(low == high, low, -1)
    if len(first) > POOL:
        kept = np.sort(rng.permutation(len(first))[:POOL])
        place = np.full(len(first), -1)
        place[kept] = np.arange(POOL)
        first, sole, row = first[kept], sole[kept], place[row]
    return (seen[first], step[first]), sole, row.reshape(-1)


def _bytes(rows: Shaped[np.ndarray, "M F"]) -> UInt8[np.ndarray, "M B"]:
    return rows.view(np.uint8).reshape(len(rows), -1)


def distances(points: Float[np.ndarray, "m D"], others: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "m n"]:
    """Between all points of two sets; those within rounding error are 0."""
    square = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * points @ others.T
    found = np.sqrt(np.maximum(square, 0.0))
    return np.where(found < SAME * (1 + np.sqrt((others**2).sum(axis=1).max())), 0.0, found)
