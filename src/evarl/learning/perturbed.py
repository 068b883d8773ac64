"""Perturbed policies beside the one that is trained: each plays a few whole episodes and takes the assessment once."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from evarl.agents.acting import ActingPolicy, no_policies
from evarl.agents.agent import Agent
from evarl.agents.perturbation import Acted, Perturbation, draw_perturbations, perturbed_action, with_noise
from evarl.assessment.behaviour import observe
from evarl.errors import InputError
from evarl.evaluators.memory import PolicyRecord, empty_slots
from evarl.keys import split
from evarl.learning.evaluability import Evaluability, nth_places
from evarl.simulation.compiled import CompiledSimulator
from evarl.simulation.simulator import Simulator
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.world import Key


class Tried(NamedTuple):
    """What the perturbed policies of one update did."""

    records: PolicyRecord
    """[P, ...] for the memory; the first states of each are the start states of its episodes."""
    steps: Int[Array, ""]
    """Environment steps that this took, those of the assessments included."""


def try_perturbed(
    fixed: Evaluability, simulator: Simulator, agent: Agent, policy: Any, key: Key, probes: Array | None = None
) -> Tried:
    """Records of `evaluator.perturbed` perturbed versions of a policy, each in a context of its own in a family of worlds.

    The episodes are whole, so that returns-to-go need no critic: that of the policy says nothing about another one. `probes` are
    the present ones, where these are learnt.
    """
    simulator = cast(CompiledSimulator, simulator)  # `check_perturbed` refuses others
    settings, world, assessment = fixed.config.evaluator, simulator.world, fixed.assessment
    replicates = fixed.config.assessment.replicates

    def one(how: Perturbation, context: Array | None, key: Key) -> Tried:
        noise_key, play_key, assess_key = split(key, 3)
        noisy = with_noise(policy, how.noise, noise_key)

        def act(key: Key, observation: Array, last: Acted | None, first: Array | None) -> Acted:
            return perturbed_action(agent, noisy, how, key, observation, last, first)

        distribution = ActingPolicy.create(agent, noisy, how)
        played = simulator.episodes(act, settings.perturbed_environments, play_key, context)
        contexts = None if context is None else context[None]
        taken = assessment.take_perturbed(act, assess_key, replicates, world, contexts)
        behaviour = observe(fixed.behaviour, taken, distribution, assessment.discount, probes).behaviour
        rows = kept_states(played.alive[:, :, 0], *fixed.kept_diverse)
        flat = lambda x: x[:, :, 0].reshape(-1, *x.shape[3:])[rows]  # noqa: E731
        record = PolicyRecord(flat(played.observation), flat(played.rewards_to_go(world.discount)), behaviour)
        record = record.replace(policy=distribution if fixed.keeps_policies else None)
        return Tried(record, played.alive.sum(dtype=jnp.int32) + taken.alive.sum(dtype=jnp.int32))

    how_key, context_key, own_key = split(key, 3)
    count = settings.perturbed
    contexts = draw_contexts(world.contexts, context_key, count) if world.contexts else None
    each = jax.vmap(one, in_axes=(0, None if contexts is None else 0, 0))
    tried = each(draw_perturbations(agent.action_space, how_key, count), contexts, split(own_key, count))
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


def check_perturbed(fixed: Evaluability, simulator: Simulator) -> None:
    """Refuse perturbed policies where they cannot be tried."""
    settings, world = fixed.config.evaluator, simulator.world
    if settings.memory != "diverse" or not settings.perturbed:
        return
    if not simulator.traceable:
        raise InputError(
            f"evaluator.perturbed: {settings.perturbed} is not allowed in {world.name}, which is on the host; must be 0"
        )
