"""Weights and returns of whole logged trajectories in float64, for what needs the return and not only its mean."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from evarl.errors import InputError
from evarl.ope.arguments import check_log_and_policy
from evarl.ope.dataset import LoggedData
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Rewards and cumulated log-weights of N trajectories over T steps."""

    reward: Float[np.ndarray, "N T"]
    """γ^t r_t, 0 in the padding."""
    log_weight: Float[np.ndarray, "N T"]
    """log w_t, of the actions up to t; a trajectory that has ended keeps its last weight."""
    mask: Bool[np.ndarray, "N T"]
    discount: float

    @property
    def returns(self) -> Float[np.ndarray, " N"]:
        """G = Σ_t γ^t r_t. Rows are added up one by one, so that equal trajectories have equal returns."""
        return self.reward.sum(axis=1)

    @property
    def weights(self) -> Float[np.ndarray, " N"]:
        """W of whole trajectories."""
        return finite_weights(self.log_weight[:, -1])

    @property
    def relative_weights(self) -> Float[np.ndarray, " N"]:
        """W in units of the greatest; all 0 where the policy takes none of the logged trajectories."""
        top = self.log_weight[:, -1].max()
        return np.exp(self.log_weight[:, -1] - (top if np.isfinite(top) else 0.0))

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²; 0 where all weights are 0."""
        w = self.relative_weights
        return float(w.sum() ** 2 / (w @ w)) if w.any() else 0.0


def trajectories(log: Log, policy: TargetPolicy, settings: Settings) -> Trajectories:
    """The trajectories of a log that are whole, weighted for a policy; refused where returns are not known."""
    check_log_and_policy(log, policy, settings)
    if log.data.log_prob is None:
        raise InputError("log_prob: is missing in the log; weights of trajectories require it")
    if settings.horizon == "endless":
        raise InputError("horizon: endless is not allowed; must be finite, since a log has returns of its T steps only")
    refuse_cut(log.data)
    steps = log.steps(policy, settings.clip)
    mask = np.asarray(steps.mask)
    reward, log_ratio = (np.where(mask, np.asarray(x, np.float64), 0.0) for x in (steps.reward, steps.log_ratio))
    powers = float(log.discount) ** np.arange(mask.shape[1])
    return Trajectories(reward * powers, np.cumsum(log_ratio, axis=1), mask, float(log.discount))


def refuse_cut(data: LoggedData) -> None:
    """Refuse a log with trajectories that stop before step T without having terminated: their returns are not known."""
    mask = np.asarray(data.mask)
    lengths, count = mask.sum(axis=1), mask.shape[1]
    ended = np.asarray(data.terminated)[np.arange(len(mask)), lengths - 1]
    cut = np.flatnonzero(~ended & (lengths < count))
    if len(cut):
        raise InputError(
            f"log: trajectory {cut[0]} stops after {lengths[cut[0]]} of {count} steps without having terminated, as do "
            f"{len(cut) - 1} others; must be whole, since the return of a cut one is not known"
        )


def finite_weights(log_weight: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Weights from their logarithms; refused where they overflow."""
    if log_weight.max() > 700:
        raise InputError(
            f"weights: the greatest is e^{log_weight.max():.0f}, which overflows; use a self-normalised method, or clip"
        )
    return np.exp(log_weight)
