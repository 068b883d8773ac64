"""J and L as functions of β on random tabular worlds with a fixed linear evaluator, in one compiled program.

From the paper: 5 states, 2 actions, γ = 0.9, μ uniform, s0 and s2 assessed, similarities fixed, a softmax policy trained
on J − βL. As in its theory section the assessment has the world's dynamics and the evaluator knows the exact values of the
assessed states, V̂ = diag(F1)⁻¹F V, so that both terms of the error depend on the policy.

Not specified in the paper: transitions are uniform on the simplex (Dirichlet(1)) and rewards uniform in [0, 1], so that values
lie between 0 and 10. Its similarities are in a figure that is not available; here they are f(s_i, s_j) = 2^−|i−j|, an inner
product of positive features for states on a line, the same in all trials. Logits start at 2 · N(0, 1), at the same policies for
all β, and follow the exact gradient by Adam, separately for each β and without warm starts.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from evarl.errors import InputError
from evarl.theory.linear import evaluator_weights, quadratic_form, similarity_matrix
from evarl.theory.tabular_summary import summary

STATES, ACTIONS, DISCOUNT = 5, 2, 0.9
ASSESSED = (0, 2)
BETAS = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""From a negligible to a dominating penalty, for rewards in [0, 1]."""
SIMILARITY = 2.0 ** -np.abs(np.arange(STATES)[:, None] - np.arange(STATES)[None, :])
"""Default similarities [S, S]."""


class Problem(NamedTuple):
    """World and objective of N policies, which differ in β; or T worlds, the same Q and μ, and B different β."""

    transitions: Float[Array, "*T S A S"]
    rewards: Float[Array, "*T S A"]
    form: Float[Array, "S S"]
    """Q."""
    start: Float[Array, " S"]
    """μ."""
    betas: Float[Array, " N"]


class Point(NamedTuple):
    """Values, J, L and gradients of N policies of one world."""

    values: Float[Array, "S N"]
    performance: Float[Array, " N"]
    """J."""
    loss: Float[Array, " N"]
    """L."""
    gradient: Float[Array, "S A N"]
    """∂(J − βL)/∂logits."""


def tabular_study(
    trials: int,
    betas: Sequence[float] = BETAS,
    seed: int = 0,
    restarts: int = 16,
    steps: int = 500,
    learning_rate: float = 0.2,
    similarity: ArrayLike = SIMILARITY,
) -> dict[str, Any]:
    """Train every trial × β × restart and summarise the final L and J, as plain data described in `summary`.

    Trial i is the same world with the same initial policies for any number of trials.
    """
    if trials < 2 or restarts < 1 or steps < 1:
        raise InputError(
            f"trials, restarts, steps: {trials}, {restarts}, {steps} are not allowed; must be at least 2, 1 and 1"
        )
    if len(betas) < 2 or list(betas) != sorted(set(betas)) or betas[0] < 0:
        raise InputError(f"betas: {list(betas)} is not allowed; must be at least two increasing numbers ≥ 0")
    start = np.full(STATES, 1 / STATES)
    form = quadratic_form(evaluator_weights(similarity_matrix(similarity, ASSESSED)), start)
    logits = initial_logits(trials, restarts, seed)
    # Float64 is used here only; the rest of the package uses float32.
    with jax.enable_x64(True):
        arrays = (*random_worlds(trials, seed), form, start, np.asarray(betas, np.float64))
        problem = Problem(*map(jnp.asarray, arrays))
        began = time.perf_counter()
        program = jax.jit(_all_trials, static_argnums=(2, 3)).lower(logits, problem, steps, learning_rate).compile()
        compiled = time.perf_counter()
        performance, loss = (np.asarray(x) for x in program(logits, problem))
        ended = time.perf_counter()
    settings = {"trials": trials, "seed": seed, "restarts": restarts, "steps": steps, "learning_rate": learning_rate}
    world = {"states": STATES, "actions": ACTIONS, "discount": DISCOUNT, "assessed": list(ASSESSED)}
    found = {
        "similarity": np.asarray(similarity, np.float64).tolist(),
        **summary(performance, loss, betas, form, start),
    }
    return settings | world | found | {"seconds": {"compile": compiled - began, "run": ended - compiled}}


def random_worlds(
    trials: int, seed: int
) -> tuple[Float[np.ndarray, "{trials} S A S"], Float[np.ndarray, "{trials} S A"]]:
    """Transitions, uniform on the simplex, and rewards, uniform in [0, 1], of random worlds."""
    # Separate generators keep the first trials the same for any number of trials.
    raw = np.random.default_rng([seed, 0]).exponential(size=(trials, STATES, ACTIONS, STATES))
    rewards = np.random.default_rng([seed, 1]).uniform(size=(trials, STATES, ACTIONS))
    return raw / raw.sum(axis=-1, keepdims=True), rewards


