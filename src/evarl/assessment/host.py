"""The driver's test in a host world: a start state is a reset seed."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from evarl.assessment.assessment import AssessmentRollout, check_spaces
from evarl.errors import InputError
from evarl.ranges import whole
from evarl.simulation.host import HostAct
from evarl.worlds.world import HostWorld, World


@dataclass(frozen=True, eq=False)
class HostAssessment:
    """k reset seeds of a host world and a short horizon."""

    world: HostWorld
    seeds: tuple[int, ...]
    horizon: int
    discount: float = 1.0

    def __post_init__(self) -> None:
        whole("assessment.horizon", self.horizon)
        if not self.seeds or min(self.seeds) < 0:
            raise InputError(f"assessment.start-states: want k ≥ 1 reset seeds of at least 0, got {list(self.seeds)}")

    @property
    def scenarios(self) -> int:
        """The number k of start states."""
        return len(self.seeds)

    def check_compatible(self, deployment: World | HostWorld) -> None:
        """Refuse an assessment in which a policy of the deployment world could not act."""
        if not isinstance(deployment, HostWorld):
            raise InputError(
                f"assessment.world: {self.world.name} is on the host, {deployment.name} is compiled; want both alike"
            )
        space = self.world.observation_space
        check_spaces(self.world, space.shape, np.dtype(space.dtype), deployment, same_actions=True)

    def observations(self) -> np.ndarray:
        """What the policy sees at the start states, [k, ...]."""
        environments = self.world.open(1)
        shown = np.stack([environments.reset(0, seed) for seed in self.seeds])
        environments.close()
        return shown

    def take(self, act: HostAct, replicates: int) -> AssessmentRollout:
        """Roll the policy through every scenario; an environment that is done is begun again and no longer counted."""
        seeds = np.repeat(self.seeds, replicates)
        environments = self.world.open(len(seeds))
        shown = np.stack([environments.reset(index, int(seed)) for index, seed in enumerate(seeds)])
        alive = np.ones(len(seeds), bool)
        rows: list[tuple[np.ndarray, ...]] = []
        for _ in range(self.horizon):
            action, log_prob, taken = act(shown)
            step = environments.step(taken)
            rows.append((shown, action, log_prob, np.where(alive, step.reward, np.float32(0)), alive))
            shown = step.observation.copy()
            alive = alive & ~(step.terminated | step.truncated)
            for index in np.flatnonzero(step.terminated | step.truncated):
                shown[index] = environments.reset(int(index), int(seeds[index]))
        environments.close()
        shape = (self.horizon, self.scenarios, replicates)
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        return AssessmentRollout(*(jnp.asarray(x.reshape(*shape, *x.shape[2:])) for x in columns))
