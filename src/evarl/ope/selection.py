"""Selection among estimators of one family that trade bias for variance, by SLOPE (`evarl.stats.slope`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from evarl.errors import InputError, unknown_name
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories, finite_weights, trajectories
from evarl.stats.intervals import Interval
from evarl.stats.selection import Candidate, Selection, slope

Family = Literal["clip", "window", "width"]
FAMILIES: tuple[Family, ...] = ("clip", "window", "width")
Member = float | None
DEFAULT = Settings()
CLIPS = (None, 2.0, 1.0, 0.5, 0.25, 0.0)
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, None)


@dataclass(frozen=True)
class SelectedEstimate:
    """The estimate that was chosen, with all candidates and the reason."""

    value: float
    standard_error: float
    """Around the estimate's own mean, so without its bias."""
    interval: Interval | None
    """That of the candidate without bias, simultaneous and asymptotic: the chosen one's own interval does not know its bias.
    None for a family in which all are biased, and where that candidate was left out because its weights have collapsed."""
    selection: Selection
    why: str
    warnings: tuple[str, ...] = ()


def select(
    log: Log,
    policy: TargetPolicy,
    settings: Settings = DEFAULT,
    *,
    family: Family = "window",
    members: Sequence[Member] | None = None,
) -> SelectedEstimate:
    """The estimate of J that SLOPE selects from a family of per-decision estimates, or of V at the one state of the log.

        clip     the log-ratio of a step is limited to `member`; None for no limit
        window   the weight at t is that of the last `member` actions; None for all, 0 for none
        width    V at `log.states`, from trajectories that start near it: a Gaussian kernel of `member` times Silverman's width;
                 None for all trajectories

    Candidates whose weights have collapsed have no interval that could be right, and are left out with a warning.
    """
    settings.validate()
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    if settings.clip is not None:
        raise InputError(
            f"clip: {settings.clip:g} is not allowed here; must be None, so that one candidate has no bias"
        )
    logged = trajectories(log, policy, settings)
    count, steps = logged.mask.shape
    tried = _members(family, steps) if members is None else _ordered(family, members)
    # −∞ where the policy never takes the logged action
    ratio = np.where(logged.mask, np.asarray(log.steps(policy).log_ratio, np.float64), 0.0)
    usable: list[Candidate] = []
    lost: list[str] = []
    for member in tried:
        name = f"{family} {'none' if member is None else format(member, 'g')}"
        shares = _kernel(log, member) if family == "width" else np.full(count, 1.0 / count)
        log_weight = {"clip": _clipped, "window": _windowed, "width": _whole}[family](ratio, member)
        if _least_size(log_weight, shares) < max(settings.warn_below / float(shares @ shares), 2.0):
            lost.append(name)
        else:
            usable.append(_candidate(name, logged, finite_weights(log_weight), shares))
    if not usable:
        raise InputError("members: the weights of all candidates have collapsed; must have one that takes less of them")
    found = slope(usable, settings.confidence, ordered=True)
    notes: tuple[str, ...] = ()
    if lost:
        notes = (
            f"{', '.join(lost)}: left out, since the weights have collapsed; a bias of {usable[0].name} cannot be noticed",
        )
    sound = family != "width" and tried[0] is None and not lost
    return SelectedEstimate(
        found.chosen.value, found.chosen.standard_error, found.first if sound else None, found, found.why, notes
    )


def _members(family: Family, steps: int) -> tuple[Member, ...]:
    if family != "window":
        return CLIPS if family == "clip" else WIDTHS
    powers = [2**k for k in range(steps.bit_length()) if 2**k < steps]
    return (None, *reversed(powers), 0)


def _ordered(family: Family, members: Sequence[Member]) -> tuple[Member, ...]:
    """The members by their bias, the least first."""
    for member in members:
        least = -np.inf if family == "clip" else 0
        if member is not None and not (
            np.isfinite(member) and member >= least and not (family == "width" and member == 0)
        ):
            allowed = {"clip": "finite", "window": "numbers of actions, 0 or more", "width": "above 0"}[family]
            raise InputError(f"members: {member} is not allowed; must be {allowed}, or None")
    size = {member: np.inf if member is None else float(member) for member in members}
    return tuple(sorted(size, key=lambda member: size[member], reverse=family != "width"))


def _clipped(ratio: Float[np.ndarray, "N T"], limit: Member) -> Float[np.ndarray, "N T"]:
    """Log-weights from ratios with a limit."""
    return np.cumsum(ratio if limit is None else np.minimum(ratio, limit), axis=1)


def _windowed(ratio: Float[np.ndarray, "N T"], last: Member) -> Float[np.ndarray, "N T"]:
    """Log-weights of the last actions; those that are impossible are counted, since −∞ cannot be subtracted again."""
    steps = ratio.shape[1]
    size = steps if last is None else int(last)
    impossible = np.isneginf(ratio)

    def recent(x: Float[np.ndarray, "N T"]) -> Float[np.ndarray, "N T"]:
        total = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1)], axis=1)
        return total[:, 1:] - total[:, np.maximum(np.arange(1, steps + 1) - size, 0)]

    return np.where(recent(impossible.astype(np.float64)) > 0, -np.inf, recent(np.where(impossible, 0.0, ratio)))


def _whole(ratio: Float[np.ndarray, "N T"], width: Member) -> Float[np.ndarray, "N T"]:
    return np.cumsum(ratio, axis=1)


def _kernel(log: Log, member: Member) -> Float[np.ndarray, " N"]:
    """Shares of the trajectories by the distance of their starts from the one state of the log."""
    if log.states is None or len(log.states) != 1:
        raise InputError(
            f"states: {0 if log.states is None else len(log.states)} are given; must be one for a selection of width"
        )
    starts = np.asarray(log.data.observation[:, 0], np.float64).reshape(log.data.trajectories, -1)
    spread = starts.std(axis=0)
    scaled = (starts - np.asarray(log.states, np.float64).reshape(1, -1)) / np.where(spread > 1e-5, spread, 1.0)
    distance = (scaled**2).sum(axis=1)
    width = np.inf if member is None else float(member) * len(starts) ** (-1.0 / (starts.shape[1] + 4.0))
    kernel = np.exp(-(distance - distance.min()) / (2 * width**2))
    return np.asarray(kernel / kernel.sum())


def _candidate(
    name: str, logged: Trajectories, weight: Float[np.ndarray, "N T"], shares: Float[np.ndarray, " N"]
) -> Candidate:
    """Σ p x with its standard error, as of 1/Σ p² contributions."""
    x = (logged.reward * weight).sum(axis=1)
    value, size = float(shares @ x), float(1 / (shares @ shares))
    error = float(np.sqrt(((shares * (x - value)) ** 2).sum() * size / max(size - 1, 1e-12)))
    return Candidate(name, value, error, size)


def _least_size(log_weight: Float[np.ndarray, "N T"], shares: Float[np.ndarray, " N"]) -> float:
    """The least effective sample size of the weights of any step."""
    top = log_weight.max(axis=0)
    weight = shares[:, None] * np.exp(log_weight - np.where(np.isfinite(top), top, 0.0))
    return float((weight.sum(axis=0) ** 2 / np.maximum((weight**2).sum(axis=0), 1e-300)).min())
