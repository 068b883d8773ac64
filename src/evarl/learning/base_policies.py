"""Assessments built from a configuration: start states that are given, or that base policies visit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from evarl.agents.actor_critic import PolicyState
from evarl.agents.agent import Agent
from evarl.assessment.assessment import Assessment
from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import InputError
from evarl.learning.candidates import choose_start_states
from evarl.learning.configuration import ORDINARY, TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.simulation.simulator import simulator_for
from evarl.worlds.crossing import TEST_STATES
from evarl.worlds.registry import make_world
from evarl.worlds.world import AnyWorld

BasePolicy = tuple[Agent, PolicyState]
"""A trained policy whose visited states become the start states of an assessment."""

OPEN_FIELD = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))
"""Start states of navigation/open-field, spread over the square; the paper does not give its own."""

AMONG_OBSTACLES = ((0.1, 0.1), (0.25, 0.75), (0.75, 0.25), (0.5, 0.5))
"""Start states of navigation itself: the start of its episodes, two corners, and the middle between the obstacles."""

START_STATES: dict[str, tuple[tuple[float, ...], ...]] = {
    "navigation": AMONG_OBSTACLES,
    "navigation/open-field": OPEN_FIELD,
    "crossing": tuple((float(state),) for state in TEST_STATES),
}
"""Worlds whose assessments begin at states of their own, unless others are given."""

BASE_SEED = 1_000_003
"""First random seed of base policies, far from those of runs, so that no assessed policy is its own base policy."""
COMPARED = (4, 8)
"""Seeds of base policies, and moments of the training of each, that are compared where start states are chosen greedily."""


def build_assessment(config: TrainConfig, notify: Callable[[str], None], base: BasePolicy | None = None) -> Assessment:
    """The assessment that a configuration describes, unless it is to be read from a file.

    Start states are those of `assessment.start_states`; on the host, reset seeds; otherwise states that a base policy
    visits, which is `base` if given, and is trained here if not; or, if they are to be chosen, those of several base policies.
    `notify` is called with one line before base policies are trained, and with one about what was chosen.
    """
    wanted = config.assessment
    name = wanted.world or config.world
    own = name == config.world
    world = make_world(name, config.horizon if own else None)
    known = [parameter.name for parameter in world.parameters]
    shared = [text for text in config.context if text.partition("=")[0] in known]  # what else varies does not act there
    world = make_world(name, world.horizon, context=shared) if shared else world
    states = _given_start_states(config, name)
    if base is not None and (states or not world.can_restart):
        raise InputError(
            f"assessment.base-run: {wanted.base_run} would have no effect, since start states in {name} do not come from a "
            f"base policy; leave it out, or give --assessment.select random if {config.world} is a JAX world"
        )
    if states:
        start_states = given_states(world, states)
    elif not world.can_restart:
        if wanted.select == "greedy":
            raise InputError(f"assessment.select: greedy is for JAX worlds; start states in {name} are reset seeds")
        start_states = range(BASE_SEED, BASE_SEED + wanted.scenarios)
    elif own and wanted.select == "greedy":
        agent, policies = train_base_policies(config, notify, *COMPARED)
        start_states = choose_start_states(config, agent, policies, jax.random.PRNGKey(BASE_SEED), notify)
    elif own:
        start_states = visited_start_states(config, world, base or train_base_policy(config, notify))
    else:
        raise InputError(
            f"assessment.start-states: none are given for {name}; a base policy visits {config.world} only"
        )
    return Assessment(world, start_states, wanted.horizon, wanted.discount)


def needs_base_policy(config: TrainConfig) -> bool:
    """Whether `build_assessment` trains a base policy for this configuration, if it is given none."""
    if config.assessment.world not in (None, config.world):
        return False
    return make_world(config.world, config.horizon).can_restart and not _given_start_states(config, config.world)


def train_base_policy(config: TrainConfig, notify: Callable[[str], None]) -> BasePolicy:
    """A policy trained for `assessment.base_updates` updates without an evaluator."""
    agent, (policy,) = train_base_policies(config, notify)
    return agent, policy


def train_base_policies(
    config: TrainConfig, notify: Callable[[str], None], seeds: int = 1, moments: int = 1
) -> tuple[Agent, list[PolicyState]]:
    """Policies of training without an evaluator, at so many moments at equal distances, the last at its end."""
    updates = config.assessment.base_updates
    plain = dataclasses.replace(config, **ORDINARY, evaluator_mode="none", seeds=1)
    learner = make_learner(dataclasses.replace(plain, updates=max(1, updates)))
    engine = CompiledEngine(learner, seeds)
    state = engine.init([BASE_SEED + number for number in range(seeds)])
    several, visitors = ("a base policy", "it visits") if seeds == 1 else (f"{seeds} base policies", "they visit")
    notify(f"training {several} for {updates} updates; the assessment starts from states that {visitors}")
    policies, done = [], 0
    for last in np.unique(np.linspace(updates / moments, updates, moments).astype(int)):
        while done < last:
            count = min(50, int(last) - done)
            state, _ = engine.advance(state, done, count)
            done += count
        kept = jax.device_get(state.agent.policy)  # the next call uses the state up
        policies += [jax.tree.map(lambda leaf, at=seed: leaf[at], kept) for seed in range(seeds)]
    return learner.agent, policies


def visited_start_states(config: TrainConfig, world: AnyWorld, base: BasePolicy) -> Any:
    """Physics of k states drawn uniformly over the steps of a base policy, [k, ...]: the paper's choice."""
    agent, policy = base
    act = Partial(agent.act, policy)
    key, scenarios = jax.random.PRNGKey(BASE_SEED), config.assessment.scenarios
    return jax.tree.map(np.asarray, simulator_for(world).visited_states(act, key, scenarios).state.physics)


def _given_start_states(config: TrainConfig, world: str) -> list[tuple[float, ...]]:
    """Start states from the configuration, or those that belong to the world; empty if there are none."""
    if config.assessment.select is not None:
        return []
    states = parse_start_states(config.assessment.start_states)
    own = START_STATES.get(world, ())
    if states or not own:
        return states
    if config.assessment.scenarios != len(own):
        raise InputError(
            f"assessment.scenarios: {config.assessment.scenarios} is not allowed; {world} has {len(own)} start states of its "
            "own, give others with --assessment.start-states"
        )
    return list(own)
