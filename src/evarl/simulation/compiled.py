"""The engine of worlds in JAX: environments are vmapped, and loops over steps run inside compiled programs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt32

from evarl.agents.distributions import world_action
from evarl.agents.perturbation import Acted
from evarl.agents.trajectory import Trajectory
from evarl.keys import reservoir_slots, split
from evarl.simulation.episodes import Returns, StartStates, final_slots, record_final
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
from evarl.worlds.world import Key, Step, World, WorldState, select

AT_ONCE = 4096
"""Episodes that run at a time."""


class WorldStates(struct.PyTreeNode):
    """States of N environments between two batches."""

    state: WorldState
    observation: Array
    """[N, ...]"""
    label: Int[Array, " N"]
    """`Trajectory.start_label` of the next step: −1 in mid-episode."""


class _Reservoir(NamedTuple):
    """A uniform sample of the steps played so far."""

    kept: WorldState
    """[count]"""
    seen: Int[Array, ""]


@dataclass(frozen=True)
class CompiledSimulator:
    """Simulator of a world in JAX. Simulators of equal worlds are equal and share their compiled programs."""

    world: World
    traceable: ClassVar[bool] = True
    default_rollouts: ClassVar[int] = 64

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls this simulator, compiled."""
        return jax.jit(function)

    def sometimes(self, due: Bool[Array, ""], make: Callable[[], Any], otherwise: Any) -> Any:
        """What `make` returns if it is due, else `otherwise`, which has the same shapes; decided in the compiled program."""
        return jax.lax.cond(due, make, lambda: otherwise)

    def step(
        self, act: Act, noise: Array, keys: Array, states: WorldState, observation: Array, mapping: Mapping = SAME
    ) -> tuple[tuple[Array, ...], Step]:
        """Let the policy act in N environments and move each by one step: the policy's outputs, and the step.

        `noise` is the first argument of `act`; `keys` [N, 2] are those of the world.
        """
        acted = act(noise, observation)
        taken = world_action(mapping.action_space or self.world.action_space, acted[0])
        if mapping.action is not unchanged:
            taken = jax.vmap(mapping.action)(taken)
        return acted, jax.vmap(self.world.step)(keys, states, taken)

    def begin(self, batch: Batch, key: Key, seed: int = 0, index: int = 0) -> WorldStates:
        """Reset N environments; each group of `rollouts_per_start` neighbours begins at one start state."""
        contexts = None
        if self.world.contexts:
            key, own = split(key)
            contexts = draw_contexts(self.world.contexts, own, batch.contexts)
            contexts = jnp.repeat(contexts, batch.environments // batch.contexts, axis=0)
        count = jnp.zeros(batch.environments, jnp.int32)
        reset_keys = jax.vmap(jax.random.fold_in)(_group_keys(key, batch), count)
        return WorldStates(*jax.vmap(self.world.reset)(reset_keys, contexts), count)

    def renew(self, batch: Batch, states: WorldStates, key: Key, index: Any) -> WorldStates:
        """Begin anew, with new contexts, where the batch with this index is the first of its contexts. To be traced."""
        if batch.context_updates == 1:
            return self.begin(batch, key)
        due = index % batch.context_updates == 0
        return jax.lax.cond(due, lambda states: self.begin(batch, key), lambda states: states, states)

    def collect(
        self, batch: Batch, act: Act, states: WorldStates, key: Key, index: Any = 0, noise: Noise = unchanged
    ) -> tuple[WorldStates, Trajectory]:
        """Collect T steps of N environments; an episode that ends is followed by a new one. To be traced.

        `act` is given `noise(key)`, made for all steps before the first: one long vector is drawn faster than many short
        ones. The j-th reset within a batch leads all environments of a group to the same start state, because the reset
        key is repeated and the keys of the steps are not: independent rollouts from one state at no extra cost.
        """
        step_key, reset_key = split(key)
        group_keys = _group_keys(reset_key, batch)

        # states, observations [K, N, ...] at truncations so far, numbers of truncations and of resets
        Carry = tuple[WorldStates, Array, Int[Array, " N"], Int[Array, " N"]]

        def one_step(carry: Carry, drawn: tuple[Array, Array]) -> tuple[Carry, tuple[tuple[Array, ...], ...]]:
            states, final, truncations, resets = carry
            acted, step = self.step(act, *drawn, states.state, states.observation)
            done = step.terminated | step.truncated
            onward = WorldStates(step.state, step.observation, jnp.full_like(resets, -1))
            final = record_final(final, truncations, step.truncated, step.observation)

            def begin_anew(onward: WorldStates) -> WorldStates:
                reset_keys = jax.vmap(jax.random.fold_in)(group_keys, resets)
                fresh = jax.vmap(self.world.reset)(reset_keys, onward.state.context)
                return jax.vmap(select)(done, WorldStates(*fresh, resets + 1), onward)

            # start states are drawn only when some episode ended: in many worlds that costs as much as a step
            following = jax.lax.cond(done.any(), begin_anew, lambda onward: onward, onward)
            kept = (states.observation, *acted[:2], step.reward, step.terminated, step.truncated, states.label)
            counted = truncations + step.truncated.astype(jnp.int32), resets + done.astype(jnp.int32)
            return (following, final, *counted), (kept, acted[2:])

        shape = final_slots(batch.steps, self.world.horizon), *states.observation.shape
        zeros = jnp.zeros(batch.environments, jnp.int32)
        act_keys, step_keys = jnp.moveaxis(jax.vmap(split)(split(step_key, batch.steps)), 1, 0)
        step_keys = jax.vmap(lambda key: split(key, batch.environments))(step_keys)
        carry = states, jnp.zeros(shape, states.observation.dtype), zeros, zeros
        (states, final, _, _), (kept, more) = jax.lax.scan(one_step, carry, (jax.vmap(noise)(act_keys), step_keys))
        # a start state drawn in this batch and begun in the next must not be taken for one that the next batch draws
        label = jnp.where(states.label >= 0, states.label + batch.steps, states.label)
        trajectory = Trajectory(*(*kept, final, states.observation, *more)).replace(context=states.state.context)
        return states.replace(label=label), trajectory

    def start_states(self, key: Key, count: int, contexts: Float[Array, "Q P"] | None = None) -> StartStates:
        """Start states drawn from μ_D; in a family of worlds in given contexts, or each in a context of its own."""
        return _start_states(self, key, count, contexts)

    def visited_states(
        self, act: Act, key: Key, count: int, environments: int = 64, episodes: int | None = None
    ) -> StartStates:
        """States that the policy visits, clocks included, in random order.

        Every environment plays `episodes` whole episodes (the first n to finish would be the short ones), and `count` of
        all the steps played are drawn uniformly without replacement. By default `episodes` is the least number that always
        suffices, ⌈count / environments⌉; if too few steps were played, each is used once and some are drawn again.

        The draw is exact and takes one pass, with no more than `count` states in memory: reservoir sampling, in which the
        i-th step played replaces a uniformly drawn one of i slots, if that is among the first `count`.
        """
        if episodes is None:
            episodes = -(-count // environments)
        return _visited_states(self, as_data(act), key, count, environments, episodes)

    def episode_returns(self, act: Act, starts: StartStates, key: Key) -> Returns:
        """Returns [Q] of one episode from each state, all in one program."""
        discounted, undiscounted = _episode_returns(self, as_data(act), starts.state, starts.observation, key)
        return Returns(np.asarray(discounted, np.float64), np.asarray(undiscounted, np.float64))

    def returns(self, act: Act, starts: StartStates, key: Key, rollouts: int, at_once: int | None = None) -> Returns:
        """Returns [Q, R] of `rollouts` independent episodes from each state, `at_once` (4096) at a time.

        Clocks go on from where they are: a state visited at step 150 of a horizon of 200 has 50 steps left, and one whose
        time is up returns 0. All chunks run through one compiled program; the last one is padded and the returns of the
        padding are dropped. States with similar clocks share a chunk, because a chunk lasts as long as its longest episode.
        """
        queries, total = starts.drawn, starts.drawn * rollouts
        chunks = -(-total // (at_once or AT_ONCE))
        size = -(-total // chunks)
        order = np.argsort(np.asarray(starts.elapsed), kind="stable")
        returns = np.empty((2, chunks * size))
        for index in range(chunks):
            lanes = np.arange(index * size, (index + 1) * size)
            chosen = order[np.minimum(lanes, total - 1) // rollouts].astype(np.int32)
            chunk_key = jax.random.fold_in(key, index)
            at = starts.state, starts.observation
            returns[:, lanes] = _chosen_returns(self, as_data(act), *at, chosen, chunk_key)
        rows = np.empty((2, queries, rollouts))
        rows[:, order] = returns[:, :total].reshape(2, queries, rollouts)
        return Returns(*rows)

    def start_template(self, like: Any = None) -> Any:
        """Shapes and dtypes of one start state of an assessment: those of the physics, whatever `like` is."""
        return jax.eval_shape(self.world.initial, jax.random.PRNGKey(0))

    def checked(self, start_states: Any) -> Any:
        """Start states of an assessment: every stacked physics is one."""
        return start_states

    def observations(self, start_states: Any, mapping: Mapping = SAME) -> Array:
        """Observations [k, ...] at the start states of an assessment."""
        shown = jax.vmap(lambda physics: mapping.observation(self.world.observation(physics)))
        return jax.jit(shown)(start_states)  # operation by operation this takes a second in MinAtar

    def assess(
        self,
        act: Act,
        start_states: Any,
        size: AssessmentSize,
        key: Key,
        mapping: Mapping = SAME,
        contexts: Float[Array, "C P"] | None = None,
    ) -> AssessmentRollout:
        """Roll the policy out from each start state, in each of some contexts, `replicates` times. To be traced."""
        horizon, replicates = size
        state, observation, count = self._begun(start_states, replicates, contexts)
        mapped = (lambda x: x) if mapping.observation is unchanged else jax.vmap(mapping.observation)
        Carry = tuple[WorldState, Array, Bool[Array, " M"]]

        def one_step(carry: Carry, key: Key) -> tuple[Carry, tuple[Array, ...]]:
            state, shown, alive = carry
            act_key, step_keys = _split(key, count * replicates)
            (action, log_prob), step = self.step(act, act_key, step_keys, state, shown, mapping)
            reward, done = jnp.where(alive, step.reward, 0.0), step.terminated | step.truncated
            return (step.state, mapped(step.observation), alive & ~done), (shown, action, log_prob, reward, alive)

        carry = state, mapped(observation), jnp.ones(count * replicates, bool)
        _, steps = jax.lax.scan(one_step, carry, split(key, horizon))
        return AssessmentRollout(*(x.reshape(horizon, count, replicates, *x.shape[2:]) for x in steps))

    def assess_perturbed(
        self,
        act: PerturbedAct,
        start_states: Any,
        size: AssessmentSize,
        key: Key,
        mapping: Mapping = SAME,
        contexts: Float[Array, "C P"] | None = None,
    ) -> AssessmentRollout:
        """As `assess`, for a perturbed policy."""
        horizon, replicates = size
        state, observation, count = self._begun(start_states, replicates, contexts)
        played = self._play(act, state, observation, horizon, key, mapping)
        return jax.tree.map(lambda x: x.reshape(horizon, count, replicates, *x.shape[3:]), played)

    def episodes(
        self, act: PerturbedAct, count: int, key: Key, context: Float[Array, " P"] | None = None
    ) -> AssessmentRollout:
        """One whole episode of a perturbed policy from each of `count` start states, with one replicate. To be traced."""
        reset_key, play_key = split(key)
        reset = jax.vmap(self.world.reset, in_axes=(0, None))
        state, observation = reset(split(reset_key, count), context)
        return self._play(act, state, observation, self.world.horizon, play_key)

    def assess_each(
        self,
        acts: PerturbedAct,
        start_states: Any,
        size: AssessmentSize,
        keys: UInt32[Array, "P 2"],
        mapping: Mapping = SAME,
        contexts: Float[Array, "P Q"] | None = None,
    ) -> AssessmentRollout:
        """`assess_perturbed` of each of P policies, in a context of its own if there are any: leaves [P, h, k, R, ...]."""

        def one(act: PerturbedAct, key: Key, context: Float[Array, " Q"] | None) -> AssessmentRollout:
            return self.assess_perturbed(
                act, start_states, size, key, mapping, None if context is None else context[None]
            )

        return jax.vmap(one)(acts, keys, contexts)

    def episodes_each(
        self, acts: PerturbedAct, count: int, keys: UInt32[Array, "P 2"], contexts: Float[Array, "P Q"] | None = None
    ) -> AssessmentRollout:
        """`episodes` of each of P policies, in a context of its own if there are any: leaves [P, T, count, 1, ...]."""
        return jax.vmap(lambda act, key, context: self.episodes(act, count, key, context))(acts, keys, contexts)

    def _begun(
        self, start_states: Any, replicates: int, contexts: Float[Array, "C P"] | None
    ) -> tuple[WorldState, Array, int]:
        """States at the beginning of an assessment, each start state `replicates` times, and the number of scenarios."""
        count = jax.tree.leaves(start_states)[0].shape[0]
        starts = jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf), replicates, axis=0), start_states)
        if contexts is not None:
            places = contexts.shape[0]
            starts = jax.tree.map(lambda leaf: jnp.tile(leaf, (places, *(1,) * (leaf.ndim - 1))), starts)
            contexts, count = jnp.repeat(contexts, count * replicates, axis=0), places * count
        return *jax.vmap(self.world.begin)(starts, contexts), count

    def _play(
        self, act: PerturbedAct, state: WorldState, observation: Array, steps: int, key: Key, mapping: Mapping = SAME
    ) -> AssessmentRollout:
        """Let a perturbed policy act for some steps in M environments, none of which begins anew: leaves [steps, M, 1, ...]."""
        mapped = (lambda x: x) if mapping.observation is unchanged else jax.vmap(mapping.observation)
        Carry = tuple[WorldState, Array, Bool[Array, " M"], Acted, Bool[Array, ""]]
        count = observation.shape[0]

        def one_step(carry: Carry, key: Key) -> tuple[Carry, tuple[Array, ...]]:
            state, shown, alive, last, first = carry
            act_key, step_keys = _split(key, count)
            remembering = lambda key, shown: act(key, shown, last, first)  # noqa: E731
            acted, step = self.step(remembering, act_key, step_keys, state, shown, mapping)
            reward, done = jnp.where(alive, step.reward, 0.0), step.terminated | step.truncated
            following = step.state, mapped(step.observation), alive & ~done, Acted(*acted), jnp.zeros_like(first)
            return following, (shown, acted[0], jnp.zeros_like(reward), reward, alive)

        shown, alive, first = mapped(observation), jnp.ones(count, bool), jnp.ones((), bool)
        shapes = jax.eval_shape(lambda key: act(key, shown, None, None), key)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        _, played = jax.lax.scan(one_step, (state, shown, alive, last, first), split(key, steps))
        return AssessmentRollout(*(x[:, :, None] for x in played))


def _group_keys(key: Key, batch: Batch) -> Array:
    groups = jnp.arange(batch.environments) // batch.rollouts_per_start
    return jax.vmap(jax.random.fold_in, (None, 0))(key, groups)


def _split(key: Key, count: int) -> tuple[Key, Array]:
    """A key for the policy and keys for `count` environments."""
    act_key, step_key = split(key)
    return act_key, split(step_key, count)


@partial(jax.jit, static_argnames=("simulator", "count"))
def _start_states(
    simulator: CompiledSimulator, key: Key, count: int, contexts: Float[Array, "Q P"] | None
) -> StartStates:
    if contexts is None:
        begun = simulator.begin(Batch(count, 1, contexts=count), key)
        state, observation = begun.state, begun.observation
    else:
        state, observation = jax.vmap(simulator.world.reset)(_group_keys(key, Batch(count, 1)), contexts)
    return StartStates(state, observation, state.elapsed, state.physics)


@partial(jax.jit, static_argnames="simulator")
def _episode_returns(
    simulator: CompiledSimulator, act: Act, states: WorldState, observation: Array, key: Key
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Discounted and undiscounted return from each of M states; the loop stops when the last episode has ended."""
    Carry = tuple[Key, WorldState, Array, Bool[Array, " M"], Float[Array, ""], Float[Array, " M"], Float[Array, " M"]]
    world, zeros = simulator.world, jnp.zeros(observation.shape[0])

    def one_step(carry: Carry) -> Carry:
        key, states, observation, alive, weight, discounted, undiscounted = carry
        key, step_key = jax.random.split(key)
        _, step = simulator.step(act, *_split(step_key, observation.shape[0]), states, observation)
        reward = jnp.where(alive, step.reward, 0.0)
        totals = discounted + weight[None] * reward, undiscounted + reward
        return key, step.state, step.observation, alive & ~step.done, weight * world.discount, *totals

    carry = key, states, observation, states.elapsed < world.horizon, jnp.ones(()), zeros, zeros
    return jax.lax.while_loop(lambda carry: carry[3].any(), one_step, carry)[-2:]


@partial(jax.jit, static_argnames="simulator")
def _chosen_returns(
    simulator: CompiledSimulator, act: Act, states: WorldState, observation: Array, chosen: Int[Array, " M"], key: Key
) -> Float[Array, "2 M"]:
    """Returns from the states at the given positions of the stack."""
    states, observation = jax.tree.map(lambda leaf: leaf[chosen], (states, observation))
    return jnp.stack(_episode_returns(simulator, act, states, observation, key))


_Walk = tuple[Key, WorldState, Array, Bool[Array, " N"], _Reservoir]
"""N environments on their way: key, states, observations, which are alive, and what was kept."""


def _offer(reservoir: _Reservoir, key: Key, states: WorldState, alive: Bool[Array, " N"]) -> _Reservoir:
    """Offer the states that are alive to the sample, one after the other."""
    (count,) = reservoir.kept.elapsed.shape
    place = reservoir.seen[None] + jnp.cumsum(alive, dtype=jnp.int32)  # the i of the i-th step played, from 1
    slot = reservoir_slots(key, place, alive, count)
    kept = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), reservoir.kept, states)
    return _Reservoir(kept, place[-1])


@partial(jax.jit, static_argnames=("simulator", "count", "environments", "episodes"))
def _visited_states(
    simulator: CompiledSimulator, act: Act, key: Key, count: int, environments: int, episodes: int
) -> StartStates:
    def one_step(walk: _Walk) -> _Walk:
        key, states, observation, alive, reservoir = walk
        key, offer_key, step_key = jax.random.split(key, 3)
        reservoir = _offer(reservoir, offer_key, states, alive)
        _, step = simulator.step(act, *_split(step_key, environments), states, observation)
        return key, step.state, step.observation, alive & ~step.done, reservoir

    def one_episode(reservoir: _Reservoir, key: Key) -> tuple[_Reservoir, None]:
        reset_key, walk_key = jax.random.split(key)
        begun = simulator.begin(Batch(environments, 1, contexts=environments), reset_key)
        walk = (walk_key, begun.state, begun.observation, jnp.ones(environments, bool), reservoir)
        return jax.lax.while_loop(lambda walk: walk[3].any(), one_step, walk)[-1], None

    walk_key, again_key, order_key = jax.random.split(key, 3)
    shapes = jax.eval_shape(lambda: simulator.begin(Batch(count, 1), key).state)
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    reservoir = _Reservoir(empty, jnp.zeros((), jnp.int32))
    reservoir, _ = jax.lax.scan(one_episode, reservoir, jax.random.split(walk_key, episodes))
    again = jax.random.randint(again_key, (count,), 0, reservoir.seen)
    position = jnp.arange(count, dtype=jnp.int32)
    position = jax.random.permutation(order_key, jnp.where(position < reservoir.seen[None], position, again))
    states = jax.tree.map(lambda leaf: leaf[position], reservoir.kept)
    return StartStates(states, jax.vmap(simulator.world.observation)(states.physics), states.elapsed, states.physics)
