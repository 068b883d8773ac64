"""Experience from a JAX world: N environments, T steps, one scan."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from evarl.agents.distributions import world_action
from evarl.agents.trajectory import Trajectory
from evarl.simulation.episodes import final_slots, record_final
from evarl.worlds.world import Key, World, WorldState, select

Act = Callable[[Key, Array], tuple[Array, ...]]
"""Maps a key and observations [N, ...] to actions [N, ...] and their log-probabilities [N]; what else it returns is kept as
the last fields of the trajectory."""


class WorldStates(struct.PyTreeNode):
    """Where N environments stand between two batches."""

    state: WorldState
    observation: Array
    """[N, ...]"""
    label: Int[Array, " N"]
    """`Trajectory.start_label` of the next step: −1 in mid-episode."""


def begin(world: World, key: Key, environments: int, rollouts_per_start: int = 1) -> WorldStates:
    """Reset N environments; each group of `rollouts_per_start` neighbours begins at one start state."""
    count = jnp.zeros(environments, jnp.int32)
    state, observation = jax.vmap(world.reset)(_reset_keys(_group_keys(key, environments, rollouts_per_start), count))
    return WorldStates(state, observation, count)


def collect(
    world: World,
    act: Act,
    states: WorldStates,
    key: Key,
    steps: int,
    rollouts_per_start: int = 1,
    noise: Callable[[Key], Array] = lambda key: key,
) -> tuple[WorldStates, Trajectory]:
    """Let the policy act for `steps` steps in every environment; an episode that ends is followed by a fresh one.

    With `noise`, `act` is given what that makes of its key. It is made for all steps before the first: one long vector is
    drawn faster than many short ones.

    The j-th reset within a batch leads all environments of a group to the same start state: the reset key is repeated,
    the keys of the steps are not. So there are independent rollouts from one state at no extra cost.
    """
    environments = states.observation.shape[0]
    step_key, reset_key = jax.random.split(key)
    group_keys = _group_keys(reset_key, environments, rollouts_per_start)
    final = jnp.zeros((final_slots(steps, world.horizon), *states.observation.shape), states.observation.dtype)
    Carry = tuple[WorldStates, Array, Int[Array, " N"], Int[Array, " N"]]

    def one_step(carry: Carry, drawn: tuple[Array, Array]) -> tuple[Carry, tuple[tuple[Array, ...], list[Array]]]:
        states, final, truncations, resets = carry
        act_noise, step_keys = drawn
        action, log_prob, *more = act(act_noise, states.observation)
        step = jax.vmap(world.step)(step_keys, states.state, world_action(world.action_space, action))
        done = step.terminated | step.truncated
        onward = WorldStates(step.state, step.observation, jnp.full_like(resets, -1))
        final = record_final(final, truncations, step.truncated, step.observation)

        def begin_anew(onward: WorldStates) -> WorldStates:
            fresh = WorldStates(*jax.vmap(world.reset)(_reset_keys(group_keys, resets)), resets + 1)
            return jax.vmap(select)(done, fresh, onward)

        # start states are drawn only when some episode ended: in many worlds that costs as much as a step
        following = jax.lax.cond(done.any(), begin_anew, lambda onward: onward, onward)
        kept = (states.observation, action, log_prob, step.reward, step.terminated, step.truncated, states.label)
        counted = truncations + step.truncated.astype(jnp.int32), resets + done.astype(jnp.int32)
        return (following, final, *counted), (kept, more)

    zeros = jnp.zeros(environments, jnp.int32)
    act_keys, step_keys = jnp.moveaxis(jax.vmap(jax.random.split)(jax.random.split(step_key, steps)), 1, 0)
    step_keys = jax.vmap(lambda key: jax.random.split(key, environments))(step_keys)
    (states, final, _, _), (kept, more) = jax.lax.scan(
        one_step, (states, final, zeros, zeros), (jax.vmap(noise)(act_keys), step_keys)
    )
    # a start state drawn in this batch and begun in the next must not be taken for one that the next batch draws
    label = jnp.where(states.label >= 0, states.label + steps, states.label)
    return states.replace(label=label), Trajectory(*(*kept, final, states.observation, *more))


def _group_keys(key: Key, environments: int, rollouts_per_start: int) -> Array:
    groups = jnp.arange(environments) // rollouts_per_start
    return jax.vmap(jax.random.fold_in, (None, 0))(key, groups)


def _reset_keys(group_keys: Array, resets: Int[Array, " N"]) -> Array:
    return jax.vmap(jax.random.fold_in)(group_keys, resets)
