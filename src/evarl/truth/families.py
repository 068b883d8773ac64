"""Exact values in families of finite worlds, and the best evaluator that there can be, by dynamic programming and enumeration.

Everything is for one policy, given as [S, A] probabilities, and contexts c with probabilities. What is observed, Ξ, is the
return of one episode from each start state of a test, each in the same hidden context. The best evaluator is the posterior
mean V̂*(Ξ) = E[V_c(s) | Ξ], and no evaluator has a smaller mean squared error.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evarl.errors import InputError
from evarl.truth.exact import policy_values
from evarl.worlds.contexts import Context
from evarl.worlds.crossing import ARRIVALS, Crossing
from evarl.worlds.tabular import Tabular

Family = Crossing | Tabular
Returns = Mapping[float, Float[np.ndarray, " C"]]
"""The probability of each return in each context."""

MERGED = 9
"""Decimals to which returns must agree to be one: sums of the same rewards in another order differ in their last bits."""
MATCHED = 1e-4
"""Largest distance of an observed return, which is a sum in float32, from the one that it is taken for."""


def context_values(
    world: Family, policy: Float[np.ndarray, "S A"], contexts: Float[np.ndarray, "C 1"], horizon: int | None = None
) -> Float[np.ndarray, "C S"]:
    """Values V_c(s) of a policy in each context, with the world's horizon unless another is given."""
    steps = world.horizon if horizon is None else horizon
    return np.stack([policy_values(world.at(context), policy, steps) for context in contexts])


def context_grid(
    contexts: Sequence[Context], count: int = 200
) -> tuple[Float[np.ndarray, "C 1"], Float[np.ndarray, " C"]]:
    """Values of one context and their probabilities: those of its list, or Gauss–Legendre nodes of its range.

    >>> values, weights = context_grid([Context("bridge", 0.0, 1.0)], count=2)
    >>> values.round(4).ravel().tolist(), weights.tolist()
    ([0.2113, 0.7887], [0.5, 0.5])
    """
    if len(contexts) != 1:
        raise InputError(f"context: {len(contexts)} contexts are not allowed; the grid is that of one")
    (context,) = contexts
    if context.values:
        return np.asarray(context.values, np.float64)[:, None], np.full(len(context.values), 1 / len(context.values))
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (context.low + (context.high - context.low) * (nodes + 1) / 2)[:, None], weights / 2


def return_distribution(
    world: Family,
    policy: Float[np.ndarray, "S A"],
    contexts: Float[np.ndarray, "C 1"],
    start: int,
    steps: int,
    discount: float | None = None,
) -> Returns:
    """The probability of each return of `steps` steps from a start state, in each context.

    Every path is followed; those that are in the same state with the same return so far go on as one. The discount is the
    world's unless given.
    """
    tables, found = [world.at(context) for context in contexts], _zeros(len(contexts))
    together = [range(len(tables))] if isinstance(world, Crossing) else [[index] for index in range(len(tables))]
    for members in together:  # contexts with the same rewards are followed together
        moves = _moves(world, policy, [tables[index] for index in members])
        for total, chances in _followed(moves, start, steps, world.discount if discount is None else discount):
            found[round(total, MERGED)][members] += chances
    return dict(found)


@dataclass(frozen=True)
class BestEvaluator:
    """The posterior mean of V_c(s) given the returns of a test, in a family of C contexts."""

    prior: Float[np.ndarray, " C"]
    """Probability of each context."""
    values: Float[np.ndarray, " C"]
    """V_c(s) of the start state of deployment."""
    returns: tuple[Returns, ...]
    """For each start state of the test, the probability of each return in each context."""

    def posterior(self, observed: Sequence[float]) -> Float[np.ndarray, " C"]:
        """Probability of each context given one return from each start state of the test."""
        joint = self.prior.copy()
        for value, likelihoods in zip(observed, self.returns, strict=True):
            nearest = min(likelihoods, key=lambda known: abs(known - value))
            if abs(nearest - value) > MATCHED:
                raise InputError(f"returns: {value:g} is not allowed; no context gives this return")
            joint = joint * likelihoods[nearest]
        if not joint.sum() > 0:
            raise InputError("returns: no context gives all of them together")
        return joint / joint.sum()

    def posterior_value(self, observed: Sequence[float]) -> float:
        """V̂*(Ξ) = E[V_c(s) | Ξ]."""
        return float(self.posterior(observed) @ self.values)


def best_evaluator(
    world: Family,
    policy: Float[np.ndarray, "S A"],
    starts: Sequence[int],
    steps: int,
    *,
    discount: float | None = None,
    grid: int = 200,
) -> BestEvaluator:
    """The best evaluator of a policy from the returns of `steps` steps from each start state, one episode each.

    The discount is that of the test, the world's unless given. A context that is drawn from a range is integrated on `grid`
    Gauss–Legendre nodes.
    """
    contexts, prior = context_grid(world.contexts, grid)
    table = world.at(contexts[0])
    if not np.isclose(table.start.max(), 1.0):
        raise InputError(f"{world.name}: must have one start state; its values would be a mixture")
    values = context_values(world, policy, contexts)[:, int(table.start.argmax())]
    returns = {start: return_distribution(world, policy, contexts, start, steps, discount) for start in set(starts)}
    return BestEvaluator(prior, values, tuple(returns[start] for start in starts))


