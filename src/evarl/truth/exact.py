"""Exact values of finite worlds, by linear algebra and dynamic programming in float64."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from evarl.errors import InputError
from evarl.worlds.tabular import Tabular
from evarl.worlds.world import World


def policy_values(world: Tabular, policy: np.ndarray, horizon: int | None = None) -> Float[np.ndarray, " S"]:
    """Values V(s) of a policy given as [S, A] probabilities.

    Without a horizon, the solution of (I − γ P_π) V = r_π; with one, `horizon` backups of V = 0. Nothing follows a
    terminal state.

    >>> from evarl.worlds.tabular import chain
    >>> policy_values(chain(), np.array([[0.7, 0.3], [0.7, 0.3]])).round(6).tolist()
    [4.21875, 5.78125]
    """
    world, policy = _single(world), np.asarray(policy, np.float64)
    if policy.shape != world.rewards.shape or not np.allclose(policy.sum(-1), 1.0):
        raise InputError(
            f"policy: shape {policy.shape} is not allowed; must be probabilities of shape {world.rewards.shape}"
        )
    moves = np.einsum("sa,sat->st", policy, _continuing(world))
    rewards = np.einsum("sa,sa->s", policy, world.rewards)
    if horizon is None:
        return np.linalg.solve(np.eye(len(rewards)) - world.discount * moves, rewards)
    values = np.zeros(len(rewards))
    for _ in range(horizon):
        values = rewards + world.discount * moves @ values
    return values


def action_values(world: Tabular, values: Float[np.ndarray, " S"]) -> Float[np.ndarray, "S A"]:
    """Action values Q(s, a) = r(s, a) + γ Σ_s' P(s' | s, a) V(s'), [S, A]."""
    world = _single(world)
    return world.rewards + world.discount * _continuing(world) @ values


def optimal_values(world: Tabular, horizon: int) -> Float[np.ndarray, " S"]:
    """Optimal values V*(s) with `horizon` steps to go, by backward induction."""
    values = np.zeros(world.state_count)
    for _ in range(horizon):
        values = action_values(world, values).max(axis=1)
    return values


def reachable_mdp(world: World, decimals: int = 4) -> tuple[Tabular, Float[np.ndarray, "S ..."]]:
    """The finite MDP of all positions that a deterministic world with discrete actions can reach, and those positions.

    Positions that agree to `decimals` digits count as one. State 0 is the start.
    """
    if not hasattr(world.action_space, "n"):
        raise InputError(f"{world.name}: has actions {world.action_space}; must be discrete")
    actions, key = jnp.arange(world.action_space.n), jax.random.PRNGKey(0)
    move = jax.jit(jax.vmap(lambda physics, action: world.transition(key, physics, action), (None, 0)))
    start = np.asarray(world.initial(key))
    positions, index, rows = [start], {_name(start, decimals): 0}, []
    for position in positions:  # grows during the loop
        reached, reward, ended = (np.asarray(x) for x in move(jnp.asarray(position), actions))
        names = [_name(successor, decimals) for successor in reached]
        for name, successor in zip(names, reached, strict=True):
            if name not in index:
                index[name] = len(positions)
                positions.append(successor)
        rows.append(([index[name] for name in names], reward, ended))
    successors, rewards, ends = (np.asarray(column) for column in zip(*rows, strict=True))
    one_hot, terminal = np.eye(len(positions)), np.zeros(len(positions), bool)
    terminal[successors[ends]] = True
    arrays = one_hot[successors], rewards, one_hot[0], terminal
    return Tabular(*arrays, world.horizon, world.discount, f"{world.name} (reachable)"), np.asarray(positions)


def best_return(world: World, discount: float = 1.0) -> float:
    """Highest return from the start of a deterministic world with discrete actions, within its horizon."""
    table = replace(reachable_mdp(world)[0], discount=discount)
    return float(optimal_values(table, world.horizon)[0])


def _continuing(world: Tabular) -> Float[np.ndarray, "S A S"]:
    """Transition probabilities into states from which an episode goes on, [S, A, S]."""
    assert world.terminal is not None
    return world.transitions * ~world.terminal[None, None, :]


def _single(world: Tabular) -> Tabular:
    """The world itself, which must be one table."""
    if world.rewards.ndim != 2:
        raise InputError(
            f"{world.name}: is a family of {len(world.rewards)} tables; choose one of them with at(context)"
        )
    return world


def _name(position: np.ndarray, decimals: int) -> bytes:
    return np.round(position.astype(np.float64), decimals).tobytes()
