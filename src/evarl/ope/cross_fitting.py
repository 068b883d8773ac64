"""Values of a model along a log, from fits that did not see the trajectory whose values they are.

A Q function that was fitted to a trajectory knows its noise, and residuals r + γ V(s′) − Q(s, a) on that trajectory are too
small: as a correction they are biased, by as much as the model overfits. With K folds of trajectories, the values of fold k
are those of a model fitted to the others, as in double machine learning (Chernozhukov et al., 2018) and its use for off-policy
evaluation (Kallus & Uehara, 2020).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.doubly_robust import ModelValues
from evarl.ope.fqe_table import row_observations, rows
from evarl.ope.model import Model, out_of_reach
from evarl.ope.policy import TargetPolicy, chances, on_host
from evarl.ope.settings import FQEConfig
from evarl.ope.shapes import CHUNK
from evarl.worlds.world import Key

MODEL_DIVERGED = "the model has diverged"
"""How the warning begins that corrections are of a model that means nothing."""
COMPARED = 256
"""Rows of the log at which V of the user is compared with the policy's expectation of Q."""
AGREE, ROUNDING = 1e-3, 1e-5
"""Greatest difference that is allowed, in deviations of Q and in multiples of its size."""


class CrossFitted(NamedTuple):
    """Model values of each trajectory, from a model that is independent of it."""

    values: ModelValues
    fold: Int[np.ndarray, " N"] | None
    """The fold of each trajectory; None for a model that is independent of the whole log."""
    bellman_error: float | None = None
    """Root mean square over the fits."""
    converged: bool | None = None
    """Whether all fits converged."""
    warnings: tuple[str, ...] = ()

    @property
    def honest(self) -> bool:
        """Whether the values of a trajectory do not depend on it; one trajectory alone is fitted to itself."""
        return self.fold is None or len(self.fold) > 1


@dataclass(frozen=True)
class OwnModel:
    """Q and V of the target policy as functions of the user, which must not have been fitted to the log.

    Both are called on the host with batches, and with the step of each observation as a last argument if they have a
    parameter for it.
    """

    q: Callable[..., Any]
    """Observations [B, ...] and actions [B, ...] (and steps [B]) → [B]."""
    v: Callable[..., Any] | None = None
    """Observations [B, ...] (and steps [B]) → [B]. With discrete actions it follows from Q if it is not given, and must agree
    with it if it is: V(s) = Σ_a π(a | s) Q(s, a)."""

    def values_of(self, data: LoggedData, finite: bool, policy: TargetPolicy) -> ModelValues:
        """Q and V at every step; V after the last one is 0 where the trajectory ended, and at step T if finite."""
        (trajectory, step), seen = rows(data), row_observations(data)
        lengths = np.asarray(data.mask).sum(axis=1)
        moves = step < lengths[trajectory]
        place = trajectory[moves], step[moves]
        ended = np.asarray(data.terminated)[np.arange(len(lengths)), lengths - 1] | (finite & (lengths == data.length))
        values = self._values(data, policy, (seen, step), np.flatnonzero(moves | ~ended[trajectory]))
        q, v = np.zeros((2, *data.mask.shape))
        q[place] = self._asked("q", seen[moves], np.asarray(data.action)[place], step[moves])
        v[place] = values[moves]
        return ModelValues(q, v, np.where(ended, 0.0, values[~moves]))

    def _values(
        self,
        data: LoggedData,
        policy: TargetPolicy,
        table: tuple[np.ndarray, Int[np.ndarray, " R"]],
        going: Int[np.ndarray, " K"],
    ) -> Float[np.ndarray, " R"]:
        """V at rows, which are observations and steps; where the value goes on from Q if V is not given, or else compared."""
        seen, step = table
        if self.v is None:
            if not data.discrete:
                raise InputError("model.v: is missing; must be given for continuous actions")
            computed = np.zeros(len(step))
            for at in np.array_split(going, 1 + len(going) // CHUNK):
                computed[at] = self._expected(data, policy, seen[at], step[at])[0]
            return computed
        found = self._asked("v", seen, step)
        if data.discrete:
            at = going[np.unique(np.linspace(0, len(going) - 1, COMPARED).astype(int))]
            expected, q = self._expected(data, policy, seen[at], step[at])
            apart = np.abs(found[at] - expected)
            if apart.max() > AGREE * q.std() + ROUNDING * np.abs(q).max():
                worst = int(apart.argmax())
                raise InputError(
                    f"model.v: differs from the policy's expectation of model.q by up to {apart.max():.3g}, such as "
                    f"{found[at][worst]:.5g} for {expected[worst]:.5g}, a bias; leave v out, and it is computed"
                )
        return found

    def _expected(
        self, data: LoggedData, policy: TargetPolicy, seen: np.ndarray, step: Int[np.ndarray, " B"]
    ) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, "B A"]]:
        """Σ_a π(a | s) Q(s, a), and Q of all actions."""
        chance = chances(policy, data, seen)
        done = np.asarray(data.action).dtype.type
        each = [self._asked("q", seen, np.full(len(step), a, done), step) for a in range(chance.shape[1])]
        q = np.stack(each, axis=1)
        return (chance / chance.sum(axis=1, keepdims=True) * q).sum(axis=1), q

    def _asked(self, name: str, *arrays: np.ndarray) -> Float[np.ndarray, " B"]:
        function = getattr(self, name)
        taken = len(inspect.signature(function).parameters)
        found = on_host(function, *(arrays if taken >= len(arrays) else arrays[:-1]))
        if found.shape != arrays[0].shape[:1] or not np.isfinite(found).all():
            raise InputError(
                f"model.{name}: has shape {found.shape} or is not finite; must be {len(arrays[0])} finite numbers"
            )
        return np.asarray(found)


