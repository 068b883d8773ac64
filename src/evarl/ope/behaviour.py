"""The behaviour policy, estimated from the logged actions where their log-probabilities were not recorded.

    discrete    multinomial logistic regression: log π_b(a|s) = x(s)ᵀβ_a − log Σ_b exp x(s)ᵀβ_b
    continuous  π_b(·|s) = N(Bᵀx(s), diag σ²), by least squares

x(s) holds 1 and the standardised entries of the observation, with their squares and products where there are at most 12. Both
are cross-fitted: the log-probabilities of a trajectory come from a fit to the other folds. They are as good as the form of the
policy is; an observation that does not show what the behaviour policy saw makes them wrong.
"""

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.optimize import minimize
from scipy.special import log_softmax

from evarl.ope.cross_fitting import folds_of
from evarl.ope.dataset import LoggedData

FEW = 12
"""Entries of an observation of which products are features too."""
RIDGE = 1e-3
"""Penalty on the squares of coefficients, as a share of the mean squared feature."""


def estimated_log_prob(data: LoggedData, folds: int, rng: np.random.Generator) -> Float[np.ndarray, "N T"]:
    """Log-probabilities (densities) of the logged actions under policies fitted to the other folds; 0 in the padding."""
    mask, found = np.asarray(data.mask), np.zeros(data.mask.shape)
    trajectory, _ = np.nonzero(mask)
    features, action = _features(np.asarray(data.observation)[mask]), np.asarray(data.action)[mask]
    part = folds_of(data.trajectories, folds, rng)[trajectory]
    values = np.zeros(len(part))
    for k in range(part.max() + 1):
        inside = part == k
        outside = ~inside if part.max() else inside
        fit = _logistic if data.discrete else _gaussian
        values[inside] = fit(features[outside], action[outside], features[inside], action[inside])
    found[mask] = values
    return found


def _features(observation: Shaped[np.ndarray, "R ..."]) -> Float[np.ndarray, "R F"]:
    flat = observation.reshape(len(observation), -1).astype(np.float64)
    deviation = flat.std(axis=0)
    flat = (flat - flat.mean(axis=0)) / np.where(deviation > 1e-9 * np.abs(flat).max(axis=0), deviation, 1.0)
    if flat.shape[1] <= FEW:
        i, j = np.triu_indices(flat.shape[1])
        flat = np.concatenate([flat, flat[:, i] * flat[:, j]], axis=1)
    return np.concatenate([np.ones((len(flat), 1)), flat], axis=1)


def _logistic(
    x: Float[np.ndarray, "M F"],
    action: Int[np.ndarray, " M"],
    there: Float[np.ndarray, "K F"],
    done: Int[np.ndarray, " K"],
) -> Float[np.ndarray, " K"]:
    """Log-probabilities of `done` at features `there`, by logistic regression of `action` on `x`."""
    count = 1 + int(max(action.max(), done.max()))
    taken = np.eye(count)[action]
    penalty = RIDGE * (np.arange(x.shape[1]) > 0)[:, None] / len(x)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(x.shape[1], count)
        log = log_softmax(x @ weights, axis=1)
        slope = x.T @ (np.exp(log) - taken) / len(x) + penalty * weights
        return float(-(log * taken).sum() / len(x) + (penalty * weights**2).sum() / 2), slope.ravel()

    weights = minimize(loss, np.zeros(x.shape[1] * count), jac=True, method="L-BFGS-B").x.reshape(-1, count)
    return np.asarray(log_softmax(there @ weights, axis=1)[np.arange(len(done)), done])


def _gaussian(
    x: Float[np.ndarray, "M F"],
    action: Float[np.ndarray, "M ..."],
    there: Float[np.ndarray, "K F"],
    done: Float[np.ndarray, "K ..."],
) -> Float[np.ndarray, " K"]:
    """Log-densities of `done` at features `there`, by regression of `action` on `x`."""
    action, done = (y.reshape(len(y), -1).astype(np.float64) for y in (action, done))
    weights = np.linalg.lstsq(x, action, rcond=None)[0]
    deviation = np.maximum((action - x @ weights).std(axis=0), 1e-6 * np.abs(action).max(axis=0) + 1e-12)
    z = (done - there @ weights) / deviation
    return np.asarray(-(z**2 / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum(axis=1))
