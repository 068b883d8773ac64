"""Experience from a host world: a Python loop around the environments, with the policy compiled."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from evarl.agents.trajectory import Trajectory
from evarl.worlds.world import HostEnvironments


@dataclass
class HostStates:
    """N environments that are open, what they show now, and how many episodes each has begun."""

    environments: HostEnvironments
    observation: np.ndarray
    """[N, ...]"""
    episodes: np.ndarray
    """[N] begun so far; with the run's seed they determine the reset seed of the next episode."""
    seed: int

    @classmethod
    def begin(cls, environments: HostEnvironments, seed: int, episodes: np.ndarray) -> "HostStates":
        """Reset every environment. A resumed run begins new episodes, since those under way cannot be saved."""
        states = cls(environments, np.empty(0), episodes.copy(), seed)
        states.observation = np.stack([states.reset(index) for index in range(len(episodes))])
        return states

    def reset(self, index: int) -> np.ndarray:
        """Begin the next episode of one environment."""
        sequence = np.random.SeedSequence([self.seed, index, int(self.episodes[index])])
        self.episodes[index] += 1
        return self.environments.reset(index, int(sequence.generate_state(1)[0]))


def collect(
    act: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]], states: HostStates, steps: int
) -> Trajectory:
    """Let the policy act for `steps` steps; `act` maps observations to actions, log-probabilities and world actions.

    A host world may report truncations of its own, so there is a slot for the final observation of every step.
    """
    kept: list[tuple[np.ndarray, ...]] = []
    final = np.zeros((steps, *states.observation.shape), states.observation.dtype)
    count = np.zeros(len(states.episodes), int)
    for _ in range(steps):
        observation = states.observation
        action, log_prob, world_action = act(observation)
        step = states.environments.step(world_action)
        kept.append((observation, action, log_prob, step.reward, step.terminated, step.truncated))
        states.observation = step.observation.copy()
        for index in np.flatnonzero(step.truncated):
            final[count[index], index] = step.observation[index]
            count[index] += 1
        for index in np.flatnonzero(step.terminated | step.truncated):
            states.observation[index] = states.reset(int(index))
    columns = [jnp.asarray(np.stack(column)) for column in zip(*kept, strict=True)]
    return Trajectory(*columns, *(jnp.asarray(x) for x in (final, states.observation)))
