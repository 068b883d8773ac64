"""Steps per second of a world alone and of training in it."""

import dataclasses
import time

import jax
import jax.numpy as jnp

from evarl.agents.distributions import world_action
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import Learner, make_learner
from evarl.rollouts.collect import WorldStates, begin
from evarl.runs.assessments import build_assessment
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import World, select


@dataclasses.dataclass
class Measured:
    """One program, compiled, and how long its repetitions took."""

    compile_seconds: float
    memory_gib: float
    steps: int
    seconds: list[float] = dataclasses.field(default_factory=list)

    def steps_per_second(self) -> list[float]:
        """One figure for each repetition."""
        return [self.steps / seconds for seconds in self.seconds]


class EnvironmentOnly:
    """Random actions, no network, nothing kept but the sum of rewards: what the world alone costs."""

    def __init__(self, config: TrainConfig, updates: int):
        world = make_learner(config).world
        assert isinstance(world, World)
        self._world, self._config = world, config
        began = time.perf_counter()
        states = jax.jit(lambda key: begin(world, key, config.environments))(jax.random.PRNGKey(0))
        compiled = jax.jit(self._run).lower(states, jax.random.PRNGKey(0), jnp.int32(0)).compile()
        self._states, self._compiled, self._updates = states, compiled, updates
        plan = compiled.memory_analysis()
        self.measured = Measured(
            time.perf_counter() - began,
            (plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes) / 2**30,
            updates * config.environments * config.steps,
        )

    def repeat(self) -> None:
        """Time one repetition."""
        began = time.perf_counter()
        steps = jnp.int32(self._updates * self._config.steps)
        self._states, total = self._compiled(self._states, jax.random.PRNGKey(1), steps)
        jax.block_until_ready((self._states, total))
        self.measured.seconds.append(time.perf_counter() - began)

    def _run(self, states: WorldStates, key: jax.Array, steps: jax.Array) -> tuple[WorldStates, jax.Array]:
        world, environments, space = self._world, self._config.environments, self._world.action_space

        def one_step(index: jax.Array, carry: tuple[WorldStates, jax.Array]) -> tuple[WorldStates, jax.Array]:
            states, total = carry
            act_key, step_key, reset_key = jax.random.split(jax.random.fold_in(key, index), 3)
            if isinstance(space, Discrete):
                action = jax.random.randint(act_key, (environments,), 0, space.n)
            else:
                action = world_action(space, jax.random.normal(act_key, (environments, space.size)))
            step = jax.vmap(world.step)(jax.random.split(step_key, environments), states.state, action)
            fresh = begin(world, reset_key, environments)
            done = step.terminated | step.truncated
            states = jax.vmap(select)(done, fresh, WorldStates(step.state, step.observation, states.label))
            return states, total + step.reward.sum()

        return jax.lax.fori_loop(0, steps, one_step, (states, jnp.zeros(())))


class Training:
    """The training program that `evarl train` runs."""

    def __init__(self, config: TrainConfig, updates: int):
        config = config.resolved()
        assessment = None if config.evaluator_mode == "none" else build_assessment(config, lambda text: None)
        learner: Learner = make_learner(config, assessment)
        began = time.perf_counter()
        self._engine = CompiledEngine(learner, config.seeds)
        compile_seconds = time.perf_counter() - began
        self._state = self._engine.init(list(range(config.seeds)))
        self._updates = updates
        steps = updates * config.environments * config.steps * config.seeds
        self.measured = Measured(compile_seconds, self._engine.memory() / 2**30, steps)

    def repeat(self) -> None:
        """Time one repetition."""
        began = time.perf_counter()
        # past the warm-up, so that the evaluator's steps are included
        self._state, _ = self._engine.advance(
            self._state, self._engine.learner.config.evaluator.warmup + 1, self._updates
        )
        jax.block_until_ready(self._state)
        self.measured.seconds.append(time.perf_counter() - began)
