"""The Pareto k̂ diagnostic: how heavy the upper tail of importance weights, or of contributions, is."""

import numpy as np
from jaxtyping import Float

LEAST = 5
"""Fewest numbers of a tail that a distribution is fitted to."""
PRIOR = 10
"""Weight, in observations, of the prior mean 0.5 of k."""


def pareto_k(values: Float[np.ndarray, " N"]) -> float | None:
    """The shape k̂ of a generalised Pareto distribution fitted to the largest of N numbers ≥ 0; None where there is no tail.

    The tail is the min(N/5, 3√N) largest. Moments of order 1/k and more are infinite: with k ≥ 0.5 the variance, so that a
    standard error means nothing, and with k ≥ 1 the mean. Numbers of which too few are distinct have no tail to fit.

    Zhang & Stephens (2009), A new and efficient estimation method for the generalized Pareto distribution; the size of the
    tail and the prior are those of Vehtari et al. (2024), Pareto smoothed importance sampling.

    >>> uniform = (np.arange(1000) + 0.5) / 1000
    >>> [round(pareto_k(uniform**-k), 1) for k in (0.25, 0.5, 1.0)]
    [0.3, 0.5, 0.9]
    >>> pareto_k(np.ones(1000))
    """
    ordered = np.sort(values)
    size = int(min(len(ordered) / 5, 3 * len(ordered) ** 0.5))
    if size < LEAST or not np.isfinite(ordered[-1]):
        return None
    cutoff = ordered[-size - 1]
    excess = ordered[ordered > cutoff] - cutoff
    if len(excess) < LEAST or excess[0] == excess[-1]:
        return None
    return (len(excess) * _shape(excess / excess[-1]) + PRIOR * 0.5) / (len(excess) + PRIOR)


def _shape(x: Float[np.ndarray, " M"]) -> float:
    """The shape of a generalised Pareto distribution with lower end 0, from ordered numbers up to 1.

    With θ = −k/σ, the profile likelihood is ℓ(θ) = M (log(−θ/k) − k − 1), k(θ) = mean log(1 − θ x); θ is its mean under the
    prior of the authors, on a grid.
    """
    grid = 30 + int(len(x) ** 0.5)
    quartile = x[int(len(x) / 4 + 0.5) - 1]
    theta = 1.0 + (1.0 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3.0 * quartile)
    theta = np.where(np.abs(theta) < 1e-12, 1e-12, theta)  # an exponential tail, the limit of both
    k = np.log1p(-theta[:, None] * x[None]).mean(axis=1)
    likelihood = len(x) * (np.log(-theta / k) - k - 1.0)
    weight = np.exp(likelihood - likelihood.max())
    return float(np.log1p(-(weight @ theta) / weight.sum() * x).mean())