def initial_logits(trials: int, restarts: int, seed: int) -> Float[np.ndarray, "{trials} S A {restarts}"]:
    """Initial logits, normal with standard deviation 2: from nearly uniform to nearly deterministic policies."""
    drawn = np.random.default_rng([seed, 2]).normal(size=(trials, restarts, STATES, ACTIONS))
    return 2.0 * np.moveaxis(drawn, 1, -1)


def evaluate(logits: Float[Array, "S A N"], problem: Problem) -> Point:
    """V = (I − γP_π)⁻¹ r_π, J = μᵀV, L = VᵀQV and ∂(J − βL)/∂logits, exactly, of N policies of one world.

    The gradient is that of the policy gradient theorem with g = μ − 2βQV instead of the start distribution:
    η(s) π(a|s) (Q(s, a) − V(s)) with ηᵀ = gᵀ(I − γP_π)⁻¹.
    """
    (transitions, rewards, form, start, betas), policy = problem, jax.nn.softmax(logits, axis=1)
    P, r = transitions[..., None], rewards[..., None]
    inverse = _resolvent((policy[:, :, None] * P).sum(axis=1))
    values = (inverse * (policy * r).sum(axis=1)[None]).sum(axis=1)
    slope = (form[..., None] * values[None]).sum(axis=1)
    visits = ((start[:, None] - 2 * betas[None] * slope)[:, None] * inverse).sum(axis=0)
    advantages = r + DISCOUNT * (P * values[None, None]).sum(axis=2) - values[:, None]
    return Point(
        values=values,
        performance=(start[:, None] * values).sum(axis=0),
        loss=(values * slope).sum(axis=0),
        gradient=visits[:, None] * policy * advantages,
    )


def _resolvent(moves: Float[Array, "S S N"]) -> Float[Array, "S S N"]:
    """(I − γP)⁻¹ of N matrices, by the Sherman–Morrison formula for one row of P after the other.

    Denominators stay above 1 − γ, so that no pivoting is needed. The compiler vectorises over the last axis; a library's solver
    would be called once per 5 × 5 matrix.
    """
    inverse = jnp.broadcast_to(jnp.eye(len(moves))[..., None], moves.shape)
    for s in range(len(moves)):
        row = DISCOUNT * (moves[s][:, None] * inverse).sum(axis=0)
        inverse = inverse + inverse[:, s][:, None] * (row / (1 - row[s])[None])[None]
    return inverse


def _all_trials(
    logits: Float[Array, "T S A R"], problem: Problem, steps: int, learning_rate: float
) -> tuple[Float[Array, "T B R"], Float[Array, "T B R"]]:
    """J and L at the end of training; problems of a trial are solved in parallel and trials in turn, which fits the cache."""
    restarts = logits.shape[-1]

    def trial(world: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        initial, P, r = world
        one = problem._replace(transitions=P, rewards=r, betas=jnp.repeat(problem.betas, restarts))
        found = _train(jnp.tile(initial, len(problem.betas)), one, steps, learning_rate)
        return found.performance.reshape(-1, restarts), found.loss.reshape(-1, restarts)

    return jax.lax.map(trial, (logits, problem.transitions, problem.rewards))


def _train(logits: Float[Array, "S A N"], problem: Problem, steps: int, learning_rate: float) -> Point:
    """Gradient ascent on J − βL by Adam, with cosine decay of the learning rate to 0.

    Near a deterministic policy the gradient vanishes as fast as the policy converges. Adam's usual second moment, over 1 000
    steps, would keep the large early gradients and stop; over 10 steps it follows.
    """
    decay = 0.9

    def step(carry: tuple[Array, Array, Array], count: Array) -> tuple[tuple[Array, Array, Array], None]:
        x, first, second = carry
        gradient = evaluate(x, problem).gradient
        first = decay * first + (1 - decay) * gradient
        second = decay * second + (1 - decay) * gradient**2
        unbiased = 1 - decay ** (count + 1)
        rate = learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * count / steps))
        x = x + rate * (first / unbiased) / (jnp.sqrt(second / unbiased) + 1e-12)
        return (x, first, second), None

    zeros, counts = jnp.zeros_like(logits), jnp.arange(steps, dtype=logits.dtype)
    (logits, _, _), _ = jax.lax.scan(step, (logits, zeros, zeros), counts)
    return evaluate(logits, problem)
