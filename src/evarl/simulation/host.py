"""Experience from a host world: a Python loop around the environments, with the policy compiled."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import HostEnvironments

HostAct = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Maps observations [N, ...] to actions, their log-probabilities, and the actions in the world's units."""


@dataclass
class HostStates:
    """N environments that are open, and what they show now."""

    environments: HostEnvironments
    observation: np.ndarray
    """[N, ...]"""
    label: np.ndarray
    """[N] `Trajectory.start_label` of the next step: −1 in mid-episode."""
    seed: int
    rollouts_per_start: int

    @classmethod
    def begin(
        cls, environments: HostEnvironments, count: int, seed: int, rollouts_per_start: int, batch: int
    ) -> "HostStates":
        """Reset every environment. A resumed run begins new episodes, since those under way cannot be saved."""
        states = cls(environments, np.empty(0), np.zeros(count, np.int32), seed, rollouts_per_start)
        states.observation = np.stack([states.reset(index, batch, 0) for index in range(count)])
        return states

    def reset(self, index: int, batch: int, resets: int) -> np.ndarray:
        """Begin an episode; the n-th of a batch begins at the same state in all environments of a group."""
        sequence = np.random.SeedSequence([self.seed, batch, index // self.rollouts_per_start, resets])
        return self.environments.reset(index, int(sequence.generate_state(1)[0]))


def collect(act: HostAct, states: HostStates, steps: int, batch: int) -> Trajectory:
    """Let the policy act for `steps` steps; `batch` is the number of the update, from which reset seeds are made.

    A host world may report truncations of its own, so there is a slot for the final observation of every step.
    """
    kept: list[tuple[np.ndarray, ...]] = []
    count = len(states.observation)
    final = np.zeros((steps, *states.observation.shape), states.observation.dtype)
    truncations, resets = np.zeros(count, int), np.zeros(count, np.int32)
    for _ in range(steps):
        observation = states.observation
        action, log_prob, world_action = act(observation)
        step = states.environments.step(world_action)
        kept.append((observation, action, log_prob, step.reward, step.terminated, step.truncated, states.label))
        states.observation, states.label = step.observation.copy(), np.full(count, -1, np.int32)
        for index in np.flatnonzero(step.truncated):
            final[truncations[index], index] = step.observation[index]
            truncations[index] += 1
        for index in np.flatnonzero(step.terminated | step.truncated):
            resets[index] += 1
            states.observation[index] = states.reset(int(index), batch, int(resets[index]))
            states.label[index] = resets[index]
    states.label = np.where(states.label >= 0, states.label + steps, states.label).astype(np.int32)
    columns = [jnp.asarray(np.stack(column)) for column in zip(*kept, strict=True)]
    return Trajectory(*columns, *(jnp.asarray(x) for x in (final, states.observation)))
