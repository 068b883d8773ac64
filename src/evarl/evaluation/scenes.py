"""Scenes: how policies take their test and are deployed on given sites, step by step, beside what was predicted and is true.

Only worlds with a map can be shown. Everything here is plain arrays; `evarl.report.animation` draws them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import softmax

from evarl.agents.distributions import Categorical
from evarl.assessment.behaviour import Behaviour, observe
from evarl.errors import InputError
from evarl.evaluation.inputs import AssessedPolicy, agent_policy, opened, root_key
from evarl.runs.run import Run
from evarl.simulation.rollouts import AssessmentRollout, AssessmentSize
from evarl.simulation.simulator import simulator_for
from evarl.truth.families import context_values
from evarl.worlds.contexts import parse_site
from evarl.worlds.crossing import ARRIVALS, PLANKS, START, STATES, TARGETS, Crossing, cell
from evarl.worlds.world import Key

SITES = 2
"""Number of sites that are shown beside each other."""
DECIMALS = 6
"""Decimals of a context, which is parsed as float32."""
TESTS = 1000
"""Tests on each site over which errors are averaged; the first one is shown."""


@dataclass(frozen=True)
class Walk:
    """N episodes on the map, side by side."""

    cells: Int[np.ndarray, "T1 N"]
    """Index of the cell before each step and after the last; an episode that has ended stays where it is."""
    failed: Bool[np.ndarray, "T N"]
    """Steps that tried to cross the bridge and did not."""
    held: Bool[np.ndarray, "T N"]
    """Steps that crossed it."""
    returns: Float[np.ndarray, "T1 N"]
    """Return before each step and after the last."""

    @property
    def steps(self) -> int:
        """The number T of steps of the longest episode."""
        return len(self.failed)


@dataclass(frozen=True)
class Scene:
    """One policy on one site."""

    site: float
    """The hidden probability that the bridge holds."""
    test: Walk
    """One episode for each rollout of each scenario."""
    deployment: Walk
    """One episode."""
    predicted: float
    """Value that the evaluator predicts from this test."""
    true: float
    """Value of the policy on this site, exact by dynamic programming."""
    errors: Float[np.ndarray, " M"]
    """Absolute errors of the predictions from M tests on this site; the first is that of the test that is shown."""

    @property
    def error(self) -> float:
        """Absolute error of the prediction."""
        return float(self.errors[0])


@dataclass(frozen=True)
class PolicyScenes:
    """One policy on several sites."""

    run: str
    beta: float
    seed: int
    scenes: tuple[Scene, ...]

    @property
    def mean_error(self) -> float:
        """Mean absolute error over all tests on all sites."""
        return float(np.mean([scene.errors.mean() for scene in self.scenes]))


def policy_scenes(
    run: Run | str | Path, sites: Sequence[str] = (), seed: int | None = None, random_seed: int = 0, tests: int = TESTS
) -> PolicyScenes:
    """Let the final policy of a seed, by default the first, take its test and deploy on two sites given as NAME=VALUE.

    By default the sites are the two ends of what training draws. Each site has its own random numbers; policies of two
    runs share them.
    """
    run = opened(run)
    world = _checked(run)
    contexts = _contexts(world, sites)
    learnt = run.fitted_evaluator(seed)
    policy = agent_policy(run, run.policy_state(seed))
    distribution = policy.distribution(jnp.eye(STATES, dtype=bool))
    assert isinstance(distribution, Categorical)
    logits = np.asarray(distribution.logits, np.float64)
    truth = context_values(world, softmax(logits, axis=1), contexts)[:, cell(*START)]
    start = world.observation(jnp.asarray(cell(*START)))[None]
    found = []
    for index, (context, value) in enumerate(zip(contexts, truth, strict=True)):
        test_key, deployment_key = jax.random.split(jax.random.fold_in(root_key(random_seed), index))
        every = np.repeat(context[None], tests, axis=0)
        test, behaviours = _test(run, policy, test_key, every, learnt.state.probed)
        predicted = _predicted(run, learnt.state, behaviours, start)
        deployed = _deployment(world, policy, deployment_key, context)
        found.append(
            Scene(float(context[0]), test, deployed, float(predicted[0]), float(value), abs(predicted - value))
        )
    return PolicyScenes(str(run.path), run.config.beta, run.seeds[0] if seed is None else seed, tuple(found))


def compared_scenes(
    run: Run | str | Path,
    passive: Run | str | Path | None = None,
    sites: Sequence[str] = (),
    seed: int | None = None,
    random_seed: int = 0,
) -> list[PolicyScenes]:
    """Scenes of a passive policy, if there is one, and then of another, on the same sites with the same random numbers."""
    own = policy_scenes(run, sites, seed, random_seed)
    if passive is None:
        return [own]
    (context,) = Crossing.parameters
    shared = [f"{context.name}={scene.site!r}" for scene in own.scenes]
    return [policy_scenes(passive, shared, seed, random_seed), own]


def _checked(run: Run) -> Crossing:
    """The world of a run, if it and the world of the assessment have a map."""
    tested = {} if run.assessment is None else {"assessment.world": run.assessment.world}
    for name, world in ({"world": run.world} | tested).items():
        if not isinstance(world, Crossing):
            raise InputError(f"{name}: {world.name} has no map and cannot be animated; only crossing can")
    assert isinstance(run.world, Crossing)
    return run.world


def _contexts(world: Crossing, sites: Sequence[str]) -> Float[np.ndarray, "C 1"]:
    if not world.contexts:
        raise InputError(f"site: {world.name} was trained without contexts; there is only one site")
    (context,) = world.contexts
    if not sites:
        return np.asarray([[context.low], [context.high]])
    if len(sites) != SITES:
        raise InputError(f"site: {len(sites)} sites are not allowed; must be {SITES}, each as {context.name}=VALUE")
    given = [parse_site([text], world.contexts, world.name) for text in sites]
    found = np.asarray(given, np.float64).round(DECIMALS)
    for one in found:
        world.at(one)  # refuses what is not allowed
    return found


def _test(
    run: Run, policy: AssessedPolicy, key: Key, contexts: Float[np.ndarray, "M 1"], probes: Array | None
) -> tuple[Walk, Behaviour]:
    """The walk of the first of M tests, and the behaviours of all of them, stacked; `probes` are those of the evaluator."""
    fixed = run.learner.evaluability
    assert fixed is not None
    assessment, replicates = fixed.assessment, run.config.assessment.replicates

    @jax.jit
    def take(policy: AssessedPolicy, key: Key, contexts: Array) -> tuple[AssessmentRollout, Behaviour]:
        rollout = assessment.take(policy.act, key, replicates, run.world, contexts)
        return rollout, observe(fixed.behaviour, rollout, policy.distribution, assessment.discount, probes).behaviour

    rollout, behaviour = take(policy, key, jnp.asarray(contexts, jnp.float32))
    first = jax.tree.map(lambda leaf: leaf[:, : assessment.scenarios], rollout)
    stacked = jax.tree.map(lambda leaf: leaf.reshape(len(contexts), assessment.scenarios, *leaf.shape[1:]), behaviour)
    return walk(first, assessment.discount), stacked


def _predicted(run: Run, state: Any, behaviours: Behaviour, start: Array) -> Float[np.ndarray, " M"]:
    fixed = run.learner.evaluability
    assert fixed is not None
    predict = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, None)))
    return np.asarray(predict(state, behaviours, start), np.float64)[:, 0]


def _deployment(world: Crossing, policy: AssessedPolicy, key: Key, context: Float[np.ndarray, " 1"]) -> Walk:
    """One episode from the start."""
    starts, size = jnp.asarray([cell(*START)], jnp.int32), AssessmentSize(world.horizon, 1)
    take = jax.jit(
        lambda policy, key, context: simulator_for(world).assess(policy.act, starts, size, key, contexts=context)
    )
    return walk(take(policy, key, jnp.asarray(context[None], jnp.float32)), world.discount)


def walk(rollout: AssessmentRollout, discount: float) -> Walk:
    """The cells of rollouts in crossing. A step ends in its target if the reward is that of an arrival there."""
    shown, action, reward, alive = (
        np.asarray(x).reshape(len(x), -1, *x.shape[3:])
        for x in (rollout.observation, rollout.action, rollout.reward, rollout.alive)
    )
    before = shown.argmax(axis=-1)
    target, tried = TARGETS[before, action], PLANKS[before, action] & alive
    arrived = np.isclose(reward, ARRIVALS[target], atol=1e-5) & alive
    cells = np.concatenate([before[:1], np.where(arrived, target, before)])
    for step in range(len(alive)):  # simulators go on where an episode has ended
        cells[step + 1] = np.where(alive[step], cells[step + 1], cells[step])
    weights = discount ** np.arange(len(reward))[:, None]
    returns = np.concatenate([np.zeros_like(reward[:1]), np.cumsum(weights * reward, axis=0)])
    last = int(alive.any(axis=1).sum())
    return Walk(cells[: last + 1], (tried & ~arrived)[:last], (tried & arrived)[:last], returns[: last + 1])
