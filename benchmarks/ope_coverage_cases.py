"""Worlds for the coverage of off-policy intervals: short and long, three kinds of returns and weights, one or many starts.

    smooth    six states, dense random transitions, rewards in [0, 1]; E[w²] = 3
    crashes   the same with a state that is entered in 2 % of the target policy's trajectories, costs 10 times what
              others return, and is not left; E[w²] is about 2
    heavy     a first decision between ten actions whose ratios have the tail of a Pareto distribution of index 1.3, cut
              at the tenth, so that a log of 200 has not seen the largest; then as smooth, with E[w²] = 1.2

Start states are left in the first step; where there are many, values differ between them. Trajectories have equal lengths, so
that a program is compiled once for each case.
"""

import dataclasses
from collections.abc import Callable
from functools import cache

import numpy as np

from benchmarks.ope_worlds import World

HORIZONS = (5, 50)
KINDS = ("smooth", "crashes", "heavy")
STATES, ACTIONS, DISCOUNT = 6, 3, 0.99
CRASHES, COST = 0.02, 10.0
SHOTS, BASE, INDEX = 10, 2.5, 1.3
"""Actions of the heavy decision; ρ_k ∝ BASE^k, and P(ρ > x) falls as x^−INDEX under the behaviour policy."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One world of the table."""

    kind: str
    horizon: int
    many: bool

    @property
    def name(self) -> str:
        """A name for tables and files."""
        return f"{self.kind}, T = {self.horizon}, {'many starts' if self.many else 'one start'}"

    @property
    def world(self) -> World:
        """The world, made once."""
        return _world(self)


CASES = tuple(Case(kind, horizon, many) for horizon in HORIZONS for kind in KINDS for many in (False, True))


@cache
def _world(case: Case) -> World:
    return {"smooth": _smooth, "crashes": _crashes, "heavy": _heavy}[case.kind](case)


def contribution_range(world: World, method: str) -> tuple[float, float]:
    """A range that contains every contribution of a trajectory: that of PDIS and TIS, and thrice that of TIS for others."""
    most_weight = np.ones(len(world.start))
    low, high, least, most = np.zeros((4, len(world.start)))
    possible = (world.probability > 0) & (world.behaviour > 0)[..., None]
    rho = world.ratio[..., None]
    for _ in range(world.horizon):
        low, high, least, most, most_weight = (
            np.where(possible, x, fill).min(axis=(1, 2)) if fill > 0 else np.where(possible, x, fill).max(axis=(1, 2))
            for x, fill in (
                (rho * (world.reward + world.discount * world._onward(low)), np.inf),
                (rho * (world.reward + world.discount * world._onward(high)), -np.inf),
                (world.reward + world.discount * world._onward(least), np.inf),
                (world.reward + world.discount * world._onward(most), -np.inf),
                (rho * np.where(world.end, 1.0, most_weight[world.following]), -np.inf),
            )
        )
    used = world.start > 0
    weight = 1.001 * most_weight[used].max()  # logs have 32 bits
    whole = weight * min(least[used].min(), 0.0), weight * max(most[used].max(), 0.0)
    if method == "pdis":
        return 1.001 * min(low[used].min(), 0.0), 1.001 * max(high[used].max(), 0.0)
    if method == "tis":
        return whole
    widest = 3 * max(-whole[0], whole[1])
    return -widest, widest


def _smooth(case: Case) -> World:
    transition, reward = _core(ACTIONS)
    return _with_policies(_with_starts(transition, reward, case), 3.0)


