"""The engine of worlds on the host: a Python loop around open environments, with the policy compiled."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from evarl.agents.distributions import world_action
from evarl.agents.perturbation import Acted
from evarl.agents.trajectory import Trajectory
from evarl.errors import InputError
from evarl.simulation.episodes import Returns, StartStates
from evarl.simulation.rollouts import (
    SAME,
    Act,
    AssessmentRollout,
    AssessmentSize,
    Batch,
    Mapping,
    Noise,
    PerturbedAct,
    as_data,
    unchanged,
)
from evarl.worlds.contexts import draw_contexts
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
    contexts: Float[np.ndarray, "N P"] | None = None
    """Context of each environment; None where the world has none."""


class HostStarts(NamedTuple):
    """Start states in a family of worlds: reset seeds, and the context of each."""

    seeds: Int[np.ndarray, " Q"]
    contexts: Float[np.ndarray, "Q P"]


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

    def begin(self, batch: Batch, key: Key, seed: int = 0, index: int = 0) -> HostStates:
        """Open and reset N environments. A resumed run begins new episodes, since those under way cannot be saved."""
        environments = self.world.open(batch.environments)
        return self._begun(batch, environments, seed, index)

    def _begun(self, batch: Batch, environments: HostEnvironments, seed: int, index: int) -> HostStates:
        """Reset all environments, in the contexts that belong to the batch with this index."""
        count, contexts = batch.environments, None
        if self.world.contexts:
            key = jax.random.PRNGKey(_context_seed(seed, index // batch.context_updates))
            drawn = np.asarray(draw_contexts(self.world.contexts, key, batch.contexts))
            contexts = np.repeat(drawn, count // batch.contexts, axis=0)
        seeds = [_reset_seed(seed, index, i // batch.rollouts_per_start, 0) for i in range(count)]
        return HostStates(
            environments, _reset(environments, seeds, contexts), np.zeros(count, np.int32), seed, contexts
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
        context = None if states.contexts is None else jnp.asarray(states.contexts)
        return states, Trajectory(*columns[:7], *ends, *columns[7:]).replace(context=context)

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
        return self._returns(act, starts.state, key, AT_ONCE)

    def returns(self, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None) -> Returns:
        """Returns [Q, R] of `rollouts` episodes for each reset seed, `at_once` (16) at a time."""
        repeated = jax.tree.map(lambda x: np.repeat(x, rollouts, axis=0), starts.state)
        found = self._returns(act, repeated, key, at_once or AT_ONCE)
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
            rows = [_placed(environments, 0, start, contexts, i) for i, start in enumerate(starts)]
            return _mapped(mapping, np.stack(rows))

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
            begun = _reset(environments, starts, given)
            states = HostStates(environments, begun, np.zeros(len(starts), np.int32), 0)
            reset = lambda i: _begin(environments, i, starts[i])  # noqa: E731
            keys = jax.random.split(key, horizon)
            for shown, (action, log_prob), step in self._walk(act, states, keys, reset, mapping):
                rows.append((shown, action, log_prob, np.where(alive, step.reward, np.float32(0)), alive))
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
        played = self._play(acts, starts * policies, given, horizon, keys, mapping)
        shape = policies, horizon, len(start_states), replicates
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[3:]), played)

    def episodes_each(
        self, acts: PerturbedAct, count: int, keys: UInt32[Array, "P 2"], contexts: Float[Array, "P Q"] | None = None
    ) -> AssessmentRollout:
        """One whole episode of each of P perturbed policies from each of `count` reset seeds: [P, T, count, 1, ...].

        Reset seeds are functions of the keys.
        """
        seeds, play_keys = _reset_seeds(keys, count)
        given = None if contexts is None else np.repeat(np.asarray(contexts), count, axis=0)
        played = self._play(acts, np.asarray(seeds).ravel().tolist(), given, self.world.horizon, play_keys)
        return jax.tree.map(lambda x: x[:, :, :, None], played)

    def _play(
        self,
        acts: PerturbedAct,
        starts: list[Any],
        contexts: Float[np.ndarray, "PM Q"] | None,
        steps: int,
        keys: UInt32[Array, "P 2"],
        mapping: Mapping = SAME,
    ) -> AssessmentRollout:
        """Let P perturbed policies act in M environments each, all at once: leaves [P, steps, M, ...].

        They move in lock-step, so that one call is enough for all policies. Each environment is opened on its own and is not
        stepped again when its episode has ended; when all have, the remaining steps are 0.
        """
        space = mapping.action_space or self.world.action_space
        how, own = (acts, space, mapping.action), lambda x: x.reshape(len(keys), -1, *x.shape[1:])
        alive, first, rows = np.ones(len(starts), bool), np.ones((), bool), []
        with ExitStack() as stack:
            opened = [stack.enter_context(closing(self.world.open(1))) for _ in starts]
            observation = np.stack([_placed(one, 0, starts[i], contexts, i) for i, one in enumerate(opened)])
            shown = own(_mapped(mapping, observation))
            shapes = jax.eval_shape(_act_each, *how, keys, shown, None, None)[0]
            last = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
            for key in np.asarray(_step_keys(keys, steps)):
                last, taken = jax.device_get(_act_each(*how, key, shown, last, first))
                if isinstance(space, Discrete):
                    check_actions(self.world.name, space, last.taken)
                observation, reward, going = observation.copy(), np.zeros(len(starts), np.float32), alive.copy()
                for i in np.flatnonzero(alive):
                    step = opened[i].step(taken[i : i + 1])
                    observation[i], reward[i], going[i] = step.observation[0], step.reward[0], not step.done[0]
                rows.append((shown, last.taken, np.zeros_like(own(reward)), own(reward), own(alive)))
                if not going.any():
                    break
                shown, alive, first = own(_mapped(mapping, observation)), going, np.zeros((), bool)
        return AssessmentRollout(*(_padded(np.stack(column, axis=1), steps) for column in zip(*rows, strict=True)))

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

    def _returns(self, act: Act, starts: Any, key: Key, at_once: int) -> Returns:
        """Returns of one episode for each of M start states, at most `at_once` at a time.

        Environments move in lock-step for the policy's sake, but each is opened on its own: one whose episode has ended
        takes the next seed, and when there is none left it is not stepped again.
        """
        act, world = as_data(act), self.world
        seeds, contexts = starts if isinstance(starts, HostStarts) else (starts, None)
        returns, elapsed = np.zeros((2, len(seeds))), np.zeros(len(seeds), int)
        following = min(at_once, len(seeds))
        under_way = {i: i for i in range(following)}  # environment → position of its seed
        with ExitStack() as stack:
            opened = [stack.enter_context(closing(world.open(1))) for _ in under_way]
            begin = lambda i, at: _placed(opened[i], 0, seeds[at], contexts, at)  # noqa: E731
            observation = np.stack([begin(i, at) for i, at in under_way.items()])
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
                            observation[i] = begin(i, under_way[i])
        return Returns(*returns)


@partial(jax.jit, static_argnames=("noise", "space", "map_action"))
def _act(
    act: Act, noise: Noise, space: Space, map_action: Callable[[Array], Array], key: Key, observation: Array
) -> tuple[tuple[Array, ...], Array]:
    """The policy's outputs, and its actions in the world's units."""
    acted = act(noise(key), observation)
    return acted, jax.vmap(map_action)(world_action(space, acted[0]))


@partial(jax.jit, static_argnames=("space", "map_action"))
def _act_each(
    acts: PerturbedAct,
    space: Space,
    map_action: Callable[[Array], Array],
    keys: UInt32[Array | np.ndarray, "P 2"],
    observation: Shaped[Array | np.ndarray, "P M ..."],
    last: Acted | None,
    first: Bool[Array | np.ndarray, ""] | None,
) -> tuple[Acted, Shaped[Array, "PM ..."]]:
    """Actions [P, M, ...] of P perturbed policies in M environments each, and those taken in the world's units, in a row."""
    one = lambda act, key, observation, last: act(key, observation, last, first)  # noqa: E731
    acted = jax.vmap(one)(acts, keys, observation, last)
    taken = acted.taken.reshape(-1, *acted.taken.shape[2:])
    return acted, jax.vmap(map_action)(world_action(space, taken))


