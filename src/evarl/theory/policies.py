"""Optimal J and L over softmax policies of one finite world, by exact gradients. NumPy and SciPy.

For many worlds at once see `evarl.theory.tabular_study`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from evarl.errors import InputError
from evarl.truth.exact import action_values, policy_values
from evarl.worlds.tabular import Tabular


@dataclass(frozen=True)
class Optimum:
    """The best local optimum of several starts; the problem is not convex."""

    policy: Float[np.ndarray, "S A"]
    """Probabilities."""
    values: Float[np.ndarray, " S"]
    performance: float
    """J = μᵀV."""
    loss: float
    """L = VᵀQV."""


def value_gradient(
    logits: Float[np.ndarray, "S A"], world: Tabular, slope: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "S A"]:
    """∂f(V)/∂logits, where `slope` gives g = ∂f/∂V.

    By the policy gradient theorem with g instead of μ: η(s) π(a|s) (Q(s, a) − V(s)), ηᵀ = gᵀ(I − γP_π)⁻¹.
    """
    policy = special.softmax(logits, axis=1)
    values = policy_values(world, policy)
    assert world.terminal is not None
    moves = np.einsum("sa,sat->st", policy, world.transitions * ~world.terminal)
    visits = np.linalg.solve((np.eye(len(values)) - world.discount * moves).T, slope(values))
    return visits[:, None] * policy * (action_values(world, values) - values[:, None])


def soft_optimum(
    world: Tabular, form: Float[np.ndarray, "S S"], beta: float, starts: int = 16, seed: int = 0
) -> Optimum:
    """The maximum of J − βL over softmax policies: L-BFGS from random logits, the best of all starts."""
    mu = world.start

    def descend(x: np.ndarray) -> tuple[float, np.ndarray]:
        logits = x.reshape(world.rewards.shape)
        found = _at(logits, world, form)
        gradient = value_gradient(logits, world, lambda v: mu - 2 * beta * form @ v)
        return beta * found.loss - found.performance, -gradient.ravel()

    def solve(x: np.ndarray) -> np.ndarray:
        options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-9}
        return optimize.minimize(descend, x, jac=True, method="L-BFGS-B", options=options).x

    found = _from_all_starts(solve, world, form, starts, seed)
    return max(found, key=lambda one: one.performance - beta * one.loss)


def hard_optimum(
    world: Tabular, form: Float[np.ndarray, "S S"], epsilon: float, starts: int = 16, seed: int = 0
) -> Optimum:
    """The maximum of J subject to L ≤ ε² over softmax policies: SLSQP from random logits, the best feasible of all starts.

    Every solution of the soft problem solves this one with ε² = L. The converse fails where the set of attainable (J, L) is not
    convex: such a solution is optimal for no β.
    """
    mu, shape = world.start, world.rewards.shape

    def solve(x: np.ndarray) -> np.ndarray:
        return optimize.minimize(
            lambda x: -_at(x.reshape(shape), world, form).performance,
            x,
            jac=lambda x: -value_gradient(x.reshape(shape), world, lambda v: mu).ravel(),
            method="SLSQP",
            bounds=[(-20.0, 20.0)] * x.size,  # softmax policies only approach deterministic ones; this is close enough
            constraints={
                "type": "ineq",
                "fun": lambda x: 1 - _at(x.reshape(shape), world, form).loss / epsilon**2,
                "jac": lambda x: -value_gradient(x.reshape(shape), world, lambda v: 2 * form @ v).ravel() / epsilon**2,
            },
            options={"maxiter": 500, "ftol": 1e-12},
        ).x

    found = _from_all_starts(solve, world, form, starts, seed)
    feasible = [one for one in found if one.loss <= epsilon**2 * (1 + 1e-6)]
    if not feasible:
        least = min(one.loss for one in found)
        raise InputError(f"epsilon: no policy with L ≤ {epsilon**2:g} was found; the least L found is {least:g}")
    return max(feasible, key=lambda one: one.performance)


def _from_all_starts(
    solve: Callable[[np.ndarray], np.ndarray], world: Tabular, form: np.ndarray, starts: int, seed: int
) -> list[Optimum]:
    """The local optima from several random policies."""
    logits = 2.0 * np.random.default_rng(seed).normal(size=(starts, world.rewards.size))
    return [_at(solve(one).reshape(world.rewards.shape), world, form) for one in logits]


def _at(logits: Float[np.ndarray, "S A"], world: Tabular, form: Float[np.ndarray, "S S"]) -> Optimum:
    policy = special.softmax(logits, axis=1)
    values = policy_values(world, policy)
    return Optimum(policy, values, float(world.start @ values), float(values @ form @ values))
