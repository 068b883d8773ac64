"""What is timed above all: training as `evarl train` runs it, and the world alone."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.specs import Spec
from evarl.agents.distributions import action_size
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CAPACITY, CompiledEngine
from evarl.learning.learner import Learner, make_learner
from evarl.rollouts.collect import WorldStates, begin, collect
from evarl.runs.assessments import build_assessment
from evarl.runs.groups import engines
from evarl.worlds.registry import make_world
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import Key, World


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
    assessment = None if config.evaluator_mode == "none" else build_assessment(config, lambda text: None)
    return make_learner(config, assessment)


def training(spec: Spec) -> Program:
    """Training, past the warm-up, so that the evaluator's steps are included."""
    config = spec.config()
    learner = learner_for(config)
    first, details = config.evaluator.warmup + 1, {}
    began = time.perf_counter()
    engine = engines(learner)(config.seeds)
    if isinstance(engine, CompiledEngine):
        details = {"program_seconds": time.perf_counter() - began, "program_gib": engine.memory() / 2**30}
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
    """The rollouts of training with random actions in place of a policy: what the world alone costs.

    Nothing is kept of a batch but the sum of its rewards, so the compiler drops the rest of it.
    """
    config = spec.config()
    world = make_world(config.world, config.horizon, config.discount)
    assert isinstance(world, World)
    space, environments, shared = world.action_space, config.environments, config.rollouts_per_start

    def act(key: Key, observation: Array) -> tuple[Array, Array]:
        if isinstance(space, Discrete):
            action = jax.random.randint(key, (environments,), 0, space.n)
        else:
            action = jax.random.normal(key, (environments, action_size(space)))
        return action, jnp.zeros(environments)

    def run(states: WorldStates, key: Key, updates: Array) -> tuple[WorldStates, Array]:
        def one(index: Array, carry: tuple[WorldStates, Array]) -> tuple[WorldStates, Array]:
            states, total = carry
            key_now = jax.random.fold_in(key, index)
            states, trajectory = collect(world, act, states, key_now, config.steps, shared)
            return states, total + trajectory.reward.sum()

        return jax.lax.fori_loop(0, updates, one, (states, jnp.zeros(())))

    key, updates = jax.random.PRNGKey(0), jnp.int32(spec.updates)
    states = jax.jit(lambda key: begin(world, key, environments, shared))(key)
    began = time.perf_counter()
    compiled: Any = jax.jit(run, donate_argnums=0).lower(states, key, updates).compile()
    plan = compiled.memory_analysis()
    kept = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    details = {
        "program_seconds": time.perf_counter() - began,
        "program_gib": (kept + plan.temp_size_in_bytes) / 2**30,
    }

    def repeat() -> None:
        nonlocal states
        states, _ = jax.block_until_ready(compiled(states, key, updates))

    return Program(repeat, spec.updates * environments * config.steps, details)
