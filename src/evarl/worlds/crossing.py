"""Crossing: a river, a bridge that holds with a hidden probability, and a ford far away.

    row 7  . . G . . . .        G  the goal
        6  . . . . . . .
        5  . . . . . . .
        4  T T . . . . .        T  start states of a test
        3  T T . . . . .
           = = = ~ ~ ~ |        =  the bridge,  ~  the river,  |  the ford
        2  . . . . . . .
        1  . . . . . . .
        0  . . . S . . .        S  the start

The shortest way to the goal crosses the bridge at its right edge, so nothing that is done at its left edge changes what a
deployment is worth. A test that begins there can try the bridge, or go to the goal and learn nothing.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from evarl.errors import InputError, unknown_name
from evarl.keys import unrolled
from evarl.worlds.contexts import Context, ContextParameter
from evarl.worlds.spaces import Box, Discrete
from evarl.worlds.tabular import Tabular
from evarl.worlds.world import Key, World, bounded_returns

COLUMNS, ROWS = 7, 8
STATES = COLUMNS * ROWS
BANK = 2
"""The river flows between this row and the next."""
BRIDGE, FORD = (0, 1, 2), 6
"""Columns at which the river can be crossed."""
START, GOAL = (3, 0), (2, 7)
"""As (column, row)."""
SCALE = 5.0
"""Distance to the goal at which a step costs 1."""
HOLDS = 0.5
"""Probability that the bridge holds, where it does not vary."""

DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Actions: right, up, left, down."""


def cell(column: int, row: int) -> int:
    """Index of a cell.

    >>> cell(*START), cell(*GOAL)
    (3, 51)
    """
    return row * COLUMNS + column


TEST_STATES = (cell(0, 3), cell(1, 3), cell(0, 4), cell(1, 4))
"""Start states of a test: on the goal's bank, at the edge of the bridge that no deployment uses."""


def _moves() -> tuple[Int[np.ndarray, "S A"], Bool[np.ndarray, "S A"]]:
    """For every cell and action: the cell that it leads to if the bridge holds, and whether it is a try to cross it."""
    row, column = (place[:, None] for place in np.divmod(np.arange(STATES), COLUMNS))
    right, up = np.asarray(DIRECTIONS).T
    to_column, to_row = np.clip(column + right, 0, COLUMNS - 1), np.clip(row + up, 0, ROWS - 1)
    crosses = (np.minimum(row, to_row) == BANK) & (np.maximum(row, to_row) == BANK + 1)
    planks = crosses & np.isin(column, BRIDGE)
    river = crosses & ~planks & (column != FORD)
    targets = np.where(river, row * COLUMNS + column, to_row * COLUMNS + to_column)
    return targets.astype(np.int32), planks


TARGETS, PLANKS = _moves()
"""Where each action leads if the bridge holds, and whether it is a try to cross the bridge, [S, A]."""

ARRIVALS = -np.hypot(np.arange(STATES) % COLUMNS - GOAL[0], np.arange(STATES) // COLUMNS - GOAL[1]) / SCALE
"""Reward of a step that ends in each cell, [S]."""


@dataclass(frozen=True)
class Crossing(World):
    """A grid with a river across it, whose bridge holds with a hidden probability. The physics is the index of a cell.

    Each try to cross the bridge, from either bank, succeeds with probability `bridge`; one that fails leaves the position
    unchanged, and so does a step into the river or out of the grid. The reward of a step is minus the scaled distance to
    the goal from where it ends; reaching the goal ends the episode.
    """

    name: str = "crossing"
    horizon: int = 40
    discount: float = 0.99
    contexts: tuple[Context, ...] = ()
    observation_space: Box = Box((STATES,), 0.0, 1.0, "bool")
    action_space: Discrete = Discrete(len(DIRECTIONS))
    parameters = (ContextParameter("bridge", HOLDS, 0.0, 1.0, "probability that a try to cross the bridge succeeds"),)
    state_count = STATES

    def initial(self, key: Key, context: Float[Array, "1"] | None = None) -> Int[Array, ""]:
        """The only start state."""
        return jnp.asarray(cell(*START), jnp.int32)

    def transition(
        self, key: Key, physics: Int[Array, ""], action: Int[Array, ""], context: Float[Array, "1"] | None = None
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """Move one step in one of the four directions, if the ground there holds."""
        target, plank = jnp.asarray(TARGETS)[physics, action], jnp.asarray(PLANKS)[physics, action]
        holds = jax.random.uniform(unrolled(key)) < (jnp.float32(HOLDS) if context is None else context[0])
        successor = jnp.where(holds | ~plank, target, physics)
        return successor, jnp.asarray(ARRIVALS, jnp.float32)[successor], successor == cell(*GOAL)

    def observation(self, physics: Int[Array, ""]) -> Bool[Array, " S"]:
        """One flag for each cell. With coordinates, what is learnt in one cell would change the policy in its neighbours."""
        return jnp.arange(STATES, dtype=jnp.int32) == physics

    def return_range(self) -> tuple[float, float]:
        """From the reward of the cell that is farthest from the goal."""
        return bounded_returns(float(ARRIVALS.min()), 0.0, self.horizon, self.discount)

    def at(self, context: ArrayLike) -> Tabular:
        """The finite MDP of one site, whose context is the probability that the bridge holds."""
        (holds,) = np.ravel(np.asarray(context, np.float64)).tolist()
        if not 0 <= holds <= 1:
            raise InputError(f"context: bridge={holds:g} is not allowed; must be from 0 to 1")
        stay, move = np.eye(STATES), np.eye(STATES)[TARGETS]
        chance = np.where(PLANKS, holds, 1.0)[:, :, None]
        transitions = chance * move + (1 - chance) * stay[:, None, :]
        start, terminal = stay[cell(*START)], stay[cell(*GOAL)] > 0
        name = f"{self.name} (bridge={holds:g})"
        return Tabular(transitions, transitions @ ARRIVALS, start, terminal, self.horizon, self.discount, name)


def names() -> list[str]:
    """Names of the worlds of this family."""
    return ["crossing"]


def make(name: str, **given: Any) -> Crossing:
    """Build the world called `name`."""
    if name not in names():
        raise unknown_name("world", name, names())
    return Crossing(**given)
