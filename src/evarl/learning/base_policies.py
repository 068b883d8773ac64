"""Assessments built from a configuration: start states that are given, or that a base policy visits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from evarl.agents.agent import Agent, PolicyState
from evarl.assessment.assessment import Assessment, discrete_states, given_states
from evarl.assessment.configuration import parse_start_states
from evarl.assessment.host import HostAssessment
from evarl.errors import InputError
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.truth.monte_carlo import visited_states  # to be imported from evarl.simulation once it is there
from evarl.worlds.registry import make_world
from evarl.worlds.world import HostWorld, World

BasePolicy = tuple[Agent, PolicyState]
"""A trained policy whose visited states become the start states of an assessment."""

OPEN_FIELD = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))
"""Start states of navigation/open-field, spread over the square; the paper does not give its own."""

BASE_SEED = 1_000_003
"""Random seed of base policies, far from those of runs, so that no assessed policy is its own base policy."""


def build_assessment(
    config: TrainConfig, say: Callable[[str], None], base: BasePolicy | None = None
) -> Assessment | HostAssessment:
    """The assessment that a configuration describes, unless it is to be read from a file.

    Start states are those of `assessment.start_states`; on the host, reset seeds; otherwise states that a base policy
    visits, which is `base` if given, and is trained here if not.

    Args:
        config: the configuration of the run; its `assessment.file` and `assessment.base_run` are not opened here.
        say: called with one line before a base policy is trained.
        base: the policy of `assessment.base_run`.
    """
    wanted = config.assessment
    name = wanted.world or ("navigation/open-field" if config.world == "navigation" else config.world)
    own = name == config.world
    world = make_world(name, config.horizon if own else None)
    states = _given_start_states(config, name)
    if base is not None and (states or isinstance(world, HostWorld)):
        raise InputError(
            f"assessment.base-run: {wanted.base_run} would have no effect, since start states in {name} do not come from a "
            f"base policy; leave it out, or give --assessment.world {config.world} if that is a JAX world"
        )
    if isinstance(world, HostWorld):
        seeds = discrete_states(states) if states else range(BASE_SEED, BASE_SEED + wanted.scenarios)
        return HostAssessment(world, tuple(seeds), wanted.horizon, wanted.discount)
    if states:
        return Assessment(world, given_states(world, states), wanted.horizon, wanted.discount)
    if not own:
        raise InputError(
            f"assessment.start-states: none are given for {name}; a base policy visits {config.world} only"
        )
    base = base or train_base_policy(config, say)
    return Assessment(world, visited_start_states(config, world, base), wanted.horizon, wanted.discount)


def train_base_policy(config: TrainConfig, say: Callable[[str], None]) -> BasePolicy:
    """A policy trained for `assessment.base_updates` updates without an evaluator."""
    updates = config.assessment.base_updates
    plain = dataclasses.replace(config, beta=0.0, beta_variance=0.0, evaluator_mode="none", seeds=1)
    learner = make_learner(dataclasses.replace(plain, updates=max(1, updates)))
    engine = CompiledEngine(learner, 1)
    state = engine.init([BASE_SEED])
    say(f"training a base policy for {updates} updates; the assessment starts from states that it visits")
    for first in range(0, updates, 50):
        state, _ = engine.advance(state, first, min(50, updates - first))
    return learner.agent, jax.tree.map(lambda leaf: leaf[0], state.agent.policy)


def visited_start_states(config: TrainConfig, world: World, base: BasePolicy) -> Any:
    """Physics of k states drawn uniformly over the steps of a base policy, [k, ...]: the paper's choice."""
    agent, policy = base
    act = Partial(agent.act, policy)
    states, _ = visited_states(world, act, jax.random.PRNGKey(BASE_SEED), config.assessment.scenarios)
    return jax.tree.map(np.asarray, states.physics)


def _given_start_states(config: TrainConfig, world: str) -> list[tuple[float, ...]]:
    """Start states from the configuration, or those that belong to the open field; empty if there are none."""
    states = parse_start_states(config.assessment.start_states)
    if states or world != "navigation/open-field":
        return states
    if config.assessment.scenarios != len(OPEN_FIELD):
        raise InputError(
            f"assessment.scenarios: {config.assessment.scenarios} is not allowed; the open field has {len(OPEN_FIELD)} start "
            "states of its own, give others with --assessment.start-states"
        )
    return list(OPEN_FIELD)
