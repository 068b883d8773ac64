"""Assessments and evaluators of a run: made from its configuration, kept beside it, and read back."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evarl.assessment.assessment import Assessment
from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import FileError, InputError
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.runs.checks import check_finite, check_own, written_by
from evarl.simulation.simulator import simulator_for
from evarl.storage.files import reason
from evarl.storage.modules import check_world
from evarl.storage.tensors import load_arrays, load_tree, save_tree
from evarl.worlds.registry import make_world
from evarl.worlds.world import AnyWorld

if TYPE_CHECKING:
    from evarl.runs.run import Run

ASSESSMENT = "assessment.safetensors"
OPEN_FIELD = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))
"""Start states for navigation, spread over the square; the paper does not give its own."""

BASE_SEED = 1_000_003
"""Far from the seeds of runs, so that the base policy is none of those assessed."""


def build_assessment(config: TrainConfig, say: Callable[[str], None]) -> Assessment:
    """The assessment that a configuration asks for; `say` is told before a base policy is trained for it."""
    wanted = config.assessment
    if wanted.file is not None:
        return load_assessment(Path(wanted.file), named=(config.world, wanted.world))
    base = None if wanted.base_run is None else _base_run(config)
    name = wanted.world or ("navigation/open-field" if config.world == "navigation" else config.world)
    own = name == config.world
    world = make_world(name, config.horizon if own else None)
    states = parse_start_states(wanted.start_states)
    if name == "navigation/open-field" and not states:
        if wanted.scenarios != len(OPEN_FIELD):
            raise InputError(
                f"assessment.scenarios: {wanted.scenarios} is not allowed; the open field has {len(OPEN_FIELD)} start "
                "states of its own, give others with --assessment.start-states"
            )
        states = list(OPEN_FIELD)
    if base is not None and (states or not world.can_restart):
        raise InputError(
            f"assessment.base-run: {wanted.base_run} would have no effect, since start states in {name} do not come from a "
            f"base policy; leave it out, or give --assessment.world {config.world} if that lives in JAX"
        )
    if states:
        start_states = given_states(world, states)
    elif not world.can_restart:
        start_states = range(BASE_SEED, BASE_SEED + wanted.scenarios)
    elif own:
        start_states = _visited(config, world, base, say)
    else:
        raise InputError(
            f"assessment.start-states: none are given for {name}; a base policy visits {config.world} only"
        )
    return Assessment(world, start_states, wanted.horizon, wanted.discount)


def save_assessment(path: Path, assessment: Assessment) -> None:
    """Write an assessment. Mappings are Python functions and are not written: whoever loads it gives them again."""
    about = {
        "kind": "assessment",
        "world": assessment.world.name,
        "world_horizon": str(assessment.world.horizon),
        "horizon": str(assessment.horizon),
        "discount": repr(float(assessment.discount)),
        "mapped": "yes" if assessment.mapped else "no",
    }
    save_tree(path, {"start": jax.tree.map(np.asarray, assessment.start_states)}, about)


def load_assessment(path: Path, *, named: Sequence[str | None] = (), **mappings: Any) -> Assessment:
    """Read an assessment back; one that was saved with mappings wants them again.

    A file does not decide what is imported: Gymnasium's worlds from a module that is neither loaded nor allowed are refused,
    unless they are among those that the user has `named`.
    """
    arrays, about = load_arrays(path)
    try:
        if about["kind"] != "assessment":
            raise FileError(f"{path}: holds a {about['kind']}, not an assessment")
        name, limit, horizon, discount, mapped = (
            about["world"],
            int(about["world_horizon"]),
            int(about["horizon"]),
            float(about["discount"]),
            {"yes": True, "no": False}[about["mapped"]],
        )
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: is not an assessment ({error} is missing or wrong)") from error
    if not 0 <= discount <= 1:
        raise FileError(f"{path}: has the discount {discount}; want a number from 0 to 1")
    if name not in named:
        check_world(name, path)
    world = make_world(name, limit)
    if mapped and not mappings:
        raise InputError(f"{path}: was saved with mappings between two worlds; load it in Python and give them again")
    one = simulator_for(world).start_template()
    count = min((len(x) if x.ndim else 0 for x in arrays.values()), default=0)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), one)
    tree, _ = load_tree(path, {"start": shapes})
    if len(arrays) == 1:
        (states,) = arrays.values()
        try:
            given_states(world, [tuple(state) for state in states.reshape(count, -1).tolist()])
        except InputError as error:
            raise FileError(f"{path}: {reason(error)}") from error
    return Assessment(world, tree["start"], horizon, discount, **mappings)


def save_evaluator(path: Path, learnt: LearntEvaluator, config: TrainConfig, seed: int | None = None) -> None:
    """Write an evaluator with what identifies it; without a seed, it was fitted to all seeds of a run."""
    about = {
        "kind": "evaluator",
        "world": config.world,
        "remembered": str(jax.tree.leaves(learnt.remembered)[0].shape[0]),
    }
    save_tree(path, jax.device_get(learnt), about | written_by(config, seed) | _network(config))


def load_evaluator(path: Path, config: TrainConfig, assessment: Assessment, seed: int | None = None) -> LearntEvaluator:
    """Read an evaluator; one of another world, another network or other scenarios is refused.

    With a seed, so is one that is not that seed's own in the run with this configuration.
    """
    arrays, about = load_arrays(path)
    if seed is not None:
        check_own(path, about, "evaluator", config, seed)
    if about.get("kind") != "evaluator":
        raise FileError(f"{path}: does not hold an evaluator")
    if about.get("world") != config.world:
        raise InputError(f"evaluator.file: {path} was trained in {about.get('world')}, not in {config.world}")
    for name, value in _network(config).items():
        if about.get(name) != value:
            raise InputError(f"evaluator.file: {path} has {name} {about.get(name)}, the configuration {value}")
    scenarios, kept = np.asarray(assessment.observations()), arrays.get("scenarios", np.empty(0))
    if kept.shape != scenarios.shape:
        k, other = scenarios.shape[0], len(kept) if kept.ndim else 0
        raise InputError(f"evaluator.file: {path} is for an assessment of {other} scenarios, this one has {k}")
    if not np.array_equal(kept, scenarios):
        raise InputError(f"evaluator.file: {path} is for other start states; use its assessment with --assessment.file")
    evaluator = make_learner(dataclasses.replace(config, evaluator_mode="colearned"), assessment).evaluator
    assert evaluator is not None
    try:
        remembered = int(about["remembered"])
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: does not say how many policies it remembers") from error
    template = LearntEvaluator(
        state=jax.eval_shape(evaluator.init, jax.random.PRNGKey(0)),
        scenarios=jnp.asarray(scenarios),
        remembered=jax.tree.map(lambda x: jax.ShapeDtypeStruct((remembered, *x.shape), x.dtype), evaluator.behaviour),
        lowest=evaluator.behaviour,
        highest=evaluator.behaviour,
        batch_mean=jnp.zeros(()),
    )
    learnt, _ = load_tree(path, template)
    check_finite(path, learnt)
    return jax.tree.map(jnp.asarray, learnt)


def _network(config: TrainConfig) -> dict[str, str]:
    settings = dataclasses.asdict(config.evaluator.network)
    return {f"network.{name}": str(value) for name, value in settings.items()}


def _base_run(config: TrainConfig) -> "Run":
    """The run whose policy is the base policy; one of another world is refused, whether or not it would be used."""
    from evarl.runs.run import Run  # a run may ask for its assessment, and an assessment for a run

    assert config.assessment.base_run is not None
    run = Run.load(config.assessment.base_run)
    if run.config.world != config.world:
        raise InputError(f"assessment.base-run: {run.path} was trained in {run.config.world}, not in {config.world}")
    return run


def _visited(config: TrainConfig, world: AnyWorld, base: "Run | None", say: Callable[[str], None]) -> Any:
    """Draw k states that a base policy visits, uniformly over its steps: the paper's choice."""
    key = jax.random.PRNGKey(BASE_SEED)
    if base is not None:
        agent, policy = base.learner.agent, base.policy_state()
    else:
        updates = config.assessment.base_updates
        plain = dataclasses.replace(config, beta=0.0, beta_variance=0.0, evaluator_mode="none", seeds=1)
        learner = make_learner(dataclasses.replace(plain, updates=max(1, updates)))
        engine = CompiledEngine(learner, 1)
        state = engine.init([BASE_SEED])
        say(f"training a base policy for {updates} updates, to draw the assessment's start states from what it visits")
        for first in range(0, updates, 50):
            state, _ = engine.advance(state, first, min(50, updates - first))
        agent, policy = learner.agent, jax.tree.map(lambda leaf: leaf[0], state.agent.policy)
    act = Partial(agent.act, policy)
    states = simulator_for(world).visited_states(act, key, config.assessment.scenarios).state
    return jax.tree.map(np.asarray, states.physics)
