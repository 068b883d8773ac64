"""What is timed above all: training as `evarl train` runs it, the world alone, and rollouts without a policy."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.specs import Spec
from evarl.agents.distributions import action_size, world_action
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CAPACITY, CompiledEngine, planned_bytes
from evarl.learning.learner import Learner, make_learner
from evarl.runs.groups import engines
from evarl.runs.machine import run_programs_inline
from evarl.runs.train import new_assessment
from evarl.simulation import Batch
from evarl.simulation.compiled import CompiledSimulator, WorldStates
from evarl.worlds.registry import make_world
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import Key, World, select


class Program(NamedTuple):
    """A program that is ready to run."""

    repeat: Callable[[], dict[str, Any] | None]
    """Run one repetition to its end; what it returns is told beside its seconds."""
    steps: int
    """What is counted in one repetition: steps of environments, or transitions."""
    details: dict[str, Any]
    """What else is known of it: `program_seconds`, its own part of the compile seconds, and `program_gib`, what the
    compiler plans for."""


def learner_for(config: TrainConfig) -> Learner:
    """The learner of a run, assessment included if it needs one."""
    assessment = None if config.evaluator_mode == "none" else new_assessment(config, lambda text: None)
    return make_learner(config, assessment)


def assessment_steps(learner: Learner) -> int:
    """Environment steps of the assessments in one update, of all seeds; those of scenarios that ended are counted too."""
    if learner.assessment is None:
        return 0
    config, assessment = learner.config, learner.assessment
    rollouts = config.groups * assessment.scenarios * config.assessment.replicates
    return config.seeds * rollouts * assessment.horizon


def training(spec: Spec) -> Program:
    """Training, past the warm-up, so that the evaluator's steps are included."""
    config = spec.config()
    if config.world.startswith("gymnasium/"):
        run_programs_inline()  # as `evarl train` does
    learner = learner_for(config)
    first, details = config.evaluator.warmup + 1, {"assessment_steps": spec.updates * assessment_steps(learner)}
    began = time.perf_counter()
    engine = engines(learner)(config.seeds)
    if isinstance(engine, CompiledEngine):
        details |= {"program_seconds": time.perf_counter() - began, "program_gib": engine.memory() / 2**30}
    state = engine.init(list(range(config.seeds)))
    if not isinstance(engine, CompiledEngine):
        state, _ = engine.advance(state, first, 1)  # compiles

    def repeat() -> None:
        nonlocal state
        for done in range(0, spec.updates, CAPACITY):
            state, _ = engine.advance(state, first, min(CAPACITY, spec.updates - done))
        jax.block_until_ready(state)

    return Program(repeat, spec.updates * config.seeds * config.environments * config.steps, details)


def environment_only(spec: Spec) -> Program:
    """Steps with random actions, and a fresh start state at hand after each, as Gymnax and Brax do it themselves."""
    config = spec.config()
    world, draw = _random(config)

    def step(states: WorldStates, key: Key) -> tuple[WorldStates, Array]:
        act_key, step_key, reset_key = jax.random.split(key, 3)
        keys = jax.random.split(step_key, config.environments)
        step = jax.vmap(world.step)(keys, states.state, world_action(world.action_space, draw(act_key)))
        fresh = CompiledSimulator(world).begin(Batch(config.environments, 1), reset_key)
        onward = WorldStates(step.state, step.observation, states.label)
        return jax.vmap(select)(step.done, fresh, onward), step.reward.sum()

    return _looped(spec, world, step, spec.updates * config.steps)


def rollouts(spec: Spec) -> Program:
    """The rollouts of training, start states shared and drawn only when an episode ends, without a policy.

    Nothing is kept of a batch but the sum of its rewards, so the compiler drops the rest of it.
    """
    config = spec.config()
    world, draw = _random(config)

    def batch(states: WorldStates, key: Key) -> tuple[WorldStates, Array]:
        act = lambda key, observation: (draw(key), jnp.zeros(config.environments))  # noqa: E731
        states, trajectory = CompiledSimulator(world).collect(_batch(config), act, states, key)
        return states, trajectory.reward.sum()

    return _looped(spec, world, batch, spec.updates)


def _batch(config: TrainConfig) -> Batch:
    return Batch(config.environments, config.steps, config.rollouts_per_start)


def _random(config: TrainConfig) -> tuple[World, Callable[[Key], Array]]:
    """The world, and random actions for all its environments."""
    world = make_world(config.world, config.horizon, config.discount)
    assert isinstance(world, World)
    space, environments = world.action_space, config.environments
    if isinstance(space, Discrete):
        return world, lambda key: jax.random.randint(key, (environments,), 0, space.n)
    return world, lambda key: jax.random.normal(key, (environments, action_size(space)))


def _looped(
    spec: Spec, world: World, one: Callable[[WorldStates, Key], tuple[WorldStates, Array]], turns: int
) -> Program:
    """So many turns in one compiled loop; the states go on from one repetition to the next."""
    config = spec.config()

    def run(states: WorldStates, key: Key, turns: Array) -> tuple[WorldStates, Array]:
        def turn(index: Array, carry: tuple[WorldStates, Array]) -> tuple[WorldStates, Array]:
            states, total = carry
            states, reward = one(states, jax.random.fold_in(key, index))
            return states, total + reward

        return jax.lax.fori_loop(0, turns, turn, (states, jnp.zeros(())))

    key, count = jax.random.PRNGKey(0), jnp.int32(turns)
    states = jax.jit(lambda key: CompiledSimulator(world).begin(_batch(config), key))(key)
    began = time.perf_counter()
    compiled = jax.jit(run, donate_argnums=0).lower(states, key, count).compile()
    details = {"program_seconds": time.perf_counter() - began, "program_gib": planned_bytes(compiled) / 2**30}

    def repeat() -> None:
        nonlocal states
        states, _ = jax.block_until_ready(compiled(states, key, count))

    return Program(repeat, spec.updates * config.environments * config.steps, details)
