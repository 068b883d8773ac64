"""Inputs of measurements: runs, random keys, and policies of runs, of files, or made by a Python function of the user."""

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from evarl.assessment.behaviour import Policy
from evarl.errors import FileError, InputError
from evarl.ranges import MOST, whole
from evarl.runs.checks import check_finite
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.simulation.rollouts import Act
from evarl.storage.tensors import as_tree, load_arrays
from evarl.worlds.spaces import Box
from evarl.worlds.world import AnyWorld, Key

IN_CHECKPOINT = "agent/policy/"


def opened(run: Run | str | Path) -> Run:
    """The run, or the run in a directory, with compiled programs kept for the next measurement."""
    keep_compiled_programs()
    return run if isinstance(run, Run) else Run.load(run)


def root_key(random_seed: int) -> Key:
    """The key from which everything random in a measurement is derived; no key of training is derived from it."""
    whole("random-seed", random_seed, least=-MOST)
    return jax.random.fold_in(jax.random.PRNGKey(random_seed), 2**31 - 1)


def _unknown(observation: Array) -> Any:
    raise InputError("behaviour: this kind requires the action probabilities of the policy, which are not known")


class AssessedPolicy(NamedTuple):
    """A policy as measurements need it; as `Partial`s of parameters, policies share one compilation."""

    act: Act
    distribution: Policy = Partial(_unknown)
    """π(· | observations), for kinds of behaviour that need it."""


def agent_policy(run: Run, parameters: Any) -> AssessedPolicy:
    """A policy of the run's agent."""
    agent = run.learner.agent
    return AssessedPolicy(Partial(agent.act, parameters), Partial(agent.distribution, parameters))


def read_policy(run: Run, path: Path, index: int = 0) -> AssessedPolicy:
    """A policy of the run's agent with parameters from a policy file, or of the index-th seed of a checkpoint."""
    arrays, about = load_arrays(path)
    if about.get("kind") == "checkpoint":
        stacked = {name.removeprefix(IN_CHECKPOINT): x for name, x in arrays.items() if name.startswith(IN_CHECKPOINT)}
        seeds = {len(x) if x.ndim else 0 for x in stacked.values()}
        if len(seeds) != 1:
            raise FileError(f"{path}: holds no policy")
        (count,) = seeds
        if not 0 <= index < count:
            raise InputError(
                f"policy-seed: {index} is not allowed; must be 0 to {count - 1}, the seeds that {path} holds"
            )
        arrays = {name: x[index] for name, x in stacked.items()}
    elif about.get("kind") != "policy":
        raise FileError(f"{path}: is of kind {about.get('kind')}; expected a policy or a checkpoint")
    try:
        parameters = as_tree(path, arrays, run.policy_shapes)
    except FileError as error:
        raise InputError(f"policy: {error}; its networks must be those of this run") from error
    check_finite(path, parameters)
    return agent_policy(run, parameters)


def import_policy(name: str, world: AnyWorld) -> AssessedPolicy:
    """The function `f(key, observations) → (actions, log-probabilities or None)` that the user names as module:name.

    The module is searched in the current directory first. Actions are in the policy's units: whole numbers, or numbers
    that are −1 and 1 at the bounds. The function is traced with abstract arrays, so that errors are found before it runs.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InputError(f"policy-import: '{name}' is not allowed; must be module:name")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        raise InputError(f"policy-import: '{name}' cannot be imported ({_brief(error)})") from error
    if not callable(function):
        raise InputError(f"policy-import: '{name}' is a {type(function).__name__}; must be f(key, observations)")

    def act(key: Key, observation: Array) -> tuple[Array, Array]:
        action, log_prob = function(key, observation)
        return jnp.asarray(action), jnp.zeros(observation.shape[0]) if log_prob is None else log_prob

    space, count = world.observation_space, 3
    abstract = jax.ShapeDtypeStruct((count, *space.shape), np.dtype(space.dtype))
    try:
        action, _ = jax.eval_shape(act, jax.random.PRNGKey(0), abstract)
    except Exception as error:
        raise InputError(
            f"policy-import: '{name}' does not work on a key and observations {_shape(abstract)} inside a compiled "
            f"program; must return (actions, log-probabilities or None) made by jax.numpy ({_brief(error)})"
        ) from error
    wanted = (count, world.action_space.size) if isinstance(world.action_space, Box) else (count,)
    kind = np.floating if isinstance(world.action_space, Box) else np.integer
    if action.shape != wanted or not jnp.issubdtype(action.dtype, kind):
        raise InputError(
            f"policy-import: '{name}' gives actions {_shape(action)} for {count} observations; "
            f"must be {kind.__name__}{list(wanted)}"
        )
    return AssessedPolicy(Partial(act))


def _shape(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