def _crashes(case: Case) -> World:
    """The last action may crash; the chance is such that the target policy crashes in a share CRASHES of its trajectories."""
    smooth = _with_policies(_with_starts(*_core(ACTIONS), case), 2.0)
    states = len(smooth.start)
    spare = np.zeros((states + 1, ACTIONS, states + 1))
    transition, reward = spare.copy(), spare.copy()
    transition[-1, :, -1] = 1.0
    reward[:-1, :, :-1], reward[:-1, :, -1] = smooth.reward, -COST * smooth.value
    start = np.append(smooth.start, 0.0)
    policies = [np.append(x, x[:1], axis=0) for x in (smooth.behaviour, smooth.target)]

    def with_chance(chance: float) -> World:
        crash = np.tile(chance * np.array([0.0, 0.2, 1.0]), (states, 1))
        crash[STATES:] = 0.0  # not in the first step
        transition[:-1, :, :-1], transition[:-1, :, -1] = smooth.probability * (1 - crash)[..., None], crash
        return _finite(transition.copy(), reward, start, case.horizon, *policies)

    return with_chance(_solve(lambda x: _entered(with_chance(x), states), CRASHES, 0.0, 0.5))


def _heavy(case: Case) -> World:
    """All states have ten actions; among the first six states three of them differ, in start states all."""
    world = _with_policies(_with_starts(*_core(SHOTS), case, worth=1.0), 1.2)
    behaviour, target = world.behaviour.copy(), world.target.copy()
    tail = BASE ** (-INDEX * np.arange(SHOTS))
    behaviour[STATES:] = tail / tail.sum()
    shifted = tail * BASE ** np.arange(SHOTS)
    target[STATES:] = shifted / shifted.sum()
    return dataclasses.replace(world, behaviour=behaviour, target=target)


def _core(actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Transitions [S, A, S] and rewards [S, A] of the states that the start states lead to."""
    rng = np.random.default_rng(7)
    transition, reward = rng.dirichlet(np.full(STATES, 0.5), (STATES, ACTIONS)), rng.random((STATES, ACTIONS))
    repeated = np.arange(actions) % ACTIONS
    return transition[:, repeated], reward[:, repeated]


def _with_starts(transition: np.ndarray, reward: np.ndarray, case: Case, worth: float = 0.0) -> World:
    """One or six start states, whose first reward differs by state, and by action up to `worth`, in units of what follows."""
    rng = np.random.default_rng(9)
    count, actions = (STATES if case.many else 1), transition.shape[1]
    states = STATES + count
    moves, earned = np.zeros((2, states, actions, states))
    moves[:STATES, :, :STATES], moves[STATES:, :, :STATES] = (
        transition,
        rng.dirichlet(np.ones(STATES), (count, actions)),
    )
    earned[:STATES] = reward[..., None]
    unit = 0.5 * np.sum(DISCOUNT ** np.arange(case.horizon))
    of_start, of_action = 0.5 * np.arange(count) / STATES, worth * np.arange(actions) / (actions - 1)
    earned[STATES:] = unit * (of_start[:, None] + of_action)[..., None]
    return _finite(moves, earned, np.repeat([0.0, 1 / count], [STATES, count]), case.horizon)


def _finite(
    transition: np.ndarray, reward: np.ndarray, start: np.ndarray, horizon: int, *policies: np.ndarray
) -> World:
    """A world without ends; both policies are uniform when not given."""
    shape = transition.shape
    behaviour, target = policies or [np.full(shape[:2], 1 / shape[1])] * 2
    following, ends = np.broadcast_to(np.arange(shape[2]), shape), np.zeros(shape, bool)
    return World(transition, following, reward, ends, start, behaviour, target, horizon, DISCOUNT)


def _with_policies(world: World, square: float) -> World:
    """Softmax policies, so far from one another that E[w²] is `square`."""
    first, second = np.random.default_rng(8).normal(size=(2, *world.behaviour.shape))

    def apart(distance: float) -> World:
        return dataclasses.replace(
            world, behaviour=_softmax(0.5 * first), target=_softmax(0.5 * first + distance * second)
        )

    return apart(_solve(lambda x: float(world.start @ apart(x).squared_weight), square, 0.0, 2.0))


def _entered(world: World, state: int) -> float:
    """The probability that a trajectory of the target policy is in a state at the end."""
    now, moves = world.start, np.einsum("sa,saz->sz", world.target, world.probability)
    for _ in range(world.horizon):
        now = now @ moves
    return float(now[state])


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True)


def _solve(function: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where an increasing function has a value, by bisection."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
