"""A fitted Q function of one policy on one log: values at states and along the log, and refits for its standard error."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe import FittedQ, fit
from evarl.ope.fqe_table import in_blocks, prepare, row_observations, rows, target_actions
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.worlds.world import Key


class Model:
    """A fit, with the log and the policy it was made from."""

    def __init__(self, config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, key: Key):
        self._config, self._data, self._policy = config, data, policy
        held_out_key, draw_key, self._fit_key, self._query_key = jax.random.split(key, 4)
        self._table = prepare(config, data, discount, held_out_key)
        self._target = target_actions(config, data, policy, draw_key)
        self._trajectory, self._step = rows(data)
        self._seen = row_observations(data)
        self.fitted: FittedQ = fit(config, self._table, self._target, self._fit_key)

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
        return float(self._values(self.fitted, np.asarray(self._table.starts)).mean())

    def at(self, states: np.ndarray, times: Int[Array | np.ndarray, " Q"] | None) -> Float[np.ndarray, " Q"]:
        """V at states [Q, ...], observed at these steps."""
        actions = target_actions(self._config, self._data, self._policy, self._query_key, states)
        clock = None if times is None else jnp.asarray(times, jnp.int32)
        return np.asarray(self.fitted.v(jnp.asarray(states), actions, clock), np.float64)

    @functools.cached_property
    def values(self) -> ModelValues:
        """Q and V at every step of the log that was fitted."""
        return self.values_of(self._data)

    def values_of(self, data: LoggedData) -> ModelValues:
        """Q and V at every step of any log of the same kind, in float64."""
        (trajectory, step), seen = rows(data), row_observations(data)
        lengths = np.asarray(data.mask).sum(axis=1)
        moves = step < lengths[trajectory]
        place = trajectory[moves], step[moves]
        act = self._target if data is self._data else target_actions(self._config, data, self._policy, self._query_key)
        values = in_blocks(lambda at: self.fitted.v(seen[at], act[at], self._clock(step[at])), len(seen))
        at_moves, done = seen[moves], np.asarray(data.action)[place]
        worth = in_blocks(lambda at: self.fitted.q(at_moves[at], done[at], self._clock(place[1][at])), len(done))
        q, v = np.zeros((2, *data.mask.shape))
        q[place], v[place] = worth, values[moves]
        ended = np.asarray(data.terminated)[np.arange(data.trajectories), lengths - 1]
        if self._config.time_feature:
            ended = ended | (lengths == data.length)
        return ModelValues(q, v, np.where(ended, 0.0, values[~moves]).astype(np.float64))

    def refitted(self, refits: int, generator: np.random.Generator) -> Float[np.ndarray, " refits"]:
        """J of fits to resampled trajectories.

        All have one shape, so that they share one compiled program: the transitions of the drawn trajectories are repeated
        or left out at the end to make up the same number.
        """
        training = np.asarray(self._table.training)
        owner = self._trajectory[training]
        owners = np.unique(owner)
        values = []
        for index in range(refits):
            drawn = generator.choice(owners, len(owners))
            chosen = np.concatenate([training[owner == one] for one in drawn])
            again = self._table.replace(training=jnp.asarray(np.resize(chosen, len(training)), jnp.int32))
            fitted = fit(self._config, again, self._target, jax.random.fold_in(self._fit_key, index))
            values.append(float(self._values(fitted, np.asarray(self._table.starts)[drawn]).mean()))
        return np.asarray(values)

    def _values(self, fitted: FittedQ, chosen: np.ndarray) -> np.ndarray:
        """V at rows of the log."""
        seen, act, step = self._seen[chosen], self._target[jnp.asarray(chosen)], self._step[chosen]
        return in_blocks(lambda at: fitted.v(seen[at], act[at], self._clock(step[at])), len(chosen))

    def _clock(self, step: np.ndarray) -> Array | None:
        return jnp.asarray(step, jnp.int32) if self._config.time_feature else None
