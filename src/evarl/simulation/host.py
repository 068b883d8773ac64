"""The engine of worlds on the host: a Python loop around open environments, with the policy compiled."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from evarl.agents.distributions import world_action
from evarl.agents.trajectory import Trajectory
from evarl.errors import InputError
from evarl.simulation.episodes import Returns, StartStates
from evarl.simulation.rollouts import SAME, Act, AssessmentRollout, Batch, Mapping, Noise, as_data, unchanged
from evarl.worlds.spaces import Discrete, Space
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld, Key

AT_ONCE = 16
"""Episodes that run at a time."""
SEEDS = 2**31 - 1
"""Reset seeds are drawn from 0 to one less."""

Reset = Callable[[int], np.ndarray]
"""Resets the environment with a number: the observation."""


@dataclass
class HostStates:
    """N open environments and their present observations."""

    environments: HostEnvironments
    observation: np.ndarray
    """[N, ...]"""
    label: Int[np.ndarray, " N"]
    """`Trajectory.start_label` of the next step: −1 in mid-episode."""
    seed: int
    """Random seed of the run, from which reset seeds are made."""


@dataclass(frozen=True)
class HostSimulator:
    """Simulator of a host world. A start state is a reset seed: an episode is a function of it and of the actions.

    So rollouts from one start state differ only by the policy's randomness, and their mean is the value given the seed and
    with it all randomness of the world. Averaged over seeds it is the value under μ_D.
    """

    world: HostWorld
    traceable: ClassVar[bool] = False
    default_rollouts: ClassVar[int] = 8

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself: only the policy is compiled."""
        return function

    def begin(self, batch: Batch, key: Key, seed: int = 0, index: int = 0) -> HostStates:
        """Open and reset N environments. A resumed run begins new episodes, since those under way cannot be saved."""
        environments, count = self.world.open(batch.environments), batch.environments
        seeds = [_reset_seed(seed, index, i // batch.rollouts_per_start, 0) for i in range(count)]
        return HostStates(environments, _reset(environments, seeds), np.zeros(count, np.int32), seed)

    def collect(
        self, batch: Batch, act: Act, states: HostStates, key: Key, index: Any = 0, noise: Noise = unchanged
    ) -> tuple[HostStates, Trajectory]:
        """Collect T steps of N environments; `index` is the number of the update, from which reset seeds are made.

        A host world may truncate episodes on its own account, so there is a slot for a final observation at every step.
        The states are changed in place.
        """
        kept: list[tuple[np.ndarray, ...]] = []
        final = np.zeros((batch.steps, *states.observation.shape), states.observation.dtype)
        truncations, resets = (np.zeros(batch.environments, np.int32) for _ in range(2))

        def reset(i: int) -> np.ndarray:
            resets[i] += 1
            states.label[i] = resets[i]
            seed = _reset_seed(states.seed, index, i // batch.rollouts_per_start, int(resets[i]))
            return states.environments.reset(i, seed)

        keys = jax.random.split(key, batch.steps)
        for shown, acted, step in self._walk(act, states, keys, reset, noise=noise):
            kept.append((shown, *acted[:2], step.reward, step.terminated, step.truncated, states.label, *acted[2:]))
            states.label = np.full(batch.environments, -1, np.int32)
            for i in np.flatnonzero(step.truncated):
                final[truncations[i], i] = step.observation[i]
                truncations[i] += 1
        states.label = np.where(states.label >= 0, states.label + batch.steps, states.label).astype(np.int32)
        columns = [jnp.asarray(np.stack(column)) for column in zip(*kept, strict=True)]
        ends = (jnp.asarray(x) for x in (final, states.observation))
        return states, Trajectory(*columns[:7], *ends, *columns[7:])

    def start_states(self, key: Key, count: int) -> StartStates:
        """Reset seeds drawn at random."""
        seeds = np.asarray(jax.random.randint(key, (count,), 0, SEEDS))
        observation = self.observations(seeds)
        return StartStates(seeds, observation, np.zeros(count, np.int32), observation)

    def visited_states(
        self, act: Act, key: Key, count: int, environments: int = 64, episodes: int | None = None
    ) -> StartStates:
        """Refused: an episode cannot begin at a state in the middle of another."""
        raise InputError(f"{self.world.name}: is not a world in JAX, so episodes cannot begin at visited states")

    def episode_returns(self, act: Act, starts: StartStates, key: Key) -> Returns:
        """Returns [Q] of one episode for each reset seed."""
        return self._returns(act, starts.state, key, AT_ONCE)

    def returns(self, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None) -> Returns:
        """Returns [Q, R] of `rollouts` episodes for each reset seed, `at_once` (16) at a time."""
        found = self._returns(act, np.repeat(starts.state, rollouts), key, at_once or AT_ONCE)
        return Returns(*(x.reshape(starts.drawn, rollouts) for x in found))

    def start_template(self) -> Any:
        """Shape and dtype of one start state of an assessment: a reset seed."""
        return jax.ShapeDtypeStruct((), np.int64)

    def checked(self, start_states: Any) -> Int[np.ndarray, " k"]:
        """Reset seeds as an array."""
        seeds = np.asarray(start_states)
        if seeds.ndim != 1 or not seeds.size or seeds.dtype.kind not in "iu" or seeds.min() < 0:
            raise InputError(
                f"assessment.start-states: {start_states!r:.100} is not allowed; must be k ≥ 1 reset seeds of at least 0"
            )
        return seeds.astype(np.int64)

    def observations(self, start_states: Any, mapping: Mapping = SAME) -> np.ndarray:
        """Observations [k, ...] at the start states of an assessment."""
        with closing(self.world.open(1)) as environments:
            return _mapped(mapping, np.stack([environments.reset(0, int(seed)) for seed in start_states]))

    def assess(
        self, act: Act, start_states: Any, horizon: int, replicates: int, key: Key, mapping: Mapping = SAME
    ) -> AssessmentRollout:
        """Roll the policy out for `horizon` steps from each reset seed, `replicates` times.

        An environment whose episode ended is reset, and its rewards no longer count.
        """
        seeds = [int(seed) for seed in np.repeat(start_states, replicates)]
        alive, rows = np.ones(len(seeds), bool), []
        with closing(self.world.open(len(seeds))) as environments:
            states = HostStates(environments, _reset(environments, seeds), np.zeros(len(seeds), np.int32), 0)
            reset = lambda i: environments.reset(i, seeds[i])  # noqa: E731
            keys = jax.random.split(key, horizon)
            for shown, (action, log_prob), step in self._walk(act, states, keys, reset, mapping):
                rows.append((shown, action, log_prob, np.where(alive, step.reward, np.float32(0)), alive))
                alive = alive & ~step.done
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        shape = (horizon, len(start_states), replicates)
        return AssessmentRollout(*(jnp.asarray(x.reshape(*shape, *x.shape[2:])) for x in columns))

    def _walk(
        self, act: Act, states: HostStates, keys: Array, reset: Reset, mapping: Mapping = SAME, noise: Noise = unchanged
    ) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, ...], HostStep]]:
        """One step for each key: observations, the policy's outputs, and the step; after it, ended episodes are reset."""
        space = mapping.action_space or self.world.action_space
        for key in keys:
            shown = _mapped(mapping, states.observation)
            acted, taken = jax.device_get(_act(as_data(act), noise, space, mapping.action, key, shown))
            if isinstance(space, Discrete):  # an environment might take any other number as well
                check_actions(self.world.name, space, acted[0])
            step = states.environments.step(taken)
            yield shown, acted, step
            states.observation = step.observation.copy()
            for i in np.flatnonzero(step.done):
                states.observation[i] = reset(int(i))

    def _returns(self, act: Act, seeds: Int[np.ndarray, " M"], key: Key, at_once: int) -> Returns:
        """Returns of one episode for each reset seed, at most `at_once` at a time.

        Environments move in lock-step for the policy's sake, but each is opened on its own: one whose episode has ended
        takes the next seed, and when there is none left it is not stepped again.
        """
        act, world = as_data(act), self.world
        returns, elapsed = np.zeros((2, len(seeds))), np.zeros(len(seeds), int)
        following = min(at_once, len(seeds))
        under_way = {i: i for i in range(following)}  # environment → position of its seed
        with ExitStack() as stack:
            opened = [stack.enter_context(closing(world.open(1))) for _ in under_way]
            observation = np.stack([opened[i].reset(0, int(seeds[at])) for i, at in under_way.items()])
            while under_way:
                key, act_key = jax.random.split(key)
                action = np.asarray(_act(act, unchanged, world.action_space, unchanged, act_key, observation)[1])
                for i, at in list(under_way.items()):
                    step = opened[i].step(action[i : i + 1])
                    returns[:, at] += step.reward[0] * np.array([world.discount ** elapsed[at], 1.0])
                    elapsed[at] += 1
                    observation[i] = step.observation[0]
                    if step.done[0]:
                        del under_way[i]
                        if following < len(seeds):
                            under_way[i], following = following, following + 1
                            observation[i] = opened[i].reset(0, int(seeds[under_way[i]]))
        return Returns(*returns)


