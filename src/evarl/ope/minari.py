"""Logged data from Minari data sets (https://minari.farama.org); requires the extra `evarl[minari]`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData

BehaviourLogProb = Callable[[np.ndarray, np.ndarray], np.ndarray]


def from_minari(dataset: Any, log_prob: BehaviourLogProb | str | None = None) -> LoggedData:
    """Logged data from a Minari data set, given as an object or by the id of one on this machine.

    Minari does not record the probabilities of actions. `log_prob` is a function that computes their logarithms,
    (observations [L, ...], actions [L, ...]) → [L], or the name of an entry of `infos` that holds them; without it only
    fitted Q evaluation is possible.
    """
    if isinstance(dataset, str):
        dataset = _load(dataset)
    return LoggedData.from_episodes([_episode(episode, log_prob) for episode in dataset.iterate_episodes()])


def _episode(episode: Any, log_prob: BehaviourLogProb | str | None) -> dict[str, Any]:
    observation, action = episode.observations, episode.actions
    for name, value in (("observation", observation), ("action", action)):
        if not isinstance(value, np.ndarray):
            raise InputError(
                f"{name}: episode {episode.id} has a {type(value).__name__}; must be an array, so flatten it first"
            )
    terminated, truncated = bool(episode.terminations[-1]), bool(episode.truncations[-1])
    fields = {
        "observation": observation[:-1],
        "action": action,
        "reward": episode.rewards,
        "terminated": terminated,
        "truncated": truncated and not terminated,
        "final_observation": observation[-1],
    }
    if callable(log_prob):
        fields["log_prob"] = np.asarray(log_prob(observation[:-1], action))
    elif log_prob is not None:
        if log_prob not in (episode.infos or {}):
            known = ", ".join(episode.infos or {}) or "nothing"
            raise InputError(f"log_prob: infos of episode {episode.id} have no '{log_prob}'; must be one of: {known}")
        fields["log_prob"] = np.asarray(episode.infos[log_prob])[: len(episode.rewards)]
    return fields


def _load(name: str) -> Any:
    try:
        import minari
    except ImportError as error:
        raise InputError("minari: is not installed; install it with: pip install 'evarl[minari]'") from error
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"minari: cannot load '{name}' ({error}); must be one that `minari list local` shows"
        ) from error
