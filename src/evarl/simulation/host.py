"""The engine of worlds on the host: a Python loop around open environments, with the policy compiled."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from evarl.agents.trajectory import Trajectory
from evarl.errors import InputError
from evarl.simulation import host_episodes
from evarl.simulation.episodes import Returns, StartStates
from evarl.simulation.host_acting import (
    HostActions,
    HostPolicy,
    drawn,
    mapped,
)
from evarl.simulation.host_resets import (
    SEEDS,
    HostStarts,
    begun,
    context_seed,
    ended,
    placed,
    reset_all,
    reset_seed,
    reset_seeds,
)
from evarl.simulation.rollouts import (
    SAME,
    Act,
    AssessmentRollout,
    AssessmentSize,
    Batch,
    Mapping,
    Noise,
    PerturbedAct,
    unchanged,
)
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld, Key

AT_ONCE = 16
"""Episodes that run at a time."""
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
    contexts: Float[np.ndarray, "N P"] | None = None
    """Context of each environment; None where the world has none."""


@dataclass(frozen=True)
class HostSimulator:
    """Simulator of a host world. A start state is a reset seed: an episode is a function of it and of the actions.

    An assessment may also begin at states that are given by their numbers, where the world has `state_fields`.

    So rollouts from one start state differ only by the policy's randomness, and their mean is the value given the seed and
    with it all randomness of the world. Averaged over seeds it is the value under μ_D.
    """

    world: HostWorld
    traceable: ClassVar[bool] = False
    default_rollouts: ClassVar[int] = 8

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself: only the policy is compiled."""
        return function

    def sometimes(self, due: Any, make: Callable[[], Any], otherwise: Any) -> Any:
        """What `make` returns if it is due, else `otherwise`."""
        return make() if due else otherwise

    def begin(
        self, batch: Batch, key: Key, seed: int = 0, index: int = 0, environments: HostEnvironments | None = None
    ) -> HostStates:
        """Reset N environments, which are opened unless they are given.

        A resumed run begins new episodes, since those under way cannot be saved.
        """
        environments = self.world.open(batch.environments) if environments is None else environments
        return self._begun(batch, environments, seed, index)

    def _begun(self, batch: Batch, environments: HostEnvironments, seed: int, index: int) -> HostStates:
        """Reset all environments, in the contexts that belong to the batch with this index."""
        count, contexts = batch.environments, None
        if self.world.contexts:
            key = jax.random.PRNGKey(context_seed(seed, index // batch.context_updates))
            drawn = np.asarray(draw_contexts(self.world.contexts, key, batch.contexts))
            contexts = np.repeat(drawn, count // batch.contexts, axis=0)
        seeds = [reset_seed(seed, index, i // batch.rollouts_per_start, 0) for i in range(count)]
        return HostStates(
            environments, reset_all(environments, seeds, contexts), np.zeros(count, np.int32), seed, contexts
        )

    def renew(self, batch: Batch, states: HostStates, key: Key, index: Any) -> HostStates:
        """Begin anew, with new contexts, where the batch with this index is the first of its contexts."""
        if index % batch.context_updates or (states.label == 0).all():  # the latter: just begun
            return states
        return self._begun(batch, states.environments, states.seed, index)

    def collect(
        self, batch: Batch, act: Act, states: HostStates, key: Key, index: Any = 0, noise: Noise = unchanged
    ) -> tuple[HostStates, Trajectory]:
        """Collect T steps of N environments; `index` is the number of the update, from which reset seeds are made.

        A host world may truncate episodes on its own account, so there is a slot for a final observation at every step.
        The states are changed in place.
        """
        steps, environments = batch.steps, batch.environments
        shape, dtype = states.observation.shape, states.observation.dtype
        observation, final = np.empty((steps, *shape), dtype), np.zeros((steps, *shape), dtype)
        label = np.empty((steps, environments), np.int32)
        reward, ends = np.empty((steps, environments), np.float32), np.empty((2, steps, environments), bool)
        truncations, resets = (np.zeros(environments, np.int32) for _ in range(2))
        acted, under_way = list[HostActions](), np.full(environments, -1, np.int32)

        def reset(i: int) -> np.ndarray:
            resets[i] += 1
            states.label[i] = resets[i]
            seed = reset_seed(states.seed, index, i // batch.rollouts_per_start, int(resets[i]))
            return states.environments.reset(i, seed)

        noises = jax.tree.map(np.asarray, drawn(noise, key, steps))
        for t, (shown, done, step) in enumerate(self._walk(act, states, noises, reset)):
            observation[t], reward[t], label[t] = shown, step.reward, states.label
            ends[0, t], ends[1, t] = step.terminated, step.truncated
            acted.append(done)
            states.label = under_way.copy()
            for i in ended(step.truncated):
                final[truncations[i], i] = step.observation[i]
                truncations[i] += 1
        states.label = np.where(states.label >= 0, states.label + steps, states.label).astype(np.int32)
        action, log_prob = np.stack([one.action for one in acted]), np.stack([one.log_prob for one in acted])
        columns: Any = (observation, action, log_prob, reward, *ends, label, final, states.observation.copy())
        trajectory = Trajectory(*columns)
        return states, trajectory if states.contexts is None else trajectory.replace(context=states.contexts)

    def start_states(self, key: Key, count: int, contexts: Float[Array, "Q P"] | None = None) -> StartStates:
        """Reset seeds drawn at random; in a family of worlds in given contexts, or each in a context of its own."""
        if self.world.contexts and contexts is None:
            key, own = jax.random.split(key)
            contexts = draw_contexts(self.world.contexts, own, count)
        seeds = np.asarray(jax.random.randint(key, (count,), 0, SEEDS))
        state = seeds if contexts is None else HostStarts(seeds, np.asarray(contexts))
        observation = self.observations(state)
        return StartStates(state, observation, np.zeros(count, np.int32), observation)

    def visited_states(
        self, act: Act, key: Key, count: int, environments: int = 64, episodes: int | None = None
    ) -> StartStates:
        """Refused: an episode cannot begin at a state in the middle of another."""
        raise InputError(f"{self.world.name}: is not a world in JAX, so episodes cannot begin at visited states")

    def episode_returns(self, act: Act, starts: StartStates, key: Key) -> Returns:
        """Returns [Q] of one episode for each reset seed."""
        return host_episodes.episode_returns(self.world, act, starts.state, key, AT_ONCE)

    def returns(self, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None) -> Returns:
        """Returns [Q, R] of `rollouts` episodes for each reset seed, `at_once` (16) at a time."""
        repeated = jax.tree.map(lambda x: np.repeat(x, rollouts, axis=0), starts.state)
        found = host_episodes.episode_returns(self.world, act, repeated, key, at_once or AT_ONCE)
        return Returns(*(x.reshape(starts.drawn, rollouts) for x in found))

    def start_template(self, like: Any = None) -> Any:
        """Shape and dtype of one start state of an assessment: the numbers of a state if `like` has two axes, else a seed."""
        fields = self.world.state_fields
        if fields and np.ndim(like) == 2:
            return jax.ShapeDtypeStruct((len(fields),), np.float64)
        return jax.ShapeDtypeStruct((), np.int64)

    def checked(self, start_states: Any) -> Int[np.ndarray, " k"] | Float[np.ndarray, "k n"]:
        """Reset seeds, or the numbers of states, as an array."""
        given, fields = np.asarray(start_states), self.world.state_fields
        if fields and given.dtype.kind in "fiu" and given.shape == (len(given) or -1, len(fields)):
            if np.isfinite(given).all():
                return given.astype(np.float64)
        elif given.ndim == 1 and given.size and given.dtype.kind in "iu" and given.min() >= 0:
            return given.astype(np.int64)
        states = f", or k states of {len(fields)} finite numbers ({', '.join(fields)})" if fields else ""
        raise InputError(
            f"assessment.start-states: {start_states!r:.100} is not allowed; must be k ≥ 1 reset seeds of at least 0{states}"
        )

    def observations(self, start_states: Any, mapping: Mapping = SAME) -> np.ndarray:
        """Observations [k, ...] at the start states of an assessment, or at others."""
        starts, contexts = start_states if isinstance(start_states, HostStarts) else (start_states, None)
        with closing(self.world.open(1)) as environments:
            rows = [placed(environments, 0, start, contexts, i) for i, start in enumerate(starts)]
            return mapped(mapping, np.stack(rows))

    def assess(
        self,
        act: Act,
        start_states: Any,
        size: AssessmentSize,
        key: Key,
        mapping: Mapping = SAME,
        contexts: Float[Array, "C P"] | None = None,
    ) -> AssessmentRollout:
        """Roll the policy out from each start state, in each of some contexts, `replicates` times.

        An environment whose episode ended is reset, and its rewards no longer count.
        """
        (horizon, replicates), count, given = size, len(start_states), None
        starts = list(np.repeat(start_states, replicates, axis=0))
        if contexts is not None:
            given = np.repeat(np.asarray(contexts), len(starts), axis=0)
            places = len(given) // len(starts)
            starts, count = starts * places, count * places
        alive, rows = np.ones(len(starts), bool), []
        with closing(self.world.open(len(starts))) as environments:
            states = HostStates(
                environments, reset_all(environments, starts, given), np.zeros(len(starts), np.int32), 0
            )
            reset = lambda i: begun(environments, i, starts[i])  # noqa: E731
            keys = np.asarray(jax.random.split(key, horizon))
            for shown, acted, step in self._walk(act, states, keys, reset, mapping):
                rows.append((shown, *acted[:2], np.where(alive, step.reward, np.float32(0)), alive))
                alive = alive & ~step.done
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        shape = (horizon, count, replicates)
        return AssessmentRollout(*(jnp.asarray(x.reshape(*shape, *x.shape[2:])) for x in columns))

    def assess_each(
        self,
        acts: PerturbedAct,
        start_states: Any,
        size: AssessmentSize,
        keys: UInt32[Array, "P 2"],
        mapping: Mapping = SAME,
        contexts: Float[Array, "P Q"] | None = None,
    ) -> AssessmentRollout:
        """As `assess`, of each of P perturbed policies, in a context of its own if there are any: [P, h, k, R, ...]."""
        (horizon, replicates), policies = size, len(keys)
        starts = list(np.repeat(start_states, replicates, axis=0))
        given = None if contexts is None else np.repeat(np.asarray(contexts), len(starts), axis=0)
        played = host_episodes.play_each(self.world, acts, starts * policies, given, horizon, keys, mapping)
        shape = policies, horizon, len(start_states), replicates
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[3:]), played)

    def episodes_each(
        self, acts: PerturbedAct, count: int, keys: UInt32[Array, "P 2"], contexts: Float[Array, "P Q"] | None = None
    ) -> AssessmentRollout:
        """One whole episode of each of P perturbed policies from each of `count` reset seeds: [P, T, count, 1, ...].

        Reset seeds are functions of the keys.
        """
        seeds, play_keys = reset_seeds(keys, count)
        given = None if contexts is None else np.repeat(np.asarray(contexts), count, axis=0)
        played = host_episodes.play_each(
            self.world, acts, np.asarray(seeds).ravel().tolist(), given, self.world.horizon, play_keys
        )
        return jax.tree.map(lambda x: x[:, :, :, None], played)

    def _walk(
        self, act: Act, states: HostStates, noises: Any, reset: Reset, mapping: Mapping = SAME
    ) -> Iterator[tuple[np.ndarray, HostActions, HostStep]]:
        """One step for each row of the noise: observations, the policy's actions, and the step; then ended episodes are reset."""
        policy = HostPolicy(act, self.world.name, mapping.action_space or self.world.action_space, mapping.action)
        for noise in noises:
            shown = mapped(mapping, states.observation)
            acted = policy(noise, shown)
            step = states.environments.step(acted.taken)
            yield shown, acted, step
            states.observation = step.observation.copy()
            for i in ended(step.terminated, step.truncated):
                states.observation[i] = reset(i)
