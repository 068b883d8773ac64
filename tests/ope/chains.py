"""Logs of a chain of two states whose trajectories can all be listed, and policies for it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from evarl import ope

STEPS, DISCOUNT = 3, 0.5
"""Returns are sums of binary fractions, without rounding."""


@functools.cache  # compiled once
def policy(switch: float) -> ope.TargetPolicy:
    """Switches with this probability in state 0, and with half of it in state 1."""
    table = jnp.asarray([[1 - switch, switch], [1 - switch / 2, switch / 2]])
    chance = lambda seen: table[jnp.argmax(seen, axis=1)]  # noqa: E731
    return ope.TargetPolicy(
        log_prob=lambda seen, action: jnp.log(chance(seen)[jnp.arange(len(action)), action]),
        probabilities=chance,
        sample=lambda key, seen: jax.random.categorical(key, jnp.log(chance(seen))),
        mode=lambda seen: jnp.argmax(chance(seen), axis=1),
    )


def probability(switch: float, state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Of actions in states, under `policy(switch)`."""
    flip = np.where(state == 1, switch / 2, switch)
    return np.where(action == 1, flip, 1 - flip)


def walked(start: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """States [N, T] and the last ones [N]; action 1 switches."""
    state = (start[:, None] + np.cumsum(action, axis=1)) % 2
    return np.concatenate([start[:, None], state[:, :-1]], axis=1), state[:, -1]


def data(start: np.ndarray, action: np.ndarray, switch: float = 0.5) -> ope.LoggedData:
    """A log by `policy(switch)`: reward 1 in state 1."""
    seen, last = walked(start, action)
    return ope.LoggedData.from_arrays(
        observation=np.eye(2)[seen],
        action=action,
        reward=(seen == 1).astype(float),
        log_prob=np.log(probability(switch, seen, action)),
        final_observation=np.eye(2)[last],
    )


def everything() -> tuple[np.ndarray, np.ndarray]:
    """Starts and actions of all trajectories, each as often as a policy that switches with ½ and ¼ takes it."""
    rows: list[tuple[int, tuple[int, ...]]] = []
    for start, action in itertools.product((0, 1), itertools.product((0, 1), repeat=STEPS)):
        seen, _ = walked(np.array([start]), np.array([action]))
        chance = probability(0.5, seen, np.array([action])).prod()
        rows += [(start, action)] * round(4**STEPS * chance)
    return np.array([start for start, _ in rows]), np.array([action for _, action in rows])


def drawn(generator: np.random.Generator, count: int, switch: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Starts and actions of trajectories drawn from `policy(switch)`."""
    start = generator.integers(0, 2, count)
    state, actions = start, []
    for _ in range(STEPS):
        actions.append((generator.random(count) < probability(switch, state, np.ones(count, int))).astype(int))
        state = (state + actions[-1]) % 2
    return start, np.stack(actions, axis=1)


def exact(switch: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns of all trajectories and their probabilities under `policy(switch)`, in plain loops."""
    returns, chances = [], []
    for start, action in itertools.product((0, 1), itertools.product((0, 1), repeat=STEPS)):
        state, value, chance = start, 0.0, 0.5
        for t, a in enumerate(action):
            value += DISCOUNT**t * state
            flip = switch / 2 if state else switch
            chance *= flip if a else 1 - flip
            state = 1 - state if a else state
        returns.append(value)
        chances.append(chance)
    return np.array(returns), np.array(chances)
