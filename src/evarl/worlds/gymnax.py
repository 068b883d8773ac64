"""Worlds from Gymnax: MinAtar, classic control, bsuite and a few more."""

from dataclasses import dataclass, field
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from jaxtyping import Array, Bool, Float

from evarl.errors import InputError, unknown_name
from evarl.worlds.spaces import Box, Space, as_space
from evarl.worlds.world import Action, Key, Observation, Physics, World, bounded_returns, lenient_promotion, strong

EXCLUDED = {
    "UmbrellaChain-bsuite": "draws part of its observation at random",
    "MNISTBandit-bsuite": "shows an image that its state does not hold",
    "MemoryChain-bsuite": "shows the state before the step, not the one after it",
    "MetaMaze-misc": "shows the last action",
    "PointRobot-misc": "shows the last action",
    "BernoulliBandit-misc": "shows the last action",
    "GaussianBandit-misc": "shows the last action",
}
"""Environments whose observation is not a function of the state, and why: no episode can begin at a given state of theirs."""

MOST_REWARD = {"Asterix-MinAtar": 1.0, "Freeway-MinAtar": 1.0, "Breakout-MinAtar": 1.0, "SpaceInvaders-MinAtar": 2.0}
"""Highest reward of a step, where it follows from the rules of the game; no step of these games has a reward below 0.

Asterix: each row holds one thing, and the player stands in one row. Freeway: one crossing. Breakout: one brick. Space
Invaders: five steps lie between two shots, which climb nine rows, so at most two are in flight, each good for one alien."""


@dataclass(frozen=True, eq=False)
class GymnaxWorld(World):
    """A Gymnax environment without its auto-reset and its clock. The physics is the Gymnax `EnvState`.

    The state's own `time` goes on but ends nothing: the horizon is that of this class, and Gymnax's `terminated` does not
    include time. Discrete observations are one-hot.
    """

    name: str
    environment: Environment[Any, Any]
    parameters: Any
    """Gymnax's `EnvParams`."""
    horizon: int
    discount: float = 0.99
    observation_dtype: str = "float32"
    """"bool" for worlds whose observations are zeros and ones, which takes a quarter of the memory."""
    observation_space: Box = field(init=False)
    action_space: Space = field(init=False)

    def __post_init__(self) -> None:
        with lenient_promotion():
            shown = self.environment.observation_space(self.parameters)
            taken = self.environment.action_space(self.parameters)
        observation_space = as_space(self.name, "observation", shown, spaces, self.observation_dtype)
        object.__setattr__(self, "observation_space", observation_space)
        object.__setattr__(self, "action_space", as_space(self.name, "action", taken, spaces))

    def initial(self, key: Key) -> Physics:
        """Draw a start state by Gymnax's reset."""
        with lenient_promotion():
            _, state = self.environment.reset_env(key, self.parameters)
        return strong(state)

    def transition(
        self, key: Key, physics: Physics, action: Action
    ) -> tuple[Physics, Float[Array, ""], Bool[Array, ""]]:
        """Move by Gymnax's step, without its auto-reset."""
        with lenient_promotion():
            _, state, reward, terminated, _ = self.environment.step_env(key, physics, action, self.parameters)
        return strong(state), jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool)

    def return_range(self) -> tuple[float, float] | None:
        """From the highest reward of a step, for games in which it is known."""
        most = MOST_REWARD.get(self.name.removeprefix("gymnax/"))
        return None if most is None else bounded_returns(0.0, most, self.horizon, self.discount)

    def observation(self, physics: Physics) -> Observation:
        """Gymnax's observation of a state, made without a key or the last action; see `EXCLUDED`."""
        with lenient_promotion():
            shown = self.environment.observe(None, physics, None, self.parameters)
        if not shown.shape and self.observation_space.shape:  # an index
            return jax.nn.one_hot(shown, self.observation_space.size, dtype=self.observation_dtype)
        return shown.astype(self.observation_dtype)


def names() -> list[str]:
    """Names of the worlds of this family, including those added by `gymnax.register`."""
    return [f"gymnax/{identifier}" for identifier in gymnax.registered_envs if identifier not in EXCLUDED]


def make(name: str, **given: Any) -> GymnaxWorld:
    """Build the world called `name`; the horizon is Gymnax's own limit unless given."""
    identifier = name.removeprefix("gymnax/")
    if identifier in EXCLUDED:
        raise InputError(
            f"world: '{name}' is not allowed, because it {EXCLUDED[identifier]}; must be one of {', '.join(names())}"
        )
    if name not in names():
        raise unknown_name("world", name, names())
    with lenient_promotion():
        environment, parameters = gymnax.make(identifier)
    given = {"horizon": int(parameters.max_steps_in_episode)} | given
    dtype = "bool" if identifier.endswith("-MinAtar") else "float32"
    return GymnaxWorld(name, environment, parameters, observation_dtype=dtype, **given)
