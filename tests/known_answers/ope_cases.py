"""Public benchmark worlds of off-policy evaluation.

Graph and Toy-MC are from the Caltech OPE benchmarking suite (Voloshin et al. 2021, arXiv:1911.06854), ModelFail and ModelWin
from Thomas & Brunskill (2016), Taxi and CliffWalking from the transition tables of Gymnasium.
"""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from benchmarks.ope_worlds import World, epsilon_greedy, from_dense, from_table, greedy


def static(states: int, *chances: float) -> np.ndarray:
    """The same action probabilities in every state."""
    return np.tile(np.asarray(chances), (states, 1))


def graph(
    length: int, chances: tuple[float, float], slip: float = 0.0, dense: bool = True, noise: float = 0.0
) -> World:
    """COBS Graph: columns of an upper (odd) and a lower (even) state; action 0 leads up, and slips with a probability.

    Entering an upper state is worth 1 and a lower one −1, in the sparse variant only the step out of the last column.
    """
    states = 2 * length
    transition, reward = np.zeros((states, 2, states)), np.zeros((states, 2, states))
    for s in range(states - 3):
        up = 1 if s == 0 else s + 1 + s % 2
        transition[s, :, [up, up + 1]] = [[1 - slip, slip], [slip, 1 - slip]]
        reward[s, :, up], reward[s, :, up + 1] = (1.0, -1.0) if dense else (0.0, 0.0)
    transition[states - 3 :, :, states - 1] = 1.0
    reward[states - 3, :, -1], reward[states - 2, :, -1] = 1.0, -1.0
    behaviour, target = (static(states, p, 1 - p) for p in chances)
    start, ends = np.eye(states)[0], np.arange(states) == states - 1
    policies = {"behaviour": behaviour, "target": target}
    return from_dense(transition, reward, ends, start=start, horizon=length, discount=0.98, noise=noise, **policies)


def toy_mc(right: tuple[float, float], random_start: bool, horizon: int = 100) -> World:
    """COBS Toy-MC: 21 places and the goal behind the last; −1 for every step, left or right."""
    states = 22
    transition = np.zeros((states, 2, states))
    for s in range(states):
        transition[s, 0, max(s - 1, 0)] = transition[s, 1, min(s + 1, states - 1)] = 1.0
    start = np.append(np.full(21, 1 / 21), 0.0) if random_start else np.eye(states)[10]
    behaviour, target = (static(states, 1 - p, p) for p in right)
    policies = {"behaviour": behaviour, "target": target, "start": start}
    ends = np.arange(states) == states - 1
    return from_dense(transition, -np.ones(transition.shape), ends, horizon=horizon, discount=0.99, **policies)


def model_fail() -> World:
    """Left, up, down, end; only the first action matters, and is worth ±1 one step later."""
    transition, reward = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    transition[0, 0, 1] = transition[0, 1, 2] = 1.0
    transition[1:, :, 3] = 1.0
    reward[1, :, 3], reward[2, :, 3] = 1.0, -1.0
    policies = {"behaviour": static(4, 0.88, 0.12), "target": static(4, 0.12, 0.88), "start": np.eye(4)[0]}
    return from_dense(transition, reward, np.arange(4) == 3, horizon=2, discount=1.0, **policies)


def model_win(chances: tuple[float, float] = (0.73, 0.27)) -> World:
    """Three states; the first leads to one of the others, worth ±1 by chance, and these lead back."""
    transition, reward = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    transition[0] = [[0, 0.4, 0.6], [0, 0.6, 0.4]]
    transition[1:, :, 0] = 1.0
    reward[0, :, 1], reward[0, :, 2] = 1.0, -1.0
    behaviour, target = np.full((2, 3, 2), 0.5)
    behaviour[0], target[0] = [chances[0], 1 - chances[0]], [chances[1], 1 - chances[1]]
    policies = {"behaviour": behaviour, "target": target, "start": np.eye(3)[0]}
    return from_dense(transition, reward, np.zeros(3, bool), horizon=20, discount=1.0, **policies)