@partial(jax.jit, static_argnames=("noise", "space", "map_action"))
def _act(
    act: Act, noise: Noise, space: Space, map_action: Callable[[Array], Array], key: Key, observation: Array
) -> tuple[tuple[Array, ...], Array]:
    """The policy's outputs, and its actions in the world's units."""
    acted = act(noise(key), observation)
    return acted, jax.vmap(map_action)(world_action(space, acted[0]))


def _mapped(mapping: Mapping, observation: np.ndarray) -> np.ndarray:
    if mapping.observation is unchanged:
        return observation
    return np.asarray(jax.vmap(mapping.observation)(jnp.asarray(observation)))


def _reset(environments: HostEnvironments, seeds: list[int]) -> np.ndarray:
    """Begin an episode in every environment: the observations."""
    return np.stack([environments.reset(i, seed) for i, seed in enumerate(seeds)])


def _reset_seed(seed: int, index: int, group: int, resets: int) -> int:
    """The n-th episode of a batch begins at the same state in all environments of a group."""
    return int(np.random.SeedSequence([seed, index, group, resets]).generate_state(1)[0])


class ActionError(InputError):
    """A policy took an action that its world does not have."""

    def __init__(self, told: str, who: str = "the policy"):
        super().__init__(f"{who} {told}")
        self.told = told


def check_actions(world: str, space: Space, actions: np.ndarray) -> None:
    """Refuse actions [M, ...] in the policy's units that a world does not have; coordinates with two bounds are clipped."""
    if isinstance(space, Discrete):
        wrong, expected = (actions < 0) | (actions >= space.n), f"a whole number from 0 to {space.n - 1}"
    else:
        low, high = (bound.reshape(1, -1) for bound in space.bounds())
        clipped = np.isfinite(low) & np.isfinite(high)
        inside = np.isfinite(actions) & (clipped | ((actions >= low) & (actions <= high)))
        wrong, expected = ~inside.all(axis=1), f"finite numbers that {space} has room for"
    if wrong.any():
        raise ActionError(f"takes the action {actions[wrong][0]} in {world}; must be {expected}")
