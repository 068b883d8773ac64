"""A fitted Q function of one policy on one log: values at states and along any log, and refits for its standard errors."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe import (
    FittedQ,
    fit,
    programmed,
    standardised_q,
    standardised_v,
    trace_coefficients,
    trained,
)
from evarl.ope.fqe_table import prepare, row_observations, rows, target_actions
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.ope.shapes import applied
from evarl.worlds.world import Key

Ask = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Observations [B, ...], actions and steps [B] → values [B]."""


class Refits(NamedTuple):
    """Fits to resampled trajectories."""

    start_values: Float[np.ndarray, " refits"]
    """J of each, over the start states of the trajectories that were drawn."""
    values: Callable[[np.ndarray, np.ndarray], Float[np.ndarray, "refits Q"]]
    """States [Q, ...] and steps [Q] → V of each fit."""


class Model:
    """A fit, with the log and the policy it was made from; with `room`, by the program of a log with so many rows."""

    def __init__(
        self, config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, key: Key, room: int = 0
    ):
        self._config, self._data, self._policy = config, data, policy
        held_out_key, draw_key, self._fit_key, self._query_key = jax.random.split(key, 4)
        self._table = prepare(config, data, discount, held_out_key)
        self._target = target_actions(config, data, policy, draw_key)
        self._trace = trace_coefficients(config, data, self._table, policy, self._target)
        self.fitted: FittedQ = fit(config, self._table, self._target, self._fit_key, self._trace, room)

    def warnings(self) -> tuple[str, ...]:
        """A line that says how far the fit is from convergence, if it has not converged."""
        if bool(self.fitted.converged):
            return ()
        drift, remainder = float(self.fitted.drift), float(self.fitted.remainder)
        return (
            f"fitted Q evaluation has not converged: J changed by {drift:.3g} in the last quarter of the steps and is "
            f"expected to change by another {remainder:.3g}; use more steps",
        )

    def start_value(self) -> float:
        """J, the mean value over the logged start states."""
        at = np.asarray(self._table.starts)
        seen = np.asarray(self._data.observation)[:, 0]
        return float(self._v(self._ask(standardised_v), seen, self._target[at], np.zeros(len(at), np.int32)).mean())

    def at(self, states: np.ndarray, times: Int[Array | np.ndarray, " Q"] | None) -> Float[np.ndarray, " Q"]:
        """V at states [Q, ...], observed at these steps."""
        return self._v(self._ask(standardised_v), states, self._actions(states), _steps(times, len(states)))

    @functools.cached_property
    def values(self) -> ModelValues:
        """Q and V at every step of the log that was fitted."""
        return self.values_of(self._data)

    def values_of(self, other: LoggedData) -> ModelValues:
        """Q and V at every step of any log of the same kind, in float64."""
        _, step = rows(other)
        seen = row_observations(other)
        target = self._target if other is self._data else self._actions(seen)
        horizon = self._data.length if self._config.time_feature else None
        return along(other, horizon, self._v(self._ask(standardised_v), seen, target, step.astype(np.int32)), self._q)

    def refitted(self, refits: int, generator: np.random.Generator) -> Float[np.ndarray, " refits"]:
        """J of fits to resampled trajectories."""
        return self.refits(refits, generator).start_values

    def refits(self, refits: int, generator: np.random.Generator) -> Refits:
        """Fits to resampled trajectories, by the program that was compiled for the first fit.

        The transitions of the drawn trajectories are left out at the end if there are more than that program has room for.
        """
        training = np.asarray(self._table.training)
        owner = rows(self._data)[0][training]
        owners, first, lengths = np.unique(owner, return_index=True, return_counts=True)
        padded, program = programmed(self._config, self._table, self._target, self._trace)
        networks, drawn_starts = [], []
        for index in range(refits):
            drawn = generator.integers(len(owners), size=len(owners))
            chosen = np.concatenate([training[first[one] : first[one] + lengths[one]] for one in drawn])
            again = self._table.replace(training=chosen[: len(padded.reward)])
            points, _ = trained(self._config, padded, program, again, jax.random.fold_in(self._fit_key, index))
            networks.append(jax.tree.map(lambda leaf: np.asarray(leaf)[-1], points))
            drawn_starts.append(owners[drawn])
        ask = functools.partial(self._ensemble, networks)
        zeros = np.zeros(self._data.trajectories, np.int32)
        each = ask(np.asarray(self._data.observation)[:, 0], zeros)
        return Refits(np.asarray([one[at].mean() for one, at in zip(each, drawn_starts, strict=True)]), ask)

    def _ensemble(self, networks: list, states: np.ndarray, steps: np.ndarray) -> Float[np.ndarray, "refits Q"]:
        target, scales = self._actions(states), self.fitted.scales
        asked = (functools.partial(standardised_v, (network, scales)) for network in networks)
        return np.stack([self._v(one, states, target, steps) for one in asked])

    def _actions(self, states: Shaped[np.ndarray, "B ..."]) -> Float[np.ndarray, "B ..."]:
        return target_actions(self._config, self._data, self._policy, self._query_key, states)

    def _ask(self, function: Callable) -> Callable:
        """A function of a network as one of the fitted network."""
        return functools.partial(function, (self.fitted.parameters, self.fitted.scales))

    def _v(
        self, ask: Callable, states: np.ndarray, target: np.ndarray, steps: Int[np.ndarray, " B"]
    ) -> Float[np.ndarray, " B"]:
        return self._table.units.raw(applied(ask, states, target, *self._clock(steps)), steps)

    def _q(self, states: np.ndarray, action: np.ndarray, steps: np.ndarray) -> Float[np.ndarray, " B"]:
        ask = self._ask(standardised_q)
        return self._table.units.raw(applied(ask, states, action, *self._clock(steps)), steps)

    def _clock(self, steps: np.ndarray) -> tuple[np.ndarray, ...]:
        return (steps.astype(np.int32),) if self._config.time_feature else ()


