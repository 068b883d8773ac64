"""Perturbed policies beside the one that is trained: each plays a few whole episodes and takes the assessment once."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, UInt32

from evarl.agents.acting import ActingPolicy, no_policies
from evarl.agents.agent import Agent
from evarl.agents.perturbation import draw_perturbations, with_noise
from evarl.assessment.behaviour import observe
from evarl.evaluators.memory import PolicyRecord, empty_slots
from evarl.keys import split
from evarl.learning.evaluability import Evaluability, nth_places
from evarl.simulation.rollouts import AssessmentRollout
from evarl.simulation.simulator import Simulator
from evarl.worlds.contexts import Context, draw_contexts
from evarl.worlds.world import Key


class Tried(NamedTuple):
    """What the perturbed policies of one update did."""

    records: PolicyRecord
    """[P, ...] for the memory; the first states of each are the start states of its episodes."""
    steps: Int[Array, ""]
    """Environment steps that this took, those of the assessments included."""


class Drawn(NamedTuple):
    """P perturbed policies, and what each is tried with."""

    policies: ActingPolicy
    """[P, ...]"""
    contexts: Float[Array, "P Q"] | None
    """The context of each; None in a single world."""
    play_keys: UInt32[Array, "P 2"]
    assess_keys: UInt32[Array, "P 2"]


def try_perturbed(
    fixed: Evaluability, simulator: Simulator, agent: Agent, policy: Any, key: Key, probes: Array | None = None
) -> Tried:
    """Records of `evaluator.perturbed` perturbed versions of a policy, each in a context of its own in a family of worlds.

    The episodes are whole, so that returns-to-go need no critic: that of the policy says nothing about another one. `probes` are
    the present ones, where these are learnt.
    """
    world, settings = simulator.world, fixed.config.evaluator
    drawn = draw_policies(agent, policy, world.contexts, settings.perturbed, key)
    acts = Partial(ActingPolicy.act, drawn.policies)
    played = simulator.episodes_each(acts, settings.perturbed_environments, drawn.play_keys, drawn.contexts)
    replicates = fixed.config.assessment.replicates
    taken = fixed.assessment.take_perturbed(acts, drawn.assess_keys, replicates, world, drawn.contexts)
    return _record(fixed, world.discount, drawn.policies, played, taken, probes)


# Worlds on the host are played in Python, what is before and after them in these two programs; in a compiled world they are
# a part of the larger one.
@partial(jax.jit, static_argnames=("agent", "contexts", "count"), inline=True)
def draw_policies(agent: Agent, policy: Any, contexts: tuple[Context, ...], count: int, key: Key) -> Drawn:
    """Perturbed versions of a policy, with what each is tried with."""
    how_key, context_key, own_key = split(key, 3)
    how = draw_perturbations(agent.action_space, how_key, count)
    noise_keys, play_keys, assess_keys = jnp.moveaxis(jax.vmap(lambda key: split(key, 3))(split(own_key, count)), 1, 0)
    noisy = jax.vmap(with_noise, in_axes=(None, 0, 0))(policy, how.noise, noise_keys)
    sites = draw_contexts(contexts, context_key, count) if contexts else None
    return Drawn(ActingPolicy.create(agent, noisy, how), sites, play_keys, assess_keys)


@partial(jax.jit, static_argnames=("fixed", "discount"), inline=True)
def _record(
    fixed: Evaluability,
    discount: float,
    policies: ActingPolicy,
    played: AssessmentRollout,
    taken: AssessmentRollout,
    probes: Array | None,
) -> Tried:
    """What is remembered of each policy, from its whole episodes and its assessment."""

    def one(policy: ActingPolicy, played: AssessmentRollout, taken: AssessmentRollout) -> Tried:
        behaviour = observe(fixed.behaviour, taken, policy, fixed.assessment.discount, probes).behaviour
        rows = kept_states(played.alive[:, :, 0], *fixed.kept_diverse)
        flat = lambda x: x[:, :, 0].reshape(-1, *x.shape[3:])[rows]  # noqa: E731
        record = PolicyRecord(flat(played.observation), flat(played.rewards_to_go(discount)), behaviour)
        record = record.replace(policy=policy if fixed.keeps_policies else None)
        return Tried(record, played.alive.sum(dtype=jnp.int32) + taken.alive.sum(dtype=jnp.int32))

    tried = jax.vmap(one)(policies, played, taken)
    return tried._replace(steps=tried.steps.sum(dtype=jnp.int32))


def nothing_tried(fixed: Evaluability, agent: Agent) -> Tried:
    """Empty records of the same shapes, for updates in which no perturbed policies are tried."""
    space, shapes = fixed.evaluator.observation_space, fixed.evaluator.behaviour
    count = fixed.config.evaluator.perturbed
    records = empty_slots(count, sum(fixed.kept_diverse), space, shapes)
    if fixed.keeps_policies:
        records = records.replace(policy=no_policies(agent, count))
    return Tried(records, jnp.zeros((), jnp.int32))


def kept_states(alive: Bool[Array, "T E"], starts: int, others: int) -> Int[Array, " count"]:
    """Places in T × E steps: `starts` times a start state, all E of them in turn, and `others` at equal distances in time."""
    flat = alive.reshape(-1)
    share = (jnp.arange(others, dtype=jnp.float32) + 0.5) / max(1, others)
    place = jnp.floor(share * flat.sum().astype(jnp.float32)).astype(jnp.int32)
    return jnp.concatenate([jnp.arange(starts, dtype=jnp.int32) % alive.shape[1], nth_places(flat, place)])
