"""Low-variance estimates of J by control variates along the trajectory.

    G_cv = G − [V̂(s_0) − E_μ V̂] − Σ_t γ^t [Q̂(s_t, a_t) − E_π Q̂(s_t, ·)] − Σ_t γ^{t+1} [V̂(s_{t+1}) − E V̂(s')]

Each bracket has mean 0 given what came before it, so E G_cv = J for any V̂, Q̂ that were fixed before the rollouts; with the
true ones, and rewards that are functions of (s, a), G_cv = J on every trajectory. The mean of G_cv is an *estimate*: a
bound would need the range of G_cv, which is far wider than that of G.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.stats import inputs


@dataclass(frozen=True)
class Trajectories:
    """Rewards of n trajectories [n, T] with what V̂ and Q̂ say along them; entries where the mask is 0 are not used."""

    rewards: ArrayLike
    mask: ArrayLike
    """1 for steps that were taken, which are the first of each row; 0 after the ends of episodes."""
    v0: ArrayLike
    """V̂ at start states [n]."""
    mean_v0: float
    """Its exact mean over start states, or a mean over independent start states."""
    q: ArrayLike
    """Q̂ of the action that was taken."""
    expected_q: ArrayLike
    """Its mean over the policy's actions in that state."""
    v_next: ArrayLike
    """V̂ of the state that followed."""
    expected_v_next: ArrayLike
    """Its mean over possible next states, where those that end the episode count as 0."""
    terminated: ArrayLike | None = None
    """1 for steps that ended the episode: V̂ counts as 0 after them, whatever v_next is. The bracket of such a step remains,
    because the step might not have ended it."""


def trajectory_estimate(
    trajectories: Trajectories, discount: float, horizon: int | None = None
) -> Float[np.ndarray, " n"]:
    """G_cv [n] of trajectories.

    `horizon` is the number of steps after which every return ends by definition; V̂ counts as 0 after the last of them, in both
    terms. It is the world's and not the length of the longest row: a bracket that is omitted depending on the rollouts would
    not have mean 0.

    >>> steps = {"rewards": [[1.0, 5.0]], "mask": [[1, 0]], "q": [[1.0, 0.0]], "expected_q": [[0.5, 0.0]]}
    >>> after = {"v_next": [[4.0, 0.0]], "expected_v_next": [[1.0, 0.0]]}
    >>> trajectory_estimate(Trajectories(**steps, **after, v0=[2.0], mean_v0=1.5), discount=0.5)
    array([-1.5])
    """
    taken = _table("mask", trajectories.mask)
    if not np.isin(taken, (0.0, 1.0)).all() or (np.diff(taken, axis=1) > 0).any():
        raise InputError("mask: must be 1 for the first steps of each row, those that were taken, and 0 after them")
    if not 0 <= discount <= 1:
        raise InputError(f"discount: {discount:g} is not allowed; must be a number from 0 to 1")
    n, T = taken.shape
    if horizon is not None and horizon < T:
        raise InputError(
            f"horizon: {horizon} is less than the {T} steps of the rewards; must be the world's time limit"
        )
    ended = (
        np.zeros_like(taken)
        if trajectories.terminated is None
        else _table("terminated", trajectories.terminated, taken)
    )
    surprise_a = _table("q", trajectories.q, taken) - _table("expected_q", trajectories.expected_q, taken)
    surprise_s = np.where(ended > 0, 0.0, _table("v_next", trajectories.v_next, taken))
    surprise_s -= _table("expected_v_next", trajectories.expected_v_next, taken)
    if horizon == T:
        surprise_s[:, -1] = 0.0
    steps = _table("rewards", trajectories.rewards, taken) - surprise_a - discount * surprise_s
    start = inputs.same_length("v0", trajectories.v0, n) - float(trajectories.mean_v0)
    return steps @ discount ** np.arange(T) - start


def _table(name: str, values: ArrayLike, taken: Float[np.ndarray, "n T"] | None = None) -> Float[np.ndarray, "n T"]:
    """Numbers [n, T], set to 0 where no step was taken."""
    found = inputs.numbers(name, values)
    if found.ndim != 2 or not found.size:
        raise InputError(f"{name}: has shape {found.shape}; must be [rollouts, steps]")
    if taken is None:
        return found
    if found.shape != taken.shape:
        raise InputError(f"{name}: has shape {found.shape}; must be {taken.shape}, that of the mask")
    return inputs.array(name, np.where(taken > 0, found, 0.0))
