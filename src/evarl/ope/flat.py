"""Flat logs, in which the steps of all trajectories follow one another, as arrays of trajectories."""

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int, Shaped

from evarl.errors import InputError

MissingFinal = Literal["repeat", "drop", "refuse"]
"""What is done with a trajectory that goes on after its last step, where the observation there was not logged."""
D4RL = {
    "observations": "observation",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "timeouts": "truncated",
    "next_observations": "next_observation",
    "infos/action_log_probs": "log_prob",
}
"""Names of D4RL, and those of logged data for the same."""
REQUIRED = ("observations", "actions", "rewards", "terminals")
FLAGS = ("terminated", "truncated")


class MissingFinalObservation(UserWarning):
    """Some trajectories were cut, or ended by a time limit, without the observation that follows."""


def flat_fields(given: Mapping[str, Any], missing_final: MissingFinal = "repeat") -> dict[str, Any]:
    """The fields of logged data, as arrays [N, T, ...], of a log in the layout of D4RL.

    A trajectory ends where `terminals` or `timeouts` is set, and where the log ends; where both are, it is terminated.
    """
    if not isinstance(given, Mapping):
        raise InputError(
            f"fields: {given!r:.60} is not allowed; must be a dict of arrays by their names, {', '.join(REQUIRED)} …"
        )
    check_names(given, D4RL, REQUIRED, "is not a field of flat logs")
    for name in given:
        if "log_prob" in name and name not in D4RL:
            raise InputError(f"{name}: is not a field of flat logs; did you mean infos/action_log_probs?")
    steps = {ours: np.asarray(given[theirs]) for theirs, ours in D4RL.items() if given.get(theirs) is not None}
    count = len(steps["reward"]) if steps["reward"].ndim == 1 else 0
    if not count:
        raise InputError(f"rewards: have shape {steps['reward'].shape}; must be [S], one for each step, at least one")
    for theirs, ours in D4RL.items():
        if ours in steps:
            expected = (count,) if ours in (*FLAGS, "reward", "log_prob") else (count, *steps[ours].shape[1:])
            if steps[ours].shape != expected:
                raise InputError(f"{theirs}: have shape {steps[ours].shape}; must be [{count}], as the rewards")
            _check_numbers(theirs, steps[ours], ours in FLAGS)
    for name in FLAGS:
        steps[name] = np.asarray(steps.get(name, np.zeros(count, bool))).astype(bool)
    ends = steps["terminated"] | steps["truncated"]
    if "timeouts" not in given and not ends.any():
        raise InputError("timeouts: are missing, and no step is terminal; must tell where trajectories end")
    ends[-1] = True
    following = steps.pop("next_observation", None)
    lengths = np.diff(np.flatnonzero(ends), prepend=-1)
    last = np.flatnonzero(ends)
    final, known = steps["observation"][last], np.zeros(len(last), bool)
    if following is not None:
        if following.shape != steps["observation"].shape:
            raise InputError(
                f"next_observations: have shape {following.shape}; must be {steps['observation'].shape}, as observations"
            )
        final, known = following[last], np.ones(len(last), bool)
    return trajectories_of(steps, lengths, final, known, missing_final)


def trajectories_of(
    steps: dict[str, np.ndarray],
    lengths: Int[np.ndarray, " N"],
    final: Shaped[np.ndarray, "N ..."],
    known: Bool[np.ndarray, " N"],
    missing_final: MissingFinal,
) -> dict[str, Any]:
    """The fields of logged data of steps [S, ...] in their order, the first `lengths[0]` of them those of trajectory 0.

    `final` are the observations after the last steps where they are `known`, and the last observations elsewhere. A
    trajectory that terminated needs none, since nothing follows.
    """
    last = np.cumsum(lengths) - 1
    steps = steps | {"truncated": steps["truncated"] & ~steps["terminated"]}
    needed = ~known & ~steps["terminated"][last]
    if needed.any():
        lengths, final, steps = _without_final(steps, lengths, final, needed, missing_final)
    longest, count = int(lengths.max()), len(lengths)
    mask = np.arange(longest)[None] < lengths[:, None]
    fields: dict[str, Any] = {"mask": mask, "final_observation": final}
    for name, column in steps.items():
        fields[name] = np.zeros((count, longest, *column.shape[1:]), column.dtype)
        fields[name][mask] = column
    return fields


def _without_final(
    steps: dict[str, np.ndarray],
    lengths: Int[np.ndarray, " N"],
    final: Shaped[np.ndarray, "N ..."],
    needed: Bool[np.ndarray, " N"],
    missing_final: MissingFinal,
) -> tuple[Int[np.ndarray, " N"], Shaped[np.ndarray, "N ..."], dict[str, np.ndarray]]:
    """Lengths, final observations and steps where `needed` ones are missing, with a warning."""
    if missing_final not in ("repeat", "drop", "refuse"):
        raise InputError(f"missing-final: {missing_final!r} is not allowed; must be repeat, drop or refuse")
    short = needed & (lengths < lengths.max())
    told = (
        f"final_observation: is missing in {needed.sum()} of {len(lengths)} trajectories that did not terminate, first in "
        f"trajectory {needed.argmax()}"
    )
    if missing_final == "refuse":
        raise InputError(f"{told}; must be given, or set missing-final to repeat or drop")
    if missing_final == "repeat":
        warnings.warn(
            f"{told}; the last observation stands for it. Importance sampling does not use it, nor does any method with a finite "
            f"horizon but in the {short.sum()} of them that are shorter than the longest",
            MissingFinalObservation,
            stacklevel=5,
        )
        return lengths, final, steps
    if (alone := needed & (lengths == 1)).any():
        raise InputError(f"{told}; trajectory {alone.argmax()} has one step, which cannot be left out")
    kept = np.ones(len(steps["reward"]), bool)
    kept[(np.cumsum(lengths) - 1)[needed]] = False
    warnings.warn(
        f"{told}; their last steps are left out, and the observations there are the final ones. The returns of these "
        "trajectories lack a reward",
        MissingFinalObservation,
        stacklevel=5,
    )
    return lengths - needed, final, {name: column[kept] for name, column in steps.items()}


def check_names(given: Iterable[str], names: Iterable[str], required: Iterable[str], what: str) -> None:
    """Raise InputError if a required name is missing, or if a name is nearly that of an optional one that is missing.

    Whatever else there is, such as positions that a simulator reported, is left out of the log.
    """
    given, names = list(given), list(names)
    absent = [name for name in names if name not in given]
    for name in given:
        if name not in names and (near := difflib.get_close_matches(name, absent, n=1, cutoff=0.8)):
            raise InputError(f"{name}: {what}; did you mean {near[0]}?")
    for name in required:
        if name not in given:
            raise InputError(f"{name}: {'are' if name.endswith('s') else 'is'} missing; must be given for each step")


def _check_numbers(name: str, array: np.ndarray, flag: bool) -> None:
    """Raise InputError with the row of the first entry that is no finite number, or no flag."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: have type {array.dtype}; must be numbers")
    rows = array.reshape(len(array), -1)
    wrong = ~np.isin(rows, (0, 1)) if flag and array.dtype != bool else ~np.isfinite(rows)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        must = "0 or 1" if flag else "finite"
        raise InputError(f"{name}: {rows[row, column]} in row {row} (counted from 0) is not allowed; must be {must}")
