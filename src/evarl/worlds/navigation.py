"""2-D navigation, the paper's task with mismatched dynamics: deployment among obstacles, assessment in an open field."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evarl.errors import unknown_name
from evarl.keys import unrolled
from evarl.worlds.contexts import Context, ContextParameter, site_values
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
    contexts: tuple[Context, ...] = ()
    observation_space: Box = Box((2,), 0.0, 1.0)
    action_space: Discrete = Discrete(4)

    @property
    def parameters(self) -> tuple[ContextParameter, ...]:  # type: ignore[override]
        """How far and how surely a step goes, and which of the obstacles stand."""
        return (
            ContextParameter("slip", 0.0, 0.0, 0.9, "probability that a step goes in a random direction"),
            ContextParameter("wind", 0.0, -0.1, 0.1, "drift to the right in each step"),
            ContextParameter("step-size", self.step_size, 0.05, 0.5, "length of a step"),
            *(
                ContextParameter(f"obstacle-{number}", 1.0, 0.0, 1.0, f"whether the obstacle at {corner} stands", True)
                for number, (corner, _) in enumerate(self.obstacles, start=1)
            ),
        )

    def initial(self, key: Key, context: Array | None = None) -> Float[Array, "2"]:
        """The only start state of the paper."""
        return jnp.asarray(START, jnp.float32)

    def transition(
        self, key: Key, physics: Float[Array, "2"], action: Int[Array, ""], context: Array | None = None
    ) -> tuple[Float[Array, "2"], Float[Array, ""], Bool[Array, ""]]:
        """Move one step in one of the four directions."""
        if context is None:
            target = jnp.clip(physics + self.step_size * jnp.asarray(DIRECTIONS, jnp.float32)[action], 0.0, 1.0)
            touches = self._touched(physics, target).any()
        else:
            target, touches = self._varied(key, physics, action, context)
        target = jnp.where(touches, physics, target)
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

    def _varied(
        self, key: Key, physics: Float[Array, "2"], action: Int[Array, ""], context: Float[Array, " P"]
    ) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
        """Where a step of one site ends if nothing is in its way, and whether something is."""
        site, varies = site_values(self.parameters, self.contexts, context), {one.name for one in self.contexts}
        if "slip" in varies:
            chance, direction = jax.random.uniform(unrolled(key), (2,))
            turned = (direction * len(DIRECTIONS)).astype(action.dtype)
            action = jnp.where(chance < site["slip"], turned, action)
        target = physics + site["step-size"] * jnp.asarray(DIRECTIONS, jnp.float32)[action]
        if "wind" in varies:
            target += jnp.stack([jnp.asarray(site["wind"], jnp.float32), jnp.float32(0.0)])
        target = jnp.clip(target, 0.0, 1.0)
        touched = self._touched(physics, target)
        if "wind" in varies:  # else every step is parallel to an axis
            touched &= self._meets_line(physics, target)
        stands = [jnp.asarray(site[f"obstacle-{number + 1}"]) >= 0.5 for number in range(len(self.obstacles))]
        return target, (touched & jnp.asarray(stands, bool)).any()

    def _touched(self, begin: Float[Array, "2"], end: Float[Array, "2"]) -> Bool[Array, " O"]:
        """Which obstacles touch the bounding box of a step; if it is parallel to an axis, they are those that it touches."""
        low, high = jnp.minimum(begin, end), jnp.maximum(begin, end)
        overlap = (low[None] <= self._corners[:, 1] + TOUCH) & (high[None] >= self._corners[:, 0] - TOUCH)
        return overlap.all(axis=1)

    def _meets_line(self, begin: Float[Array, "2"], end: Float[Array, "2"]) -> Bool[Array, " O"]:
        """Which obstacles meet the line through a step: their corners are not all on one side of it."""
        centre, half = self._corners.mean(axis=1), (self._corners[:, 1] - self._corners[:, 0]) / 2 + np.float32(TOUCH)
        across, along = end - begin, centre - begin[None]
        offset = across[0] * along[:, 1] - across[1] * along[:, 0]
        return jnp.abs(offset) <= half[:, 0] * jnp.abs(across[1]) + half[:, 1] * jnp.abs(across[0])

    @property
    def _corners(self) -> Float[np.ndarray, "O 2 2"]:
        """Lower left and upper right corner of each obstacle."""
        return np.asarray(self.obstacles, np.float32).reshape(-1, 2, 2)


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
