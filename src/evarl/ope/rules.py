"""Rules for the values of states by methods that only weight trajectories: the share of each trajectory in V(s).

    pooled       equal shares of all: J for every s
    per-start    equal shares of those that start at s, as in the paper
    neighbours   a Gaussian kernel between s and their start states

A rule is a matrix of shares [Q, N]; each row sums to 1, or is 0 where the rule selects no trajectory.
"""

import numpy as np
from jaxtyping import Array, Float

from evarl.ope.dataset import LoggedData
from evarl.ope.settings import Rule

SAME = 1e-5
"""Observations that differ by less belong to one state."""


def shares(rule: Rule, data: LoggedData, states: Array | np.ndarray) -> Float[np.ndarray, "Q N"]:
    """The share of each trajectory in the value of each query state [Q, ...].

    >>> data = LoggedData.from_arrays(observation=np.array([[[0.0]], [[1.0]], [[1.0]]]), action=np.zeros((3, 1), int),
    ...     reward=np.ones((3, 1)), final_observation=np.zeros((3, 1)))
    >>> shares("per-start", data, np.array([[1.0], [2.0]])).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    """
    starts, queries = _flat(data.observation[:, 0]), _flat(states)
    count = len(starts)
    if rule == "pooled":
        return np.full((len(queries), count), 1.0 / count)
    scale = starts.std(axis=0) if rule == "neighbours" else np.ones(starts.shape[1])
    distance = _squared_distances(queries, starts, np.where(scale > SAME, scale, 1.0))
    if rule == "per-start":
        same = (distance <= SAME**2).astype(np.float64)
        return same / np.maximum(same.sum(axis=1, keepdims=True), 1.0)
    # Silverman's rule for the width, in units of the spread of start states; relative to the nearest, so that no row is 0
    width = count ** (-1.0 / (starts.shape[1] + 4.0))
    kernel = np.exp(-(distance - distance.min(axis=1, keepdims=True)) / (2.0 * width**2))
    return kernel / kernel.sum(axis=1, keepdims=True)


def _flat(observation: Array | np.ndarray) -> Float[np.ndarray, "B F"]:
    array = np.asarray(observation)
    return array.reshape(len(array), -1).astype(np.float64)


def _squared_distances(
    queries: Float[np.ndarray, "Q F"], starts: Float[np.ndarray, "N F"], scale: Float[np.ndarray, " F"]
) -> Float[np.ndarray, "Q N"]:
    """One query at a time, since Q × N × F numbers may not fit into memory."""
    return np.stack([(((starts - query) / scale) ** 2).sum(axis=1) for query in queries])
