"""The paper's theory of a fixed linear evaluator, as vectors and matrices in float64: printed and sound results.

The evaluator predicts a state's value by a mean of the values of the assessed states, weighted by similarity. With W its
weights, V̂ = W v and L = Σ μ(s) (v(s) − V̂(s))² = vᵀQv; Q is called `form` in signatures. Rows of W sum to one, hence
**Q1 = 0 while μᵀ1 = 1**: adding a constant to all values increases J and does not change L. The printed bound and
equivalence do not take this into account.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import optimize

from evarl.errors import InputError


@dataclass(frozen=True)
class Counterexample:
    """The printed results and a vector of values that refutes them."""

    null_norm: float
    """‖Q1‖, which is 0, and"""
    mass: float
    """μᵀ1, which is 1."""
    epsilon: float
    bound: float
    """The printed bound on μᵀv subject to vᵀQv ≤ ε²."""
    performance: float
    """μᵀv, and"""
    loss: float
    """vᵀQv, of the constant values v."""
    residual: float
    """The smallest ‖Qv − μ/2β‖ / ‖μ/2β‖ over all v; 0 if the first-order condition of the soft problem has a solution."""

    @property
    def slack(self) -> float:
        """The bound minus μᵀv of a feasible v; negative where the bound fails."""
        return self.bound - self.performance


@dataclass(frozen=True)
class Bounded:
    """The best values below an upper bound."""

    values: Float[np.ndarray, " S"]
    performance: float
    """μᵀv."""
    loss: float
    """vᵀQv."""
    multiplier: float
    """Lagrange multiplier λ of the constraint on L: the same v solves the soft problem with β = λ."""


def similarity_matrix(similarity: ArrayLike, assessed: Sequence[int]) -> Float[np.ndarray, "S S"]:
    """F: f(s, s') in the columns of assessed states, 0 in the others.

    The paper puts the assessed states first; here they keep their places.

    >>> similarity_matrix([[1.0, 0.5], [0.5, 1.0]], assessed=[1]).tolist()
    [[0.0, 0.5], [0.0, 1.0]]
    """
    f = np.asarray(similarity, np.float64)
    if f.ndim != 2 or f.shape[0] != f.shape[1]:
        raise InputError(f"similarity: has shape {f.shape}; must be [S, S]")
    if not assessed or not set(assessed) <= set(range(len(f))):
        raise InputError(
            f"assessed: {list(assessed)} is not allowed; must be at least one of the states 0 … {len(f) - 1}"
        )
    similarities = np.where(np.isin(np.arange(len(f)), assessed), f, 0.0)
    if not (similarities[:, list(assessed)] > 0).all():
        raise InputError("similarity: is not positive; must be positive between every state and the assessed ones")
    return similarities


def evaluator_weights(similarities: Float[np.ndarray, "S S"]) -> Float[np.ndarray, "S S"]:
    """W = diag(F1)⁻¹F, so that V̂ = W v. Its rows are probabilities over the assessed states.

    >>> evaluator_weights(np.array([[1.0, 0.0, 1.0], [3.0, 0.0, 1.0], [1.0, 0.0, 3.0]])).tolist()
    [[0.5, 0.0, 0.5], [0.75, 0.0, 0.25], [0.25, 0.0, 0.75]]
    """
    return similarities / similarities.sum(axis=1, keepdims=True)


def quadratic_form(weights: Float[np.ndarray, "S S"], start: ArrayLike) -> Float[np.ndarray, "S S"]:
    """Q = (I − W)ᵀ diag(μ) (I − W), so that L = vᵀQv."""
    error = np.eye(len(weights)) - weights
    return error.T @ (np.asarray(start, np.float64)[:, None] * error)


def loss(values: ArrayLike, form: Float[np.ndarray, "S S"]) -> float:
    """L = vᵀQv."""
    v = np.asarray(values, np.float64)
    return float(v @ form @ v)


def printed_bound(form: Float[np.ndarray, "S S"], start: ArrayLike, epsilon: float) -> float:
    """ε √(μᵀQ†μ), as printed. **It is not a bound**: see `counterexample`.

    The pseudo-inverse removes the part of μ along 1, along which J is unbounded. If μ is uniform there is no other part, and
    the "bound" is 0.
    """
    mu = np.asarray(start, np.float64)
    # Without a cut-off far above rounding errors, the eigenvalue 0 would be inverted to 1e16.
    squared = float(mu @ np.linalg.pinv(form, rcond=1e-10, hermitian=True) @ mu)
    return epsilon * max(squared, 0.0) ** 0.5


def counterexample(
    form: Float[np.ndarray, "S S"], start: ArrayLike, epsilon: float = 1.0, beta: float = 1.0, value: float = 10.0
) -> Counterexample:
    """The printed results at v = `value` · 1, the values of any policy if every reward is value (1 − γ).

    Since L(v) = 0 for every value, the relaxed hard problem has no maximum; and because 1ᵀ(Qv) = 0 ≠ 1ᵀμ/2β, the
    condition Qv = μ/2β, on which the equivalence of hard and soft problem and the corollary rely, has no solution. The
    smallest relative residual is ‖μ̄1‖ / ‖μ‖.

    >>> one_assessed = quadratic_form(np.array([[1.0, 0.0], [1.0, 0.0]]), [0.5, 0.5])
    >>> found = counterexample(one_assessed, [0.5, 0.5])
    >>> round(found.bound, 9), found.performance, found.loss, round(found.residual, 9)
    (0.0, 10.0, 0.0, 1.0)
    """
    mu = np.asarray(start, np.float64)
    one, target = np.ones(len(mu)), mu / (2 * beta)
    nearest = np.linalg.lstsq(form, target, rcond=1e-10)[0]
    return Counterexample(
        null_norm=float(np.linalg.norm(form @ one)),
        mass=float(mu @ one),
        epsilon=epsilon,
        bound=printed_bound(form, mu, epsilon),
        performance=float(mu @ (value * one)),
        loss=loss(value * one, form),
        residual=float(np.linalg.norm(form @ nearest - target) / np.linalg.norm(target)),
    )


def bounded_optimum(form: Float[np.ndarray, "S S"], start: ArrayLike, epsilon: float, ceiling: ArrayLike) -> Bounded:
    """The maximum of μᵀv subject to vᵀQv ≤ ε² and v ≤ ceiling: a sound version of the relaxed problem, a convex QCLP.

    With V*(s) as the ceiling [S], no policy with L ≤ ε² has a larger J than this. With one ceiling for all states the solution
    is that ceiling, since constants have no loss. The feasible set has an interior for every ε > 0, so that hard and soft
    problem are equivalent here, with β = λ, which differs from the printed β = J/2ε².
    """
    mu, top = np.asarray(start, np.float64), np.broadcast_to(np.asarray(ceiling, np.float64), len(form))
    if epsilon <= 0:
        raise InputError(f"epsilon: {epsilon} is not allowed; must be above 0")
    if loss(top, form) <= epsilon**2:
        return Bounded(top.copy(), float(mu @ top), loss(top, form), 0.0)
    # As Q1 = 0, v = base + εu gives the constraint uᵀQu ≤ 1, which contains u = 0 and has the same scale for every ε and v.
    base = float(top.min())
    found = optimize.minimize(
        lambda u: (-mu @ u, -mu),
        np.zeros(len(top)),
        jac=True,
        method="SLSQP",
        bounds=[(None, high) for high in (top - base) / epsilon],
        constraints={"type": "ineq", "fun": lambda u: 1 - loss(u, form), "jac": lambda u: -2 * form @ u},
        options={"ftol": 1e-10, "maxiter": 1000},
    )
    if not found.success:
        raise InputError(f"the bounded problem was not solved: {found.message}")
    v = np.minimum(base + epsilon * found.x, top)
    # μ − 2λQv is 0 where the ceiling is not reached.
    free, slope = top - v > 1e-7 * (1 + np.abs(top)), 2 * form @ v
    return Bounded(v, float(mu @ v), loss(v, form), float(mu[free] @ slope[free] / (slope[free] @ slope[free])))
