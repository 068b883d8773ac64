"""Values by Monte Carlo: what a policy really earns from given states, how uncertain that is, and which states it meets.

A policy given as `jax.tree_util.Partial(agent.act, policy)` is data to the compiled programs, so the next policy of the
same agent uses them again; any other function is compiled anew for each policy.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from evarl.agents.distributions import world_action
from evarl.errors import InputError
from evarl.simulation.collect import Act, begin
from evarl.sizes import check_rollouts
from evarl.worlds.spaces import Space
from evarl.worlds.world import HostWorld, Key, Step, World, WorldState


class Truth(NamedTuple):
    """Values of Q states, each from R independent rollouts."""

    value: Float[np.ndarray, " Q"]
    """Mean discounted return."""
    standard_error: Float[np.ndarray, " Q"]
    """Of `value`: √(Σ_r (G_r − Ḡ)² / (R (R − 1)))."""
    undiscounted: Float[np.ndarray, " Q"]
    """Mean undiscounted return."""
    rollouts: int
    """R."""


class _Rollout(NamedTuple):
    """M worlds on their way to the end of their episodes."""

    key: Key
    states: WorldState
    observation: Array
    alive: Bool[Array, " M"]
    weight: Float[Array, ""]
    """γ^t."""
    discounted: Float[Array, " M"]
    undiscounted: Float[Array, " M"]


def rollout_returns(
    world: World, act: Act, states: WorldState, observation: Array, key: Key, discount: float
) -> tuple[Float[Array, " M"], Float[Array, " M"]]:
    """Discounted and undiscounted return, Σ_t γ^t r_t and Σ_t r_t, from each of M stacked states to its episode's end.

    Clocks run on from where they stand: a state met at step 150 of a horizon of 200 has 50 steps left, and one whose
    time is up returns 0. Nothing resets; the loop stops when the last episode has ended. A pure function, to be compiled.
    """

    def one_step(rollout: _Rollout) -> _Rollout:
        key, step_key = jax.random.split(rollout.key)
        step = _step(world, act, step_key, rollout.states, rollout.observation)
        reward = jnp.where(rollout.alive, step.reward, 0.0)
        return _Rollout(
            key=key,
            states=step.state,
            observation=step.observation,
            alive=rollout.alive & ~(step.terminated | step.truncated),
            weight=rollout.weight * discount,
            discounted=rollout.discounted + rollout.weight[None] * reward,
            undiscounted=rollout.undiscounted + reward,
        )

    alive, zeros = states.elapsed < world.horizon, jnp.zeros(observation.shape[0])
    rollout = _Rollout(key, states, observation, alive, jnp.ones(()), zeros, zeros)
    rollout = jax.lax.while_loop(lambda rollout: rollout.alive.any(), one_step, rollout)
    return rollout.discounted, rollout.undiscounted


def true_values(
    world: World, act: Act, states: WorldState, observation: Array, key: Key, rollouts: int, chunk: int = 4096
) -> Truth:
    """The values of Q stacked states, each from `rollouts` independent rollouts.

    At most `chunk` worlds run at a time, all chunks through one compiled program; the last one is padded and what the
    padding earns is thrown away. States with similar clocks share a chunk, because a chunk lasts as long as its longest
    episode.
    """
    queries = observation.shape[0]
    _check_rollouts(rollouts, queries)
    total = queries * rollouts
    chunks = -(-total // chunk)
    size = -(-total // chunks)
    order = np.argsort(np.asarray(states.elapsed), kind="stable")
    returns = np.empty((2, chunks * size))
    for index in range(chunks):
        lanes = np.arange(index * size, (index + 1) * size)
        chosen = order[np.minimum(lanes, total - 1) // rollouts].astype(np.int32)
        chunk_key = jax.random.fold_in(key, index)
        returns[:, lanes] = _chosen_returns(world, _as_data(act), states, observation, chosen, chunk_key)
    rows = np.empty((2, queries, rollouts))
    rows[:, order] = returns[:, :total].reshape(2, queries, rollouts)
    return _summary(rows[0], rows[1])


def start_states(world: World, key: Key, count: int) -> tuple[WorldState, Array]:
    """Start states drawn from μ_D, stacked, and their observations [count, ...]."""
    return _start_states(world, key, count)


def visited_states(
    world: World, act: Act, key: Key, count: int, environments: int = 64, episodes: int | None = None
) -> tuple[WorldState, Array]:
    """States the policy meets, clocks included, stacked in random order, and their observations [count, ...].

    Every environment plays `episodes` whole episodes (the first n to finish would be the short ones), and `count` of all
    the steps played are drawn uniformly without replacement. By default `episodes` is the least number that always
    suffices, ⌈count / environments⌉; if too few steps were played, each is used once and some are drawn again.

    The draw is exact and takes one pass, with no more than `count` states in memory: reservoir sampling, in which the
    i-th step played replaces a uniformly drawn one of i slots, if that is among the first `count`.
    """
    if episodes is None:
        episodes = -(-count // environments)
    return _visited_states(world, _as_data(act), key, count, environments, episodes)


def host_returns(
    world: HostWorld, act: Act, seeds: Sequence[int] | np.ndarray, key: Key, discount: float, environments: int = 16
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Discounted and undiscounted return of one episode for each reset seed, at most `environments` at a time.

    They walk in lock-step for the policy's sake, but each is opened on its own: one whose episode has ended takes the
    next seed, and when there is none left it is not stepped again.
    """
    act, seeds = _as_data(act), np.asarray(seeds)
    opened = [world.open(1) for _ in range(min(environments, len(seeds)))]
    returns, elapsed = np.zeros((2, len(seeds))), np.zeros(len(seeds), int)
    under_way = dict(enumerate(range(len(opened))))  # environment → position of its seed
    following = len(opened)
    try:
        observation = np.stack([opened[i].reset(0, int(seeds[at])) for i, at in under_way.items()])
        while under_way:
            key, act_key = jax.random.split(key)
            action = np.asarray(_act_in_world(act, world.action_space, act_key, observation))
            for i, at in list(under_way.items()):
                step = opened[i].step(action[i : i + 1])
                returns[:, at] += step.reward[0] * np.array([discount ** elapsed[at], 1.0])
                elapsed[at] += 1
                observation[i] = step.observation[0]
                if step.terminated[0] or step.truncated[0]:
                    del under_way[i]
                    if following < len(seeds):
                        under_way[i], following = following, following + 1
                        observation[i] = opened[i].reset(0, int(seeds[under_way[i]]))
    finally:
        for environment in opened:
            environment.close()
    return returns[0], returns[1]


