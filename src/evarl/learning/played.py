"""Policies of ordinary training, recorded with the whole episodes that they play and with their behaviour.

In the batches of training a critic continues the episodes that are cut. It errs in a way of its own for each seed, and errors
against such returns would contain its errors. The episodes here are whole.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from evarl.agents.perturbation import Acted
from evarl.assessment.assessment import Assessment
from evarl.assessment.behaviour import behaviour_kind, observe
from evarl.errors import InputError
from evarl.evaluators.memory import PolicyRecord
from evarl.keys import split
from evarl.learning.configuration import ORDINARY, TrainConfig
from evarl.learning.engines import CAPACITY, CompiledEngine
from evarl.learning.learner import Learner, make_learner
from evarl.learning.pretraining import Past
from evarl.simulation.compiled import CompiledSimulator
from evarl.worlds.world import Key

RECORDS = 2**31 - 2
"""What the key of a seed is folded with, for keys that are no keys of training."""
HALVES = 2
"""Groups of independent episodes in each record, of equal size, one after the other."""


@dataclass(frozen=True)
class RecordSize:
    """How much is recorded."""

    policies: int
    """Policies of each seed, at equal distances from the first, which has learnt nothing, to the last."""
    episodes: int
    """Whole episodes of each policy; an even number."""
    states: int
    """Visited states kept of each policy; an even number."""

    def validate(self) -> None:
        """Refuse sizes that cannot be halved."""
        for name in ("episodes", "states"):
            if (value := getattr(self, name)) < HALVES or value % HALVES:
                raise InputError(f"{name}: {value} is not allowed; must be an even number of at least 2")


class Played(NamedTuple):
    """Records of M policies for each seed; in both, the first half of the states is from the first half of the episodes."""

    visited: Past
    """[seeds, M, S] states drawn from all that a policy visited, those of long episodes as likely as those of short ones."""
    start: PolicyRecord
    """[seeds, M, E] first states of the episodes."""


def play_policies(
    config: TrainConfig,
    assessment: Assessment,
    size: RecordSize,
    seeds: list[int],
    advance: Callable[[int], None] = lambda updates: None,
) -> Played:
    """Records of policies at equal distances in ordinary training (β = 0), each with new episodes and a new assessment.

    `advance` is called with the number of updates that were made since its last call.
    """
    size.validate()
    learner = _learner(config)
    record = jax.jit(jax.vmap(_recorder(learner, assessment, config, size)))
    # a key folded with a small number is one of those that training splits from it; none is folded with RECORDS
    roots = [jax.random.fold_in(jax.random.PRNGKey(seed), RECORDS) for seed in seeds]
    engine = CompiledEngine(learner, len(seeds))
    state, done, records, moments = engine.init(seeds), 0, [], _moments(config, size)
    for moment in moments:
        while done < moment:
            count = min(moment - done, CAPACITY)
            state, _ = engine.advance(state, done, count)
            done += count
            advance(count)
        keys = jnp.stack([jax.random.fold_in(root, moment) for root in roots])
        records.append(jax.device_get(record(state.agent.policy, keys)))
    visited, start = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *records)
    return Played(Past(assessment, visited, moments), start)


def played_shapes(config: TrainConfig, assessment: Assessment, size: RecordSize, seeds: int) -> Played:
    """Shapes and dtypes of what `play_policies` records of so many seeds."""
    learner, moments = _learner(config), _moments(config, size)
    policy = jax.eval_shape(learner.init, jax.random.PRNGKey(0)).agent.policy
    one = jax.eval_shape(_recorder(learner, assessment, config, size), policy, jax.random.PRNGKey(0))
    leading = seeds, len(moments)
    visited, start = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leading, *leaf.shape), leaf.dtype), one)
    return Played(Past(assessment, visited, moments), start)


def _learner(config: TrainConfig) -> Learner:
    """The learner of ordinary training, without an evaluator."""
    alone = dataclasses.replace(config.evaluator, file=None)
    learner = make_learner(dataclasses.replace(config, **ORDINARY, evaluator_mode="none", evaluator=alone))
    if not learner.simulator.traceable or learner.world.contexts:
        raise InputError(f"{config.world}: policies are recorded in single JAX worlds only")
    return learner


def _moments(config: TrainConfig, size: RecordSize) -> list[int]:
    """Numbers of updates after which policies are recorded."""
    return np.unique(np.linspace(0, config.updates, min(size.policies, config.updates + 1)).astype(int)).tolist()


def _recorder(
    learner: Learner, assessment: Assessment, config: TrainConfig, size: RecordSize
) -> Callable[[Any, Key], tuple[PolicyRecord, PolicyRecord]]:
    """The function from a policy and a key to its records, at visited states and at start states."""
    agent, world = learner.agent, learner.world
    simulator = cast(CompiledSimulator, learner.simulator)
    kind = behaviour_kind(config.assessment.behaviour, world.action_space)

    def record(policy: Any, key: Key) -> tuple[PolicyRecord, PolicyRecord]:
        play_key, assess_key, rows_key = split(key, 3)
        act = lambda key, observation: agent.act(policy, key, observation)  # noqa: E731
        unperturbed = lambda key, seen, *_: Acted(*2 * act(key, seen)[:1])  # noqa: E731
        played = simulator.episodes(unperturbed, size.episodes, play_key)
        taken = assessment.take(act, assess_key, config.assessment.replicates, world)
        probabilities = lambda observation: agent.distribution(policy, observation)  # noqa: E731
        behaviour = observe(kind, taken, probabilities, assessment.discount).behaviour
        observation, target = played.observation[:, :, 0], played.rewards_to_go(world.discount)[:, :, 0]
        places = tuple(visited_places(played.alive[:, :, 0], size.states, rows_key))
        visited = PolicyRecord(observation[places], target[places], behaviour)
        return visited, PolicyRecord(observation[0], target[0], behaviour)

    return record


def visited_places(alive: Bool[Array, "T E"], count: int, key: Key) -> Int[Array, "2 count"]:
    """Steps and episodes of `count` visited states: half of them drawn from each half of the episodes, with replacement.

    Where an episode has ended, `alive` is false and nothing is drawn.
    """
    steps, episodes = alive.shape
    each = episodes // HALVES

    def drawn(alive: Bool[Array, "T half"], key: Key) -> Int[Array, "2 half_count"]:
        chances = alive.reshape(-1).astype(jnp.float32)
        chosen = jax.random.choice(key, steps * each, (count // HALVES,), p=chances / chances.sum())
        return jnp.stack([chosen // each, chosen % each])

    halves = jnp.moveaxis(alive.reshape(steps, HALVES, each), 1, 0)
    step, episode = jnp.moveaxis(jax.vmap(drawn)(halves, split(key, HALVES)), 1, 0)
    return jnp.stack([step, episode + each * jnp.arange(HALVES)[:, None]]).reshape(2, count)