def cross_fitted(
    config: FQEConfig, data: LoggedData, policy: TargetPolicy, discount: float, folds: int, key: Key
) -> CrossFitted:
    """Values by fitted Q evaluation: those of a fold are from the fit to the others. One trajectory is fitted to itself."""
    fold = folds_of(data.trajectories, folds, np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist()))
    q, v = np.zeros((2, *data.mask.shape))
    last, fits = np.zeros(len(fold)), []
    room = int(np.asarray(data.mask).sum()) + len(fold)  # the whole log's, whose program may have been compiled already
    for k in range(fold.max() + 1):
        inside = np.flatnonzero(fold == k)
        outside = np.flatnonzero(fold != k) if fold.max() else inside
        own = config if len(outside) > 1 else replace(config, held_out=0.0)
        fits.append(Model(own, data.rows(outside), policy, discount, jax.random.fold_in(key, k), room))
        found = fits[-1].values_of(data.rows(inside))
        assert found.last is not None
        q[inside], v[inside], last[inside] = found.q, found.v, found.last
    notes = next((fit.warnings() for fit in fits if fit.warnings()), ())
    if beyond := out_of_reach(data, discount, bool(config.time_feature), float(v[:, 0].mean())):
        notes = (f"{MODEL_DIVERGED}: its J {beyond}", *notes)
    return CrossFitted(
        values=ModelValues(q, v, last),
        fold=fold,
        bellman_error=float(np.sqrt(np.mean([float(fit.fitted.bellman_error) ** 2 for fit in fits]))),
        converged=not beyond and all(bool(fit.fitted.converged) for fit in fits),
        warnings=notes,
    )


def folds_of(trajectories: int, folds: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """A fold for each trajectory, at random and of equal sizes to within one.

    >>> sorted(folds_of(5, 2, np.random.default_rng(0)).tolist())
    [0, 0, 0, 1, 1]
    """
    return rng.permutation(np.arange(trajectories) % min(folds, trajectories))