@dataclass(frozen=True)
class BestError:
    """Errors of the best evaluator, and of the best one that sees no test."""

    mean_absolute: float
    root_mean_square: float
    without_test: float
    """Mean absolute error of the constant E[V_c]."""
    exact: bool
    """Whether every Ξ was enumerated; if not, `draws` were simulated."""
    draws: int


def bayes_error(best: BestEvaluator, *, largest: int = 100_000, draws: int = 20_000, seed: int = 0) -> BestError:
    """Mean absolute error and root mean square error E[(V_c − V̂*(Ξ))²]^½ of the best evaluator.

    By enumeration where no more than `largest` Ξ are possible, else by drawing contexts and their tests; posteriors are
    exact either way.
    """
    supports = [np.stack(list(one.values())) for one in best.returns]
    exact = math.prod(map(len, supports)) <= largest
    if exact:
        indices = np.asarray(list(itertools.product(*(range(len(one)) for one in supports)))).reshape(-1, len(supports))
        weights = _joint(best, supports, indices)
    else:
        indices = _drawn_tests(best, supports, draws, seed)
        weights = _joint(best, supports, indices)
        weights = weights / weights.sum(axis=1, keepdims=True) / draws
    total = weights.sum(axis=1)
    seen = total > 0
    weights, total = weights[seen], total[seen]
    errors = np.abs(best.values[None] - (weights @ best.values / total)[:, None])
    constant = np.abs(best.values - best.prior @ best.values)
    return BestError(
        mean_absolute=float((weights * errors).sum()),
        root_mean_square=float(np.sqrt((weights * errors**2).sum())),
        without_test=float(best.prior @ constant),
        exact=exact,
        draws=0 if exact else draws,
    )


@dataclass(frozen=True)
class _Move:
    """One way on from a state: where it leads, its reward, whether it ends the episode, its probability in each context."""

    successor: int
    reward: float
    ends: bool
    chances: Float[np.ndarray, " C"]


def _moves(world: Family, policy: Float[np.ndarray, "S A"], tables: Sequence[Tabular]) -> list[list[_Move]]:
    """The moves from each state in contexts that share their rewards; actions with the same outcome are one move."""
    transitions = np.stack([table.transitions for table in tables]) * policy[None, :, :, None]
    terminal = np.asarray(tables[0].terminal)
    if isinstance(world, Crossing):
        rewards = np.broadcast_to(ARRIVALS, transitions.shape[1:])
    else:  # a table's rewards are those of its actions, whatever follows
        rewards = np.broadcast_to(tables[0].rewards[:, :, None], transitions.shape[1:])
    found: list[list[_Move]] = []
    for state in range(len(terminal)):
        merged = _zeros(len(tables))
        for action, successor in np.argwhere((transitions[:, state] > 0).any(axis=0)).tolist():
            merged[successor, float(rewards[state, action, successor])] += transitions[:, state, action, successor]
        found.append([_Move(to, reward, bool(terminal[to]), chances) for (to, reward), chances in merged.items()])
    return found


def _followed(
    moves: list[list[_Move]], start: int, steps: int, discount: float
) -> Iterator[tuple[float, Float[np.ndarray, " C"]]]:
    """The returns of all paths, and their probability in each context."""
    certain = np.ones(len(moves[start][0].chances))
    paths = {(start, 0.0): (0.0, certain)}  # by state and rounded return: the return, and its probabilities
    for step in range(steps):
        following: dict[tuple[int, float], tuple[float, Float[np.ndarray, " C"]]] = {}
        for (state, _), (sofar, chances) in paths.items():
            for move in moves[state]:
                total, reached = sofar + discount**step * move.reward, chances * move.chances
                if move.ends:
                    yield total, reached
                    continue
                place = move.successor, round(total, MERGED)
                first, before = following.get(place, (total, 0.0))
                following[place] = first, before + reached
        paths = following
    yield from paths.values()


def _zeros(count: int) -> "defaultdict[Any, Float[np.ndarray, ' C']]":
    return defaultdict(lambda: np.zeros(count))


def _joint(
    best: BestEvaluator, supports: Sequence[Float[np.ndarray, "_ C"]], indices: Int[np.ndarray, "N k"]
) -> Float[np.ndarray, "N C"]:
    """Joint probability of each Ξ, given by the numbers of its returns, and each context."""
    joint = np.repeat(best.prior[None], len(indices), axis=0)
    for support, column in zip(supports, indices.T, strict=True):
        joint = joint * support[column]
    return joint


def _drawn_tests(
    best: BestEvaluator, supports: Sequence[Float[np.ndarray, "_ C"]], draws: int, seed: int
) -> Int[np.ndarray, "N k"]:
    """Tests of contexts that are drawn from the prior, as numbers of returns."""
    generator = np.random.default_rng(seed)
    contexts = generator.choice(len(best.prior), size=draws, p=best.prior / best.prior.sum())
    columns = []
    for support in supports:
        cumulated = np.cumsum(support, axis=0)  # [R, C]
        uniform = generator.random(draws) * cumulated[-1, contexts]
        columns.append((uniform[None] >= cumulated[:, contexts]).sum(axis=0))
    return np.stack(columns, axis=1)