def true_values_on_host(
    world: HostWorld,
    act: Act,
    seeds: Sequence[int] | np.ndarray,
    key: Key,
    rollouts: int,
    environments: int = 16,
) -> Truth:
    """The values of Q reset seeds, each from `rollouts` rollouts.

    An episode of Gymnasium is a function of its reset seed and the actions, so the rollouts from one seed differ only by
    the policy's randomness: this is the value given the seed, and with it all the world's own dice. Its standard error
    says nothing about them, and is 0 for a deterministic policy. Averaged over seeds it is the value under μ_D.
    """
    _check_rollouts(rollouts, len(seeds))
    returns = host_returns(world, act, np.repeat(np.asarray(seeds), rollouts), key, world.discount, environments)
    discounted, undiscounted = (x.reshape(len(seeds), rollouts) for x in returns)
    return _summary(discounted, undiscounted)


def mean_squared_error(truth: Truth, prediction: Float[np.ndarray | Array, " Q"]) -> float:
    """Mean over states of (V̄ − V̂)² − se², unbiased for that of (V − V̂)².

    The noise of the truth adds its variance to the naive error and is taken off again, so an accurate prediction can
    come out negative by chance. It is left negative: cut at 0, averages over runs would be biased.

    >>> truth = Truth(np.array([1.0, 2.0]), np.array([0.5, 0.5]), np.array([1.0, 2.0]), rollouts=4)
    >>> mean_squared_error(truth, np.array([2.0, 2.0]))
    0.25
    """
    error = truth.value - np.asarray(prediction, np.float64)
    return float(np.mean(error**2 - truth.standard_error**2))


def root_mean_squared_error(truth: Truth, prediction: Float[np.ndarray | Array, " Q"]) -> float:
    """√max(0, mean squared error), which is no longer unbiased."""
    return max(0.0, mean_squared_error(truth, prediction)) ** 0.5


def _check_rollouts(rollouts: int, states: int) -> None:
    if rollouts < 2:
        raise InputError(f"rollouts: {rollouts} is not allowed; a standard error wants at least 2")
    check_rollouts("rollouts", rollouts, states)


def _as_data(act: Act) -> Act:
    """A pytree, whose function is static and whose bound arguments are data."""
    return act if isinstance(act, Partial) else Partial(act)


