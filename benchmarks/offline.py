"""What comes after training: ground truth by many rollouts, and estimates from a log."""

import dataclasses
import tempfile
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from benchmarks.programs import Program, learner_for
from benchmarks.specs import Spec
from evarl.learning.configuration import TrainConfig
from evarl.ope.dataset import LoggedData
from evarl.ope.estimation import estimate
from evarl.ope.fqe import fit
from evarl.ope.fqe_table import prepare, target_actions
from evarl.ope.log import CollapsedWeights, Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.runs.train import train
from evarl.simulation import simulator_for
from evarl.truth.monte_carlo import true_values
from evarl.worlds.world import Action, Key, Observation, Physics, World

LOGGED = 30_000
"""Steps in a log, at least."""


class Counting(World):
    """A world in which every step earns 1, so that an undiscounted return is a number of steps."""

    def __init__(self, world: World):
        self.name, self.horizon, self.discount = world.name, world.horizon, world.discount
        self.observation_space, self.action_space = world.observation_space, world.action_space
        self._world = world

    def initial(self, key: Key) -> Physics:
        """As in the world itself."""
        return self._world.initial(key)

    def transition(self, key: Key, physics: Physics, action: Action) -> tuple[Physics, jax.Array, jax.Array]:
        """As in the world itself, but for the reward."""
        physics, reward, terminated = self._world.transition(key, physics, action)
        return physics, jnp.ones_like(reward), terminated

    def observation(self, physics: Physics) -> Observation:
        """As in the world itself."""
        return self._world.observation(physics)


def ground_truth(spec: Spec) -> Program:
    """True values of a fresh policy at start states; only the steps of episodes under way are counted."""
    learner = learner_for(spec.config())
    world, key = learner.world, jax.random.PRNGKey(0)
    assert isinstance(world, World)
    policy = jax.jit(learner.init)(key).agent.policy
    states = simulator_for(world).start_states(key, spec.states)
    act = Partial(learner.agent.act, policy)
    began = time.perf_counter()
    true_values(world, act, states, key, spec.rollouts)
    compile_seconds = time.perf_counter() - began  # with one run in it
    began = time.perf_counter()
    true_values(world, act, states, key, spec.rollouts)
    compile_seconds -= time.perf_counter() - began
    counted = true_values(Counting(world), act, states, key, spec.rollouts)

    def repeat() -> None:
        true_values(world, act, states, key, spec.rollouts)

    steps = round(float(counted.undiscounted.sum()) * spec.rollouts)
    return Program(repeat, steps, {"compile_seconds": max(0.0, compile_seconds)})


def fitted_q(spec: Spec) -> Program:
    """Fitted Q evaluation of a run's final policy on its log: transitions in `updates` gradient steps."""
    config = spec.config()
    data, policy = _short_run(config)
    settings, key = FQEConfig(steps=spec.updates, time_feature=True), jax.random.PRNGKey(0)
    table, target = prepare(settings, data, config.discount, key), target_actions(settings, data, policy, key)
    began = time.perf_counter()
    jax.block_until_ready(fit(dataclasses.replace(settings, steps=1), table, target, key))
    details = {"compile_seconds": time.perf_counter() - began}

    def repeat() -> None:
        jax.block_until_ready(fit(settings, table, target, key))

    return Program(repeat, spec.updates * settings.batch_size, details)


def importance_sampling(spec: Spec) -> Program:
    """All four forms of importance sampling as `evarl ope` runs them, intervals included: transitions in the log."""
    config = spec.config()
    data, policy = _short_run(config)

    def repeat() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapsedWeights)
            estimate(Log(data, config.discount), policy, methods=("tis", "pdis", "wis", "wpdis"))

    began = time.perf_counter()
    repeat()
    details: dict[str, Any] = {"compile_seconds": time.perf_counter() - began}  # with one run in it
    return Program(repeat, int(np.asarray(data.mask).sum()), details)


def _short_run(config: TrainConfig) -> tuple[LoggedData, TargetPolicy]:
    """The log of the least training that fills it, and the policy that came out."""
    updates = 2 + LOGGED // (config.environments * config.steps)
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, out=folder, quiet=True, log_megabytes=10_000, updates=updates)
        return run.logged_data(), run.target_policy()