@partial(jax.jit, static_argnames="steps")
def _step_keys(keys: UInt32[Array, "P 2"], steps: int) -> UInt32[Array, "steps P 2"]:
    """A key for each step of each policy."""
    return jax.vmap(lambda key: jax.random.split(key, steps), out_axes=1)(keys)


@partial(jax.jit, static_argnames="count")
def _reset_seeds(keys: UInt32[Array, "P 2"], count: int) -> tuple[Int[Array, "P count"], UInt32[Array, "P 2"]]:
    """Reset seeds for each policy, and a key for its actions."""
    reset_keys, play_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    return jax.vmap(lambda key: jax.random.randint(key, (count,), 0, SEEDS))(reset_keys), play_keys


def _padded(x: Shaped[np.ndarray, "P T ..."], steps: int) -> Shaped[Array, "P steps ..."]:
    """What happened in the first T steps, and 0 in the others."""
    others = [(0, 0)] * (x.ndim - 2)
    return jnp.asarray(np.pad(x, [(0, 0), (0, steps - x.shape[1]), *others]))


def _mapped(mapping: Mapping, observation: np.ndarray) -> np.ndarray:
    if mapping.observation is unchanged:
        return observation
    return np.asarray(jax.vmap(mapping.observation)(jnp.asarray(observation)))


def _reset(environments: HostEnvironments, starts: list[Any], contexts: np.ndarray | None = None) -> np.ndarray:
    """Begin an episode in every environment: the observations."""
    return np.stack([_placed(environments, i, start, contexts, i) for i, start in enumerate(starts)])


def _placed(environments: HostEnvironments, i: int, start: Any, contexts: np.ndarray | None, row: int) -> np.ndarray:
    """Begin an episode in one environment, in one of the contexts if there are any: the observation."""
    if contexts is not None:
        environments.place(i, contexts[row])
    return _begin(environments, i, start)


def _begin(environments: HostEnvironments, i: int, start: Any) -> np.ndarray:
    """Begin an episode in one environment, by a reset seed or at the numbers [n] of a state: the observation."""
    return environments.begin(i, start) if np.ndim(start) else environments.reset(i, int(start))


def _context_seed(seed: int, period: int) -> int:
    """Contexts are a function of the run's seed and of how often they were drawn, so that a resumed run has the same."""
    return int(np.random.SeedSequence([seed, period]).generate_state(1)[0])


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
