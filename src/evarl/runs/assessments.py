"""Files of assessments and evaluators."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.assessment.assessment import Assessment
from evarl.assessment.scenarios import given_states
from evarl.errors import FileError, InputError
from evarl.evaluators.evaluator import Evaluator, LearntEvaluator
from evarl.evaluators.knowledge import Knowledge, Known
from evarl.learning.configuration import TrainConfig
from evarl.learning.learner import make_learner
from evarl.runs.checks import check_finite, check_own, written_by
from evarl.simulation.simulator import simulator_for
from evarl.storage.files import reason
from evarl.storage.modules import check_world
from evarl.storage.tensors import as_tree, load_arrays, save_tree
from evarl.worlds.registry import make_world
from evarl.worlds.world import AnyWorld

ASSESSMENT = "assessment.safetensors"
Arrays = dict[str, np.ndarray]


def save_assessment(path: Path, assessment: Assessment) -> None:
    """Write an assessment. Its mappings are Python functions and are not written: `load_assessment` takes them again."""
    about = {
        "kind": "assessment",
        "world": assessment.world.name,
        "world_horizon": str(assessment.world.horizon),
        "world_contexts": " ".join(map(str, assessment.world.contexts)),
        "horizon": str(assessment.horizon),
        "discount": repr(float(assessment.discount)),
        "mapped": "yes" if assessment.mapped else "no",
    }
    save_tree(path, {"start": jax.tree.map(np.asarray, assessment.start_states)}, about)


def load_assessment(path: Path, *, named: Sequence[str | None] = (), **mappings: Any) -> Assessment:
    """Read an assessment; one that was saved with mappings requires them again.

    A file does not decide what is imported: Gymnasium's worlds from a module that is neither loaded nor allowed are refused,
    unless they are among those that the user has `named`.
    """
    arrays, about = load_arrays(path)
    try:
        if about["kind"] != "assessment":
            raise FileError(f"{path}: holds a {about['kind']}, not an assessment")
        name, limit = about["world"], int(about["world_horizon"])
        horizon, discount = int(about["horizon"]), float(about["discount"])
        mapped = {"yes": True, "no": False}[about["mapped"]]
        contexts = about.get("world_contexts", "").split()
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: is not an assessment ({error} is missing or wrong)") from error
    if not 0 <= discount <= 1:
        raise FileError(f"{path}: has the discount {discount}; must be a number from 0 to 1")
    if name not in named:
        check_world(name, path)
    world = make_world(name, limit, context=contexts)
    if mapped and not mappings:
        raise InputError(f"{path}: was saved with mappings between two worlds; load it in Python and give them again")
    return Assessment(world, _start_states(path, arrays, world), horizon, discount, **mappings)


def saved_assessment(path: Path, named: Sequence[str | None], given: Assessment | None) -> Assessment:
    """The assessment of a run: `given`, if it is the one in the file, or else read from there."""
    if given is None:
        return load_assessment(path, named=named)
    arrays, about = load_arrays(path)
    states = {"start": jax.tree.map(np.asarray, given.start_states)}
    told = (about.get("world"), about.get("horizon"), about.get("mapped"))
    same = told == (given.world.name, str(given.horizon), "yes" if given.mapped else "no")
    with contextlib.suppress(FileError):  # other shapes
        if same and jax.tree.all(jax.tree.map(np.array_equal, as_tree(path, arrays, states), states)):
            return given
    raise InputError(
        f"assessment: {given.scenarios} start states and {given.horizon} steps in {given.world.name} are not what {path} "
        "holds; give the assessment that the run was trained with"
    )


def _start_states(path: Path, arrays: Arrays, world: AnyWorld) -> Any:
    """The stacked start states [k, ...] in the file of an assessment; where the user could type them, they are checked."""
    one = simulator_for(world).start_template(next(iter(arrays.values())) if len(arrays) == 1 else None)
    count = min((len(x) if x.ndim else 0 for x in arrays.values()), default=0)
    starts = as_tree(path, arrays, {"start": _stacked(one, count)})["start"]
    if not count:
        raise FileError(f"{path}: holds no start states")
    if len(arrays) == 1:
        (states,) = arrays.values()
        try:
            given_states(world, [tuple(state) for state in states.reshape(count, -1).tolist()])
        except InputError as error:
            raise FileError(f"{path}: {reason(error)}") from error
    return starts


def save_evaluator(path: Path, learnt: LearntEvaluator, config: TrainConfig, seed: int | None = None) -> None:
    """Write an evaluator with what identifies it; without a seed, it was fitted to all seeds of a run."""
    policies = len(jax.tree.leaves(learnt.remembered)[0])
    about = {"kind": "evaluator", "world": config.world, "remembered": str(policies)}
    if learnt.knowledge is not None:
        about["known"] = " ".join(str(len(jax.tree.leaves(part)[0])) for part in _parts(learnt.knowledge))
    save_tree(path, jax.device_get(learnt), about | written_by(config, seed) | _network(config))


def load_evaluator(
    path: Path,
    config: TrainConfig,
    assessment: Assessment,
    seed: int | None = None,
    setting: str = "evaluator.file",
) -> LearntEvaluator:
    """Read an evaluator; one of another world, another network or other scenarios is refused.

    With a seed, so is one that is not that seed's own in the run with this configuration. `setting` is what the user named the
    file with, for messages.
    """
    arrays, about = load_arrays(path)
    if seed is not None:
        check_own(path, about, "evaluator", config, seed)
    if about.get("kind") != "evaluator":
        raise FileError(f"{path}: does not hold an evaluator")
    if about.get("world") != config.world:
        raise InputError(f"{setting}: {path} was trained in {about.get('world')}, not in {config.world}")
    for name, value in _network(config).items():
        if about.get(name, "start" if name == "probes" else None) != value:  # earlier files had no probes to learn
            raise InputError(f"{setting}: {path} has {name} {about.get(name)}, the configuration {value}")
    _check_scenarios(path, arrays, assessment, setting)
    learnt = as_tree(path, arrays, _evaluator_template(path, about, config, assessment))
    check_finite(path, learnt)
    return jax.tree.map(jnp.asarray, learnt)


def _check_scenarios(path: Path, arrays: Arrays, assessment: Assessment, setting: str) -> None:
    """Refuse an evaluator of an assessment with other start states."""
    scenarios, kept = np.asarray(assessment.observations()), arrays.get("scenarios", np.empty(0))
    if kept.shape != scenarios.shape:
        k, other = scenarios.shape[0], len(kept) if kept.ndim else 0
        raise InputError(f"{setting}: {path} is for an assessment of {other} scenarios, this one has {k}")
    if not np.array_equal(kept, scenarios):
        raise InputError(f"{setting}: {path} is for other start states; train with its assessment, --assessment.file")


def _evaluator_template(
    path: Path, about: dict[str, str], config: TrainConfig, assessment: Assessment
) -> LearntEvaluator:
    """Shapes and dtypes of an evaluator file with these texts beside its arrays."""
    policies = about.get("remembered", "")
    if not (policies.isdecimal() and policies.isascii() and len(policies) < 10):
        raise FileError(f"{path}: does not say how many policies it was fitted to")
    evaluator, state = _evaluator_of(config, assessment)
    return LearntEvaluator(
        state=state,
        scenarios=evaluator.scenarios,
        remembered=_stacked(evaluator.behaviour, int(policies)),
        lowest=evaluator.behaviour,
        highest=evaluator.behaviour,
        batch_mean=jnp.zeros(()),
        knowledge=_knowledge_template(path, about, evaluator.behaviour),
    )


@functools.lru_cache(maxsize=4)
def _evaluator_of(config: TrainConfig, assessment: Assessment) -> tuple[Evaluator, Any]:
    """The evaluator of a configuration, and shapes and dtypes of its state; traced once for all seeds of a run."""
    fitted = dataclasses.replace(config.evaluator, file=None)
    colearned = dataclasses.replace(config, evaluator_mode="colearned", evaluator=fitted)
    evaluator = make_learner(colearned, assessment).evaluator
    assert evaluator is not None
    return evaluator, jax.eval_shape(evaluator.init, jax.random.PRNGKey(0))


def _knowledge_template(path: Path, about: dict[str, str], behaviour: Any) -> Knowledge | None:
    """Shapes and dtypes of what an evaluator with a diverse memory knows; None for any other."""
    if "known" not in about:
        return None
    counts = about["known"].split(" ")
    if len(counts) != 3 or not all(text.isdecimal() and text.isascii() and len(text) < 10 for text in counts):
        raise FileError(f"{path}: does not say how many policies it knows")
    fitted, held_out, earlier = map(int, counts)

    def known(count: int) -> Known:
        numbers: Any = jax.ShapeDtypeStruct((count,), jnp.float32)
        return Known(_stacked(behaviour, count), numbers, numbers)

    return Knowledge(known(fitted), known(held_out), _stacked(behaviour, earlier))


def _parts(knowledge: Knowledge) -> tuple[Known, Known, Any]:
    return knowledge.others, knowledge.held_out, knowledge.earlier


def _stacked(shapes: Any, count: int) -> Any:
    """Shapes of `count` pytrees stacked along a new first axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), shapes)


def _network(config: TrainConfig) -> dict[str, str]:
    settings = dataclasses.asdict(config.evaluator.network)
    shown = {name: getattr(config.assessment, name) for name in ("behaviour", "probes")}
    return shown | {f"network.{name}": str(x) for name, x in settings.items()}
