"""Which start states an assessment should have: greedy A-optimal design for a linear-Gaussian surrogate. NumPy only.

Assessment returns x at n candidates and values v at q queries are taken to be jointly Gaussian over policies (and contexts). A
return is observed with noise, y_i = x_i + ε_i. Given the returns at the chosen candidates S, the expected squared error of the
best predictor of v, summed over queries, is the trace of its posterior covariance,

    tr(Σ_vv) − tr(Σ_vS (Σ_SS + N_S)⁻¹ Σ_Sv)

It does not depend on what is observed, so that start states can be chosen before any evaluator is fitted.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from evarl.errors import InputError

TIE = 1e-9
"""Relative difference below which two reductions of the error are equal, and below which one of the error is none."""


class Choice(NamedTuple):
    """Candidates that were chosen, and what each was good for."""

    chosen: Int[np.ndarray, " k"]
    """Positions among the candidates, in the order in which they were chosen."""
    error: Float[np.ndarray, " steps"]
    """[k + 1] expected squared error, summed over queries: before the first choice, and after each."""


def choose_greedily(covariance: Float[np.ndarray, "M M"], noise: Float[np.ndarray, " n"], count: int) -> Choice:
    """Choose `count` of n candidates one after the other, each time the one that lowers the expected error most.

    `covariance` is that of (x, v), the candidates before the queries; `noise` is the variance of each ε_i. With Σ conditional on
    what was chosen before and c = Σ_ii + noise_i, candidate i lowers the trace by Σ_q Σ_qi² / c, and Σ loses Σ_:i Σ_i: / c. Of
    equally good candidates the first is chosen, and none twice.

    >>> found = choose_greedily(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.9], [0.5, 0.9, 2.0]]), np.zeros(2), 2)
    >>> found.chosen.tolist(), found.error.round(2).tolist()
    ([1, 0], [2.0, 1.19, 0.94])
    """
    left, candidates = np.array(covariance, np.float64), len(noise)
    if not 1 <= count <= candidates:
        raise InputError(f"assessment.scenarios: {count} of {candidates} candidates cannot be chosen")
    chosen: list[int] = []
    errors = [float(np.trace(left[candidates:, candidates:]))]
    for _ in range(count):
        variance = np.diag(left)[:candidates] + noise
        informative = variance > TIE * np.maximum(np.diag(covariance)[:candidates] + noise, np.finfo(float).tiny)
        squares = np.sum(left[candidates:, :candidates] ** 2, axis=0)
        gain = np.where(informative, squares / np.where(informative, variance, 1.0), 0.0)
        if not chosen and gain.max() <= TIE * errors[0]:
            raise InputError(
                f"assessment.select: none of the {candidates} candidates says anything about the values of policies, so none can "
                "be preferred; use a longer --assessment.horizon, more --assessment.base-updates, or --assessment.select random"
            )
        gain[chosen] = -np.inf
        best = int(np.flatnonzero(gain >= gain.max() - TIE * errors[0])[0])
        if gain[best] > 0:
            left -= np.outer(left[:, best], left[best]) / variance[best]
        chosen.append(best)
        errors.append(errors[-1] - float(gain[best]))
    return Choice(np.asarray(chosen), np.asarray(errors))


def shrunk_covariance(samples: Float[np.ndarray, "samples M"]) -> Float[np.ndarray, "M M"]:
    """The empirical covariance with its off-diagonal entries shrunk towards 0, s_ij ← (1 − λ) s_ij.

    λ = Σ_i≠j Var(r_ij) / Σ_i≠j r_ij², at most 1, from the correlations r_ij: what minimises their expected squared error, with
    both sums estimated from the samples (Schäfer and Strimmer, 2005). The result is positive semi-definite.
    """
    count = len(samples)
    if count < 2:
        raise InputError(
            f"assessment.select: {count} sample of policies and contexts has no covariance; must be at least 2"
        )
    deviation, centred = samples.std(axis=0, ddof=1), samples - samples.mean(axis=0)
    varies = deviation > TIE * (np.abs(samples).max(axis=0) + np.finfo(float).tiny)
    scaled = np.where(varies, centred / np.where(varies, deviation, 1.0), 0.0)
    correlation = scaled.T @ scaled / (count - 1)
    mean = correlation * (count - 1) / count  # of the products of which r_ij is made
    spread = np.maximum((scaled**2).T @ scaled**2 - count * mean**2, 0.0) * count / (count - 1) ** 3
    off = ~np.eye(samples.shape[1], dtype=bool)
    total = float((correlation[off] ** 2).sum())
    share = min(1.0, float(spread[off].sum()) / total) if total > 0 else 1.0
    return np.where(off, 1.0 - share, 1.0) * correlation * np.outer(deviation, deviation)


def choose_from_rollouts(
    returns: Float[np.ndarray, "samples n R"], values: Float[np.ndarray, "samples q"], count: int, replicates: int
) -> Choice:
    """Choose candidates from what some policies (in some contexts) returned there, and from their values at queries.

    Every candidate was rolled out R times by each, and is to be observed by the mean of `replicates` ≤ R rollouts. With the
    variance σ² between rollouts of one policy, that is the mean over R with additional noise of σ² (1/replicates − 1/R).
    """
    rollouts = returns.shape[2]
    between = returns.var(axis=2, ddof=1).mean(axis=0) if rollouts > 1 else np.zeros(returns.shape[1])
    joint = shrunk_covariance(np.concatenate([returns.mean(axis=2), values], axis=1).astype(np.float64))
    return choose_greedily(joint, between * (1.0 / replicates - 1.0 / rollouts), count)
