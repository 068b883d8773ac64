"""Experience from a JAX world: N environments, T steps, one scan."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Int

from evarl.agents.distributions import world_action
from evarl.agents.trajectory import Trajectory
from evarl.rollouts.episodes import final_slots, record_final
from evarl.worlds.world import Key, World, WorldState, select

Act = Callable[[Key, Array], tuple[Array, Array]]
"""Maps a key and observations [N, ...] to actions [N, ...] and their log-probabilities [N]."""


class WorldStates(struct.PyTreeNode):
    """Where N environments stand between two batches."""

    state: WorldState
    observation: Array
    """[N, ...]"""


def begin(world: World, key: Key, environments: int) -> WorldStates:
    """Reset N environments."""
    state, observation = jax.vmap(world.reset)(jax.random.split(key, environments))
    return WorldStates(state, observation)


def collect(world: World, act: Act, states: WorldStates, key: Key, steps: int) -> tuple[WorldStates, Trajectory]:
    """Let the policy act for `steps` steps in every environment; an episode that ends is followed by a fresh one."""
    environments = states.observation.shape[0]
    slots = final_slots(steps, world.horizon)
    final = jnp.zeros((slots, *states.observation.shape), states.observation.dtype)

    def one_step(
        carry: tuple[WorldStates, Array, Int[Array, " N"]], key: Key
    ) -> tuple[tuple[WorldStates, Array, Int[Array, " N"]], tuple[Array, ...]]:
        states, final, count = carry
        act_key, step_key, reset_key = jax.random.split(key, 3)
        action, log_prob = act(act_key, states.observation)
        step = jax.vmap(world.step)(
            jax.random.split(step_key, environments), states.state, world_action(world.action_space, action)
        )
        fresh = begin(world, reset_key, environments)
        following = jax.vmap(select)(step.terminated | step.truncated, fresh, WorldStates(step.state, step.observation))
        final = record_final(final, count, step.truncated, step.observation)
        count = count + step.truncated.astype(count.dtype)
        kept = (states.observation, action, log_prob, step.reward, step.terminated, step.truncated)
        return (following, final, count), kept

    carry = (states, final, jnp.zeros(environments, jnp.int32))
    (states, final, _), (observation, action, log_prob, reward, terminated, truncated) = jax.lax.scan(
        one_step, carry, jax.random.split(key, steps)
    )
    last = states.observation
    return states, Trajectory(observation, action, log_prob, reward, terminated, truncated, final, last)