def out_of_reach(data: LoggedData, discount: float, finite: bool, value: float) -> str | None:
    """What to say of a value that is far outside of what rewards like the logged ones add up to; None if it is not."""
    powers = discount ** np.arange(data.length)
    steps = powers.sum() if finite else 1 / max(1 - discount, 1e-12)
    reward = np.asarray(data.reward, np.float64)[np.asarray(data.mask)]
    low, high = steps * min(reward.min(), 0.0), steps * max(reward.max(), 0.0)
    if low - (high - low) <= value <= high + (high - low):  # rewards may be larger where the policy goes
        return None
    return (
        f"{value:.4g} is outside of what the logged rewards can add up to, {low:.4g} to {high:.4g}; use more steps between "
        "target networks (fqe.target-interval), or another method"
    )


def along(data: LoggedData, horizon: int | None, values: Float[np.ndarray, " R"], q: Ask) -> ModelValues:
    """Q and V at every step, from V at all rows of the log; the value ends at terminated steps, and after `horizon` steps."""
    trajectory, step = rows(data)
    lengths = np.asarray(data.mask).sum(axis=1)
    moves = step < lengths[trajectory]
    place = trajectory[moves], step[moves]
    found, worth = np.zeros(data.mask.shape), np.zeros(data.mask.shape)
    found[place] = values[moves]
    worth[place] = q(np.asarray(data.observation)[place], np.asarray(data.action)[place], step[moves])
    ended = np.asarray(data.terminated)[np.arange(data.trajectories), lengths - 1]
    if horizon is not None:
        ended = ended | (lengths >= horizon)
    numbers: Any = worth, found, np.where(ended, 0.0, values[~moves])
    return ModelValues(*numbers)


def _steps(times: Int[Array | np.ndarray, " Q"] | None, count: int) -> Int[np.ndarray, " Q"]:
    return np.zeros(count, np.int32) if times is None else np.asarray(times, np.int32)
