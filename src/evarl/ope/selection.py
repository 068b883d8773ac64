"""Selection among estimators of one family that trade bias for variance, by SLOPE (`evarl.stats.slope`)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from evarl.errors import InputError, unknown_name
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories, finite_weights, trajectories
from evarl.stats.selection import Candidate, Selection, slope

Family = Literal["clip", "window", "width"]
FAMILIES: tuple[Family, ...] = ("clip", "window", "width")
DEFAULT = Settings()
CLIPS = (None, 2.0, 1.0, 0.5, 0.25, 0.0)
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, None)


def select(
    log: Log,
    policy: TargetPolicy,
    settings: Settings = DEFAULT,
    *,
    family: Family = "window",
    members: Sequence[float | int | None] | None = None,
) -> Selection:
    """The estimate of J that SLOPE selects from a family of per-decision estimates, or of V at the one state of the log.

        clip     the log-ratio of a step is limited to `member`; None for no limit
        window   the weight at t is that of the last `member` actions; None, or T, for all, 0 for none
        width    V at `log.states`, from trajectories that start near it: a Gaussian kernel of `member` times Silverman's width;
                 None for all trajectories

    The candidate with the least bias must be among them: no limit, all actions, or a narrow kernel.
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
    tried = _members(family, steps) if members is None else tuple(members)
    if family == "width":
        candidates = _widths(log, logged, tried)
    else:
        # the log-weights are sums of log-ratios, −∞ from the first action on that the policy never takes
        ratio = np.where(logged.mask, np.asarray(log.steps(policy).log_ratio, np.float64), 0.0)
        of = _clipped if family == "clip" else _windowed
        rows = {_name(family, member): of(logged, ratio, member) for member in tried}
        shares = np.full(count, 1.0 / count)
        candidates = [_candidate(name, x, shares) for name, x in rows.items()]
    notes: tuple[str, ...] = ()
    if logged.effective_sample_size < max(settings.warn_below * count, 1.0):
        notes = (
            f"the weights of whole trajectories have collapsed: effective sample size {logged.effective_sample_size:.1f} of "
            f"{count}, so the first candidate's interval is too narrow to notice the bias of others",
        )
    return slope(candidates, settings.confidence, notes)


def _members(family: Family, steps: int) -> tuple[float | int | None, ...]:
    if family != "window":
        return CLIPS if family == "clip" else WIDTHS
    powers = [2**k for k in range(steps.bit_length()) if 2**k < steps]
    return (None, *reversed(powers), 0)


def _name(family: Family, member: float | int | None) -> str:
    return f"{family} {'none' if member is None else format(member, 'g')}"


def _clipped(logged: Trajectories, ratio: Float[np.ndarray, "N T"], limit: float | None) -> Float[np.ndarray, " N"]:
    kept = ratio if limit is None else np.minimum(ratio, limit)
    return (logged.reward * finite_weights(np.cumsum(kept, axis=1))).sum(axis=1)


def _windowed(logged: Trajectories, ratio: Float[np.ndarray, "N T"], last: float | None) -> Float[np.ndarray, " N"]:
    """Contributions with weights of the last actions; products of −∞ are kept by counting them."""
    steps = ratio.shape[1]
    size = steps if last is None else int(last)
    if size < 0:
        raise InputError(f"members: {size} is not allowed; must be numbers of actions, 0 or more")
    impossible = np.isneginf(ratio)

    def recent(x: Float[np.ndarray, "N T"]) -> Float[np.ndarray, "N T"]:
        total = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1)], axis=1)
        return total[:, 1:] - total[:, np.maximum(np.arange(1, steps + 1) - size, 0)]

    weight = np.where(recent(impossible.astype(float)) > 0, -np.inf, recent(np.where(impossible, 0.0, ratio)))
    return (logged.reward * finite_weights(weight)).sum(axis=1)


def _widths(log: Log, logged: Trajectories, tried: Sequence[float | int | None]) -> list[Candidate]:
    if log.states is None or len(log.states) != 1:
        raise InputError(
            f"states: {0 if log.states is None else len(log.states)} are given; must be one for a selection of width"
        )
    starts = np.asarray(log.data.observation[:, 0], np.float64).reshape(len(logged.mask), -1)
    spread = starts.std(axis=0)
    scaled = (starts - np.asarray(log.states, np.float64).reshape(1, -1)) / np.where(spread > 1e-5, spread, 1.0)
    distance = (scaled**2).sum(axis=1)
    x = (logged.reward * finite_weights(logged.log_weight)).sum(axis=1)
    silverman = len(starts) ** (-1.0 / (starts.shape[1] + 4.0))
    found = []
    for member in tried:
        width = np.inf if member is None else float(member) * silverman
        if not width > 0:
            raise InputError(f"members: {member} is not allowed; must be widths above 0, or None")
        kernel = np.exp(-(distance - distance.min()) / (2 * width**2))
        found.append(_candidate(_name("width", member), x, kernel / kernel.sum()))
    usable = [one for one in found if one.size >= 2]  # a kernel with one trajectory has no standard error
    if not usable:
        raise InputError("members: no width has two trajectories near the state; must be greater")
    return usable


def _candidate(name: str, x: Float[np.ndarray, " N"], shares: ArrayLike) -> Candidate:
    """Σ p x with its standard error, as of 1/Σ p² contributions."""
    p = np.asarray(shares)
    value, size = float(p @ x), float(1 / (p @ p))
    error = float(np.sqrt(((p * (x - value)) ** 2).sum() * size / max(size - 1, 1e-12)))
    return Candidate(name, value, error, size)
