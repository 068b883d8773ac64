"""2-D navigation, the paper's task with mismatched dynamics: deployment among obstacles, assessment in an open field."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import unknown_name
from evarl.worlds.spaces import Box, Discrete
from evarl.worlds.world import Key, World, bounded_returns

GOAL = (0.9, 0.9)
GOAL_RADIUS = 0.08
GOAL_BONUS = 1.0
START = (0.05, 0.05)
OBSTACLES = (((0.30, 0.15), (0.40, 0.55)), ((0.60, 0.45), (0.70, 0.75)))
"""Rectangles as (lower left corner, upper right corner)."""

DIRECTIONS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
"""Actions: right, up, left, down."""

TOUCH = 1e-5
"""Tolerance of contact with obstacles: positions are sums of float32 steps, and several obstacle edges are such sums too."""


@dataclass(frozen=True)
class Navigation(World):
    """A point in the unit square that moves to the goal at the top right.

    The reward of a step is minus the distance to the goal from where it ends, plus 1 on reaching it, which ends the
    episode. A step is clipped to the square, and one that touches an obstacle is bounced back to where it began.
    """

    name: str = "navigation"
    step_size: float = 0.2
    obstacles: tuple[tuple[tuple[float, float], tuple[float, float]], ...] = OBSTACLES
    horizon: int = 50
    discount: float = 0.99
    observation_space: Box = Box((2,), 0.0, 1.0)
    action_space: Discrete = Discrete(4)

    def initial(self, key: Key) -> Float[Array, "2"]:
        """The only start state of the paper."""
        return jnp.asarray(START, jnp.float32)

    def transition(
        self, key: Key, physics: Float[Array, "2"], action: Int[Array, ""]
    ) -> tuple[Float[Array, "2"], Float[Array, ""], Bool[Array, ""]]:
        """Move one step in one of the four directions."""
        target = jnp.clip(physics + self.step_size * jnp.asarray(DIRECTIONS, jnp.float32)[action], 0.0, 1.0)
        target = jnp.where(self._touches_obstacle(physics, target), physics, target)
        distance = jnp.linalg.norm(target - jnp.asarray(GOAL, jnp.float32))
        reached = distance <= GOAL_RADIUS
        return target, -distance + GOAL_BONUS * reached.astype(jnp.float32), reached

    def return_range(self) -> tuple[float, float]:
        """From the distance of the corner (0, 0), the farthest from the goal, and the bonus, paid once at the end."""
        low, high = bounded_returns(-float(np.hypot(*GOAL)), 0.0, self.horizon, self.discount)
        return low, high + GOAL_BONUS

    def observation(self, physics: Float[Array, "2"]) -> Float[Array, "2"]:
        """The position itself."""
        return physics

    def _touches_obstacle(self, begin: Float[Array, "2"], end: Float[Array, "2"]) -> Bool[Array, ""]:
        """Whether a step touches an obstacle; steps are parallel to an axis, so it is enough to compare bounding boxes."""
        if not self.obstacles:
            return jnp.zeros((), bool)
        corners = np.asarray(self.obstacles, np.float32)  # [obstacle, corner, axis]
        low, high = jnp.minimum(begin, end), jnp.maximum(begin, end)
        overlap = (low[None] <= corners[:, 1] + TOUCH) & (high[None] >= corners[:, 0] - TOUCH)
        return overlap.all(axis=1).any()


def open_field(horizon: int = 50, discount: float = 0.99) -> Navigation:
    """The paper's assessment world: no obstacles, twice the step."""
    return Navigation("navigation/open-field", 0.4, (), horizon, discount)


def names() -> list[str]:
    """Names of the worlds of this family."""
    return ["navigation", "navigation/open-field"]


def make(name: str, **given: Any) -> Navigation:
    """Build the world called `name`."""
    if name not in names():
        raise unknown_name("world", name, names())
    return open_field(**given) if name == "navigation/open-field" else Navigation(**given)
