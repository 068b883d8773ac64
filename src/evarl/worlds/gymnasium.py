"""Worlds from Gymnasium, which run in Python on the host: `gymnasium/CartPole-v1`, `gymnasium/module:Name-v0`."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from evarl.errors import InputError
from evarl.storage.files import reason
from evarl.worlds import classic
from evarl.worlds.contexts import Context, ContextParameter
from evarl.worlds.gymnasium_sources import (
    SETTINGS,
    Arguments,
    Source,
    arguments,
    attributes,
    bare,
    blamed,
    close,
    failure,
    names as names,
    set_attributes,
    source_of,
    told,
)
from evarl.worlds.gymnasium_spaces import FLATTENED, both_spaces, check_finite, shown_as
from evarl.worlds.spaces import Box, OwnSpaces, Space
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld

KEPT = 4
"""Environments that a slot keeps, each made with other arguments."""

BEGIN_SEED = 0
"""Reset seed of episodes that begin at a given state. The tasks that can are deterministic from there on."""


MOST = float(np.finfo(np.float32).max)
"""Greatest reward."""


@dataclass(frozen=True, eq=False)
class GymnasiumWorld(HostWorld):
    """A Gymnasium environment with Box or Discrete spaces. Discrete observations are one-hot, floats are float32."""

    name: str
    source: Source
    """How its environments are made."""
    observation_space: Box
    action_space: Space
    horizon: int
    discount: float = 0.99
    parameters: tuple[ContextParameter, ...] = ()
    contexts: tuple[Context, ...] = ()
    arguments: tuple[str, ...] = ()
    """Names of the parameters that are arguments of `gymnasium.make`; the others are attributes of the environment."""
    own_spaces: OwnSpaces | None = None
    pictures: bool = False
    """Whether open environments can be asked for pictures."""

    @property
    def identifier(self) -> str:
        """The id in Gymnasium's registry, or the function."""
        return self.source.identifier

    @property
    def state_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """Numbers of a state in the tasks of classic control; any other environment begins by a reset seed only."""
        return classic.STATES[self.identifier].fields if self.identifier in classic.STATES else ()

    def state_from(self, numbers: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """These numbers themselves, if the task has not ended there."""
        if classic.STATES[self.identifier].ended(*numbers.tolist()):
            raise ValueError(classic.ENDED)
        return np.asarray(numbers, np.float64)

    def open(self, count: int) -> "GymnasiumEnvironments":
        """Create `count` environments."""
        return GymnasiumEnvironments(self, count)


class GymnasiumEnvironments(HostEnvironments):
    """Open Gymnasium environments. Each has its own clock instead of Gymnasium's time limit, and none resets itself."""

    def __init__(self, world: GymnasiumWorld, count: int) -> None:
        self._world = world
        self._drawn = _drawn(world)
        self._environments = [world.source.create(self._drawn) for _ in range(count)]
        self._elapsed: list[int | None] = [None] * count  # None: no episode is under way
        self._placed: list[dict[str, float]] = [{} for _ in range(count)]  # attributes of the site of each
        self._made: list[Arguments] = [() for _ in range(count)]  # arguments of the site of each
        self._kept: list[dict[Arguments, gymnasium.Env[Any, Any]]] = [{(): one} for one in self._environments]
        self._steppers = [bare(one) for one in self._environments]
        self._space = self._environments[0].observation_space
        self._plain = None if isinstance(self._space, spaces.Discrete) else self._space.dtype

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode; its course is a function of the seed, the options and the actions."""
        environment = self._environments[index] = self._made_for_site(index)
        self._steppers[index] = bare(environment)
        with blamed(self._world.name, f"environment {self.first + index}, reset with seed {seed}"):
            set_attributes(environment, self._placed[index])
            observation, _ = environment.reset(seed=int(seed), options=options)
            set_attributes(environment, self._placed[index])  # a reset may write them anew
            shown = shown_as(environment.observation_space, observation)
        self._elapsed[index] = 0
        return shown

    def begin(self, index: int, state: Float[np.ndarray, " n"]) -> np.ndarray:
        """Begin an episode at a given state of a task of classic control; a reset clears everything else that there is."""
        kind = classic.STATES.get(self._world.identifier)
        if kind is None or len(state) != len(kind.fields):
            raise InputError(f"{self._world.name}: cannot begin at a state of {len(state)} numbers")
        self.reset(index, BEGIN_SEED)
        environment: Any = self._environments[index]
        with blamed(self._world.name, f"environment {index}, beginning at {state.tolist()}"):
            environment.unwrapped.state = np.array(state, np.float64)
            return shown_as(environment.observation_space, kind.observation(environment.unwrapped.state))

    def step(self, action: np.ndarray) -> HostStep:
        """Move every environment by one step. With no episode under way, Gymnasium would return numbers that belong to none."""
        if None in self._elapsed:
            raise InputError(
                f"{self._world.name}: environment {self._elapsed.index(None)} has no episode under way; it must be "
                "reset before the next step"
            )
        count, index = len(self._environments), 0
        observation = np.empty((count, *self._world.observation_space.shape), self._world.observation_space.dtype)
        reward, terminated, truncated = [0.0] * count, [False] * count, [False] * count
        given, plain, shape = self._taken(action), self._plain, self._space.shape
        try:  # around the loop: a context for each environment would take as long as a simple one needs for a step
            with np.errstate(over="ignore"):
                for index, environment in enumerate(self._steppers):
                    shown, paid, ended, stopped, _ = environment.step(given[index])
                    if not (type(shown) is np.ndarray and shown.dtype == plain and shown.shape == shape):
                        shown = shown_as(self._space, shown)  # all else needs a closer look
                    observation[index] = shown
                    reward[index], terminated[index], truncated[index] = float(paid), bool(ended), bool(stopped)
        except (Exception, SystemExit) as error:
            raise failure(self._world.name, self._place(index), error) from error
        self._check(observation, reward)
        return self._clocked(observation, reward, terminated, truncated)

    def _taken(self, action: np.ndarray) -> list[Any]:
        """Actions in Gymnasium's form, whose integers need not begin at 0."""
        space = self._environments[0].action_space
        if isinstance(space, spaces.Discrete):
            start = int(space.start)
            return [start + one for one in action.tolist()]
        return list(np.asarray(action, space.dtype).reshape(len(action), *(space.shape or ())))

    def _place(self, index: int) -> str:
        return f"environment {self.first + index}, step {(self._elapsed[index] or 0) + 1} of its episode"

    def _check(self, observation: np.ndarray, reward: list[float]) -> None:
        """Refuse numbers that are not finite in 32 bits, and name the environment that returned them."""
        total = sum(map(abs, reward))  # NaN or infinite if one of them is
        finite = observation.dtype != np.float32 or np.count_nonzero(np.isfinite(observation)) == observation.size
        if total <= MOST and finite:
            return
        for index, (shown, paid) in enumerate(zip(observation, reward, strict=True)):
            with blamed(self._world.name, self._place(index)):
                check_finite(shown)
                if not -MOST <= paid <= MOST:
                    raise ValueError(f"the reward is {paid}; must be a finite number in 32 bits")

    def _clocked(
        self, observation: np.ndarray, reward: list[float], terminated: list[bool], truncated: list[bool]
    ) -> HostStep:
        """The step of all environments, after which their clocks have moved."""
        horizon = self._world.horizon
        for index, ended in enumerate(terminated):
            elapsed = (self._elapsed[index] or 0) + 1
            truncated[index] = not ended and (truncated[index] or elapsed >= horizon)
            self._elapsed[index] = None if ended or truncated[index] else elapsed
        return HostStep(
            observation, np.array(reward, np.float32), np.array(terminated, bool), np.array(truncated, bool)
        )

    def place(self, index: int, context: Float[np.ndarray, " P"]) -> None:
        """Give one environment a context, which holds from its next reset on."""
        world = self._world
        if len(context) != len(world.contexts):
            raise InputError(f"context: {len(context)} numbers are not allowed; {world.name} has {len(world.contexts)}")
        found = dict(zip((one.name for one in world.contexts), np.asarray(context, np.float64).tolist(), strict=True))
        values = {one.name: found.get(one.name, one.default) for one in world.parameters}
        values |= {one.name: round(values[one.name]) for one in world.parameters if one.whole}
        attributes = {name: value for name, value in values.items() if name not in world.arguments}
        self._placed[index] = classic.with_derived(world.identifier, attributes)
        if world.arguments:
            given = {name: values[name] for name in world.arguments} | SETTINGS.get(world.identifier, {})
            self._made[index] = tuple(sorted(given.items()))

    def picture(self, index: int) -> np.ndarray:
        """Pixels [height, width, 3] of one environment as it draws itself; the world must have `pictures`."""
        with blamed(self._world.name, f"environment {index}, while it was drawn"):
            try:
                drawn = self._environments[index].render()
            except (ImportError, gymnasium.error.Error) as error:
                raise InputError(f"world: {self._world.name} cannot be drawn here: {reason(error)}") from error
            except NotImplementedError as error:
                raise _no_rendering(self._world, "its render() is not implemented") from error
        pixels = np.asarray(drawn)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            mode = self._environments[index].render_mode
            raise _no_rendering(self._world, f"with render_mode {mode} it returned {pixels.dtype}{list(pixels.shape)}")
        return pixels

    def close(self) -> None:
        """Close every environment; errors are ignored."""
        for environment in (one for kept in self._kept for one in kept.values()):
            close(environment)

    def _made_for_site(self, index: int) -> gymnasium.Env[Any, Any]:
        """The environment that is made with the arguments of its site; of those kept, the one used longest ago is closed."""
        arguments, kept = self._made[index], self._kept[index]
        environment = kept.pop(arguments, None)
        if environment is None:
            environment = self._world.source.create((*arguments, *self._drawn))
            _check_spaces(self._world, environment, arguments)
        kept[arguments] = environment
        if len(kept) > KEPT:
            close(kept.pop(next(iter(kept))))
        return environment


def make(name: str, **given: Any) -> GymnasiumWorld:
    """Build the world called `name`; the horizon is its registered time limit unless given."""
    source = source_of(name)
    probe = source.create()
    try:
        given = {"horizon": source.horizon(probe)} | given
        if given["horizon"] is None:
            raise InputError(f"world: '{name}' has no time limit of its own; a --horizon must be given")
        varied, own = arguments(source), attributes(source.identifier, probe.unwrapped)
        given["arguments"] = tuple(one.name for one in varied)
        given["parameters"] = (*varied, *(one for one in own if one.name not in given["arguments"]))
        given["own_spaces"] = _own_spaces(probe)
        return GymnasiumWorld(name, source, *both_spaces(name, probe), **given)
    finally:
        close(probe)


def _own_spaces(environment: gymnasium.Env[Any, Any]) -> OwnSpaces:
    """Observations and actions as the environment has them, with numbers that need not begin at 0."""
    shown, taken = environment.observation_space, environment.action_space
    counted = isinstance(shown, spaces.Discrete)
    row = spaces.flatten_space(shown) if isinstance(shown, FLATTENED) else shown
    return OwnSpaces(
        first_observation=int(shown.start) if isinstance(shown, spaces.Discrete) else None,
        observation_shape=() if counted else tuple(row.shape or ()),
        first_action=int(taken.start) if isinstance(taken, spaces.Discrete) else None,
        action_dtype=str(taken.dtype),
        low=taken.low if isinstance(taken, spaces.Box) else None,
        high=taken.high if isinstance(taken, spaces.Box) else None,
    )


def _drawn(world: GymnasiumWorld) -> Arguments:
    """Arguments with which environments draw themselves; none where a function makes them, or no pictures are asked for."""
    if not world.pictures or world.source.function is not None:
        return ()
    probe = world.source.create()  # Gymnasium itself only warns of a mode that an environment does not have
    try:
        modes = list((probe.metadata or {}).get("render_modes") or [])
        if "rgb_array" not in modes:
            raise _no_rendering(world, f"its metadata names {modes}")
    finally:
        close(probe)
    return (("render_mode", "rgb_array"),)


def _no_rendering(world: GymnasiumWorld, why: str) -> InputError:
    """The error for an environment that does not draw itself."""
    remedy = "give it the argument render_mode, a render() that returns uint8[height, width, 3], and rgb_array in "
    remedy += "metadata['render_modes']"
    if world.source.function is not None:
        remedy = (
            "the function must make one with render_mode='rgb_array', whose render() returns uint8[height, width, 3]"
        )
    return InputError(f"world: {world.name} has no rendering as rgb_array ({why}); {remedy}")


def _check_spaces(world: GymnasiumWorld, environment: gymnasium.Env[Any, Any], arguments: Arguments) -> None:
    """Refuse arguments that make an environment with other spaces, and close it."""
    shown, taken = both_spaces(world.name, environment)
    if (shown, taken) != (world.observation_space, world.action_space):
        close(environment)
        raise InputError(
            f"context: {told(arguments)} gives {world.name} the spaces {shown} and {taken}; what varies must leave them as "
            f"they are, {world.observation_space} and {world.action_space}"
        )