def _step(world: World, act: Act, key: Key, states: WorldState, observation: Array) -> Step:
    """One step of M worlds under the policy."""
    act_key, step_key = jax.random.split(key)
    action, _ = act(act_key, observation)
    keys = jax.random.split(step_key, observation.shape[0])
    return jax.vmap(world.step)(keys, states, world_action(world.action_space, action))


@partial(jax.jit, static_argnames="world")
def _chosen_returns(
    world: World, act: Act, states: WorldState, observation: Array, chosen: Int[Array, " M"], key: Key
) -> Float[Array, "2 M"]:
    """Returns from the states at the given positions of the stack."""
    states, observation = jax.tree.map(lambda leaf: leaf[chosen], (states, observation))
    return jnp.stack(rollout_returns(world, act, states, observation, key, world.discount))


@partial(jax.jit, static_argnames=("world", "count"))
def _start_states(world: World, key: Key, count: int) -> tuple[WorldState, Array]:
    states = begin(world, key, count)
    return states.state, states.observation


class _Reservoir(NamedTuple):
    """A uniform sample of the steps played so far."""

    kept: WorldState
    """[count]"""
    seen: Int[Array, ""]


_Walk = tuple[Key, WorldState, Array, Bool[Array, " N"], _Reservoir]
"""N environments on their way: key, states, observations, which are alive, and what was kept."""


def _offer(reservoir: _Reservoir, key: Key, states: WorldState, alive: Bool[Array, " N"]) -> _Reservoir:
    """Offer the states that are alive, one after the other."""
    (count,), (environments,) = reservoir.kept.elapsed.shape, alive.shape
    place = reservoir.seen[None] + jnp.cumsum(alive, dtype=jnp.int32)  # the i of the i-th step played, from 1
    drawn = jax.random.randint(key, (environments,), 0, jnp.maximum(place, 1))
    slot = jnp.where(alive, jnp.where(place <= count, place - 1, drawn), count)
    # Of several that draw one slot the last stays; a scatter promises no order, so the others are dropped here.
    replaced = jnp.triu(slot[:, None] == slot[None, :], k=1).any(axis=1)
    slot = jnp.where(replaced, count, slot)
    kept = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), reservoir.kept, states)
    return _Reservoir(kept, place[-1])


@partial(jax.jit, static_argnames=("world", "count", "environments", "episodes"))
def _visited_states(
    world: World, act: Act, key: Key, count: int, environments: int, episodes: int
) -> tuple[WorldState, Array]:
    def one_step(walk: _Walk) -> _Walk:
        key, states, observation, alive, reservoir = walk
        key, offer_key, step_key = jax.random.split(key, 3)
        reservoir = _offer(reservoir, offer_key, states, alive)
        step = _step(world, act, step_key, states, observation)
        return key, step.state, step.observation, alive & ~(step.terminated | step.truncated), reservoir

    def one_episode(reservoir: _Reservoir, key: Key) -> tuple[_Reservoir, None]:
        reset_key, walk_key = jax.random.split(key)
        begun = begin(world, reset_key, environments)
        walk = (walk_key, begun.state, begun.observation, jnp.ones(environments, bool), reservoir)
        return jax.lax.while_loop(lambda walk: walk[3].any(), one_step, walk)[-1], None

    walk_key, again_key, order_key = jax.random.split(key, 3)
    shapes = jax.eval_shape(lambda: begin(world, key, count).state)
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    reservoir = _Reservoir(empty, jnp.zeros((), jnp.int32))
    reservoir, _ = jax.lax.scan(one_episode, reservoir, jax.random.split(walk_key, episodes))
    again = jax.random.randint(again_key, (count,), 0, reservoir.seen)
    position = jnp.arange(count, dtype=jnp.int32)
    position = jax.random.permutation(order_key, jnp.where(position < reservoir.seen[None], position, again))
    states = jax.tree.map(lambda leaf: leaf[position], reservoir.kept)
    return states, jax.vmap(world.observation)(states.physics)


@partial(jax.jit, static_argnames="space")
def _act_in_world(act: Act, space: Space, key: Key, observation: Array) -> Array:
    """The policy's actions in the world's units."""
    return world_action(space, act(key, observation)[0])


def _summary(discounted: Float[np.ndarray, "Q R"], undiscounted: Float[np.ndarray, "Q R"]) -> Truth:
    rollouts = discounted.shape[1]
    return Truth(
        value=discounted.mean(axis=1),
        standard_error=discounted.std(axis=1, ddof=1) / rollouts**0.5,
        undiscounted=undiscounted.mean(axis=1),
        rollouts=rollouts,
    )
