"""Logged transitions for methods that solve for Q exactly, and their estimates with errors by the bootstrap over trajectories."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fitted import Resampled, with_errors, with_support
from evarl.ope.fqe_table import row_observations, rows
from evarl.ope.log import Estimate, Log, generator
from evarl.ope.settings import Settings

REFITS = 25
"""Bootstrap samples, unless the settings have a number of refits. Their deviation enters t intervals with 24 degrees of freedom,
which are 4 % wider than with 100 samples."""


class Transitions(NamedTuple):
    """All logged transitions (s, a, r, s′), of whatever step: the process does not depend on time, only values do."""

    row: Int[np.ndarray, " K"]
    """Row of s in the table of the log; that of s′ is the next one."""
    trajectory: Int[np.ndarray, " K"]
    action: np.ndarray
    reward: Float[np.ndarray, " K"]
    discount: Float[np.ndarray, " K"]
    """γ, or 0 where the step terminated."""
    start: Int[np.ndarray, " N"]
    """Rows of first observations."""
    horizon: int | None
    """T; None for values without a time limit."""

    @classmethod
    def of(cls, data: LoggedData, discount: float, horizon: int | None) -> "Transitions":
        """The transitions of a log."""
        trajectory, step = rows(data)
        moves = np.flatnonzero(step < np.asarray(data.mask).sum(axis=1)[trajectory])
        at = trajectory[moves], step[moves]
        going = np.where(np.asarray(data.terminated)[at], 0.0, discount)
        if horizon is None and going.mean() == 1:
            raise InputError(
                "discount: 1 is not allowed where no step ends the value; must be below 1, or use a horizon"
            )
        reward = np.asarray(data.reward, np.float64)[at]
        return cls(moves, at[0], np.asarray(data.action)[at], reward, going, np.flatnonzero(step == 0), horizon)

    def centres(self, weight: Float[np.ndarray, " K"]) -> Float[np.ndarray, " H"]:
        """Constants that are their own backups on the log, by steps to go: c₀ = 0 and c_h = mean r + mean discount · c_{h−1}.

        Without a time limit one number, c = mean r / (1 − mean discount). They stand for what was never logged.
        """
        reward, going = (weight @ x / weight.sum() for x in (self.reward, self.discount))
        if self.horizon is None:
            return np.array([reward / max(1 - going, 1e-12)])
        found = np.zeros(self.horizon + 1)
        for h in range(self.horizon):
            found[h + 1] = reward + going * found[h]
        return found


class Solved(Protocol):
    """A Q function that solves its equations exactly."""

    def start_values(self) -> Float[np.ndarray, " N"]:
        """V of the logged first observations, with all steps to go."""

    def at(self, states: np.ndarray, times: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
        """V at states, observed at these steps."""


Solve = Callable[[Float[np.ndarray, " K"]], Solved]
"""Weights of the transitions → the Q function that they give."""


def solved_estimate(
    log: Log,
    settings: Settings,
    solve: Solve,
    trajectory: Int[np.ndarray, " K"],
    notes: Callable[[Solved], tuple[str, ...]] = lambda solved: (),
) -> Estimate:
    """The estimate of a Q function, with errors of Q functions from resampled trajectories."""
    first = solve(np.ones(len(trajectory)))
    rng, count = generator(settings), log.data.trajectories
    states = None if log.states is None else np.asarray(log.states)
    times = np.zeros(0 if states is None else len(states), int) if log.times is None else np.asarray(log.times)
    overall, asked = [], []
    for _ in range((settings.fqe_refits or REFITS) if count > 1 else 0):
        drawn = np.bincount(rng.integers(count, size=count), minlength=count).astype(np.float64)
        again = solve(drawn[trajectory])
        overall.append(drawn @ again.start_values() / count)
        if states is not None:
            asked.append(again.at(states, times))
    resampled = Resampled(np.array(overall), np.stack(asked) if asked else None) if overall else None
    found = None if states is None else first.at(states, times)
    value = float(first.start_values().mean())
    return Estimate(
        **with_errors(log, settings, value, found, resampled, timed=False),
        **with_support(log, settings, notes(first), timed=False),
        converged=True,
    )


class Distinct(NamedTuple):
    """The distinct observations of a log."""

    row: Int[np.ndarray, " R"]
    """Number of the observation of each row."""
    keys: dict[bytes, int]
    """Numbers by the bytes of observations."""
    observation: np.ndarray
    """[S, ...]."""

    @classmethod
    def of(cls, data: LoggedData) -> "Distinct":
        """The distinct observations of a log, final ones included."""
        seen = row_observations(data)
        flat = np.ascontiguousarray(seen.reshape(len(seen), -1))
        whole = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).reshape(-1)
        found, first, index = np.unique(whole, return_index=True, return_inverse=True)
        return cls(index.reshape(-1), {one.tobytes(): number for number, one in enumerate(found)}, seen[first])

    def numbers(self, states: np.ndarray) -> Int[np.ndarray, " Q"]:
        """Number of each state; −1 for those that are not in the log."""
        flat = np.ascontiguousarray(states.reshape(len(states), -1).astype(self.observation.dtype))
        return np.array([self.keys.get(one.tobytes(), -1) for one in flat], int)


def logged_pairs(index: Int[np.ndarray, " K"], count: int) -> Bool[np.ndarray, " count"]:
    """Which of so many numbers occur."""
    there = np.zeros(count, bool)
    there[index] = True
    return there


def steps_of(times: Int[Array | np.ndarray, " Q"], horizon: int | None) -> Int[np.ndarray, " Q"]:
    """Steps to go at these times; 0 without a horizon."""
    return np.zeros(len(times), int) if horizon is None else np.maximum(horizon - np.asarray(times), 0)
