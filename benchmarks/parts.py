"""Where the time of an update goes: each part of it in a compiled loop of its own.

A loop over one part must not be quicker than the part is within training. So all that a part makes is carried from turn to
turn and thrown away by nobody; and what it is given depends, as far as the compiler can see, on the number of the turn, so
that nothing is worked out once for all turns.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.programs import Program, learner_for
from benchmarks.specs import Spec
from evarl.agents.actor_critic import PolicyState
from evarl.learning import evaluability
from evarl.learning.learner import Learner

One = Callable[[Any, Any, Array], Any]
"""What is given, what was made in the turn before, and the number of the turn → what is made."""


class Part:
    """A part of an update, looped over."""

    def __init__(self, one: One, given: Any, carry: Any):
        def run(given: Any, carry: Any, first: Array, count: Array) -> Any:
            return jax.lax.fori_loop(first, first + count, lambda i, made: one(varying(given, i), made, i), carry)

        # a copy, because the carry is used up and may be given to another part
        self._given, self.carry = given, jax.tree.map(jnp.copy, carry)
        number = jnp.int32(0)
        self._compiled = jax.jit(run, donate_argnums=1).lower(given, self.carry, number, number).compile()

    def run(self, first: int, count: int) -> float:
        """Seconds of so many turns."""
        began = time.perf_counter()
        self.carry = jax.block_until_ready(self._compiled(self._given, self.carry, jnp.int32(first), jnp.int32(count)))
        return time.perf_counter() - began


def parts(spec: Spec) -> Program:
    """All parts in turn; a repetition tells the seconds of each."""
    config = spec.config()
    learner, first = learner_for(config), config.evaluator.warmup + 1
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    empty = _zeros(lambda: _collect(learner, state)[1])
    made = {"collect": Part(lambda _, before, i: _collect(learner, before[0]), (), (state, empty))}
    made["collect"].run(first, 1)
    trajectory, policy, weights = jax.tree.map(jnp.copy, (made["collect"].carry[1], state.agent.policy, None))
    fixed = learner.evaluability
    if fixed is not None:
        key = jax.random.PRNGKey(1)
        rollout = _zeros(lambda: _assess(learner, policy, key))
        made["assess"] = Part(
            lambda policy, _, i: _assess(learner, policy, jax.random.fold_in(key, i)), policy, rollout
        )
        made["assess"].run(first, 1)
        rollout = jax.tree.map(jnp.copy, made["assess"].carry)

        def evaluate(given: Any, before: Any, index: Array) -> Any:
            policy, trajectory, rollout = given
            fit_key, memory_key = jax.random.split(jax.random.fold_in(key, index))
            evidence = evaluability.gather_evidence(fixed, before[0], learner.agent, policy, trajectory, rollout)
            metrics = evaluability.fresh_errors(fixed, before[0], evidence)
            state = evaluability.remember(fixed, before[0], evidence, index, memory_key)
            state, fitted = evaluability.fit(fixed, state, index, fit_key)
            state, weights, weighed = evaluability.weigh_policy(fixed, state, evidence, index)
            return state, weights, metrics | fitted | weighed

        given = (policy, trajectory, rollout)
        _, weights, metrics = _zeros(lambda: evaluate(given, (state.evaluation,), jnp.int32(first)))
        made["evaluator"] = Part(evaluate, given, (state.evaluation, weights, metrics))
        made["evaluator"].run(first, 1)
        weights = jax.tree.map(jnp.copy, made["evaluator"].carry[1])

    def better(given: Any, before: Any, index: Array) -> Any:
        return learner.agent.improve(before[0], jax.random.fold_in(jax.random.PRNGKey(2), index), *given)

    batch = (trajectory, weights)
    _, metrics = _zeros(lambda: better(batch, (state.agent,), jnp.int32(first)))
    made["policy"] = Part(better, batch, (state.agent, metrics))

    def repeat() -> dict[str, Any]:
        return {"parts": {name: part.run(first, spec.updates) for name, part in made.items()}}

    return Program(repeat, spec.updates * config.environments * config.steps, {})


def varying(tree: Any, index: Array) -> Any:
    """The same, by a choice that is always the same but that only the running program can make."""
    return jax.tree.map(lambda leaf: jnp.where(index < 0, jnp.zeros_like(leaf), leaf), tree)


def _collect(learner: Learner, state: Any) -> Any:
    worlds, gathered = learner.gather(state, state.worlds, 0)  # the assessment is not used, and so not computed
    return state.replace(worlds=worlds, key=gathered.keys.next_update), gathered.trajectory


def _assess(learner: Learner, policy: PolicyState, key: Array) -> Any:
    assert learner.assessment is not None
    act = lambda key, observation: learner.agent.act(policy, key, observation)  # noqa: E731
    return learner.assessment.take(act, key, learner.config.assessment.replicates, learner.world)


def _zeros(function: Callable[[], Any]) -> Any:
    """Zeros in the shape of what a function would return."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