def chain(horizon: int) -> World:
    """Two states, stay or switch, reward 1 in the second."""
    transition, reward = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    transition[[0, 1], 0, [0, 1]] = transition[[0, 1], 1, [1, 0]] = 1.0
    reward[1] = 1.0
    policies = {"behaviour": static(2, 0.5, 0.5), "target": static(2, 0.7, 0.3), "start": np.eye(2)[0]}
    return from_dense(transition, reward, np.zeros(2, bool), horizon=horizon, discount=0.9, **policies)


def grid_tables() -> tuple[np.ndarray, np.ndarray]:
    """Transitions and rewards [16, 4, 16] of a grid of 4 × 4 cells, with the reward of the cell that is entered."""
    transition, reward = np.zeros((16, 4, 16)), np.zeros((16, 4, 16))
    of_cell = np.full(16, -1.0)
    of_cell[[5, 7, 15]] = -10.0, 1.0, 10.0
    for row, column in itertools.product(range(4), repeat=2):
        for a, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            entered = 4 * np.clip(row + down, 0, 3) + np.clip(column + right, 0, 3)
            transition[4 * row + column, a, entered] = 1.0
            reward[4 * row + column, a, entered] = of_cell[entered]
    return transition, reward


def grid() -> World:
    """4 × 4 from one corner to the other."""
    policies = {
        "behaviour": static(16, 0.23, 0.26, 0.24, 0.27),
        "target": static(16, *[0.25] * 4),
        "start": np.eye(16)[0],
    }
    return from_dense(*grid_tables(), np.arange(16) == 15, horizon=100, discount=1.0, **policies)


def toy_text(table, start: np.ndarray, horizon: int, epsilon: tuple[float, float], **others) -> World:
    """A world of Gymnasium with two policies that take the best action but for a share ε."""
    uniform = np.full((len(table), len(table[0])), 1 / len(table[0]))
    options = {"start": start, "horizon": horizon, "discount": 0.99} | others
    world = from_table(table, behaviour=uniform, target=uniform, **options)
    behaviour, target = (epsilon_greedy(greedy(world), uniform.shape[1], one) for one in epsilon)
    return replace(world, behaviour=behaviour, target=target)


@cache
def taxi() -> World:
    """Observations show row, column, passenger and destination as one-hot vectors of 5, 5, 5 and 4."""
    env = TaxiEnv()
    parts = np.stack(np.unravel_index(np.arange(500), (5, 5, 5, 4)), axis=1)
    features = np.concatenate([np.eye(size)[parts[:, i]] for i, size in enumerate((5, 5, 5, 4))], axis=1)
    code = np.concatenate([np.arange(size) * unit for size, unit in ((5, 100), (5, 20), (5, 4), (4, 1))])
    return toy_text(env.P, np.asarray(env.initial_state_distrib), 40, (0.3, 0.2), features=features, code=code)


@cache
def cliff() -> World:
    env = CliffWalkingEnv()
    return toy_text(env.P, np.asarray(env.initial_state_distrib), 40, (0.25, 0.15))


WORLDS = {
    "graph": lambda: graph(4, (0.6, 0.8), slip=0.25, noise=1.0),
    "graph, sparse, far policies": lambda: graph(4, (0.2, 0.8), slip=0.25, dense=False),
    "graph of 16 steps": lambda: graph(16, (0.6, 0.7)),
    "Toy-MC": lambda: toy_mc((0.6, 0.65), random_start=False),
    "Toy-MC, random start": lambda: toy_mc((0.6, 0.65), random_start=True),
    "ModelFail": model_fail,
    "ModelWin": model_win,
    "ModelWin, near policies": lambda: model_win((0.55, 0.45)),
    "chain": lambda: chain(3),
    "grid": grid,
    "Taxi": taxi,
    "CliffWalking": cliff,
}
