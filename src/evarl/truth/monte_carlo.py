"""Values by Monte Carlo: mean returns of a policy from given states, with standard errors."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from evarl.errors import InputError
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_rollouts
from evarl.worlds.world import AnyWorld, Key


class Truth(NamedTuple):
    """Values of Q states, each estimated from R rollouts."""

    value: Float[np.ndarray, " Q"]
    """Mean discounted return."""
    standard_error: Float[np.ndarray, " Q"]
    """Of `value`: √(Σ_r (G_r − Ḡ)² / (R (R − 1)))."""
    undiscounted: Float[np.ndarray, " Q"]
    """Mean undiscounted return."""
    rollouts: int
    """R."""


def true_values(
    world: AnyWorld, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None
) -> Truth:
    """Values of a policy at Q states, estimated from `rollouts` episodes each; `at_once` episodes run at a time.

    In a host world a state is a reset seed, which fixes the world's own randomness: its standard error is that of the
    policy's randomness alone, and 0 for a deterministic policy.
    """
    if rollouts < 2:
        raise InputError(f"rollouts: {rollouts} is not allowed; a standard error requires at least 2")
    check_rollouts("rollouts", rollouts, starts.drawn)
    discounted, undiscounted = simulator_for(world).returns(act, starts, key, rollouts, at_once)
    return Truth(
        value=discounted.mean(axis=1),
        standard_error=discounted.std(axis=1, ddof=1) / rollouts**0.5,
        undiscounted=undiscounted.mean(axis=1),
        rollouts=rollouts,
    )


def mean_squared_error(truth: Truth, prediction: Float[np.ndarray | Array, " Q"]) -> float:
    """Mean over states of (V̄ − V̂)² − se², unbiased for that of (V − V̂)².

    The variance of the estimated values adds to the squared error and is subtracted, so the result for an accurate
    prediction can be negative by chance. It is left negative: clipped at 0, averages over runs would be biased.

    >>> truth = Truth(np.array([1.0, 2.0]), np.array([0.5, 0.5]), np.array([1.0, 2.0]), rollouts=4)
    >>> mean_squared_error(truth, np.array([2.0, 2.0]))
    0.25
    """
    error = truth.value - np.asarray(prediction, np.float64)
    return float(np.mean(error**2 - truth.standard_error**2))
