"""Inputs of measurements: runs, random keys, and policies of runs, of files, or made by a Python function of the user."""

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from evarl.assessment.behaviour import Policy
from evarl.errors import FileError, InputError
from evarl.policies.acting import ActingOutside
from evarl.policies.outside import Gives, OutsidePolicy, required_parameters
from evarl.policies.wrap import from_numpy, wrap_policy
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


UNKNOWN: Policy = Partial(_unknown)
"""The distribution of a policy of which only actions are known."""


class AssessedPolicy(NamedTuple):
    """A policy as measurements need it; as `Partial`s of parameters, policies share one compilation."""

    act: Act
    distribution: Policy = UNKNOWN
    """π(· | observations), for kinds of behaviour that need it."""
    errors: Callable[[], AbstractContextManager[None]] = Partial(nullcontext)
    """Where it is rolled out, what it raises on the host is raised as an error of this package."""


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
    """The policy that the user names as module:name.

    It is a function `f(key, observations) → (actions, log-probabilities or None)` of JAX, or whatever `imported_outside` makes an
    outside policy of. Actions of a JAX function are in the policy's units: whole numbers, or numbers that are −1 and 1 at the
    bounds. It is traced with abstract arrays, so that errors are found before it runs.
    """
    function = imported(name)
    if (outside := imported_outside(name, function, world)) is not None:
        return outside_policy(outside, world)

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
            f"program; must return (actions, log-probabilities or None) made by jax.numpy, or be a function of observations "
            f"alone ({_brief(error)})"
        ) from error
    wanted = (count, world.action_space.size) if isinstance(world.action_space, Box) else (count,)
    kind = np.floating if isinstance(world.action_space, Box) else np.integer
    if action.shape != wanted or not jnp.issubdtype(action.dtype, kind):
        raise InputError(
            f"policy-import: '{name}' gives actions {_shape(action)} for {count} observations; "
            f"must be {kind.__name__}{list(wanted)}"
        )
    return AssessedPolicy(Partial(act))


def imported(name: str) -> Any:
    """What the user names as module:name; the module is searched in the current directory first."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InputError(f"policy-import: '{name}' is not allowed; must be module:name")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        raise InputError(f"policy-import: '{name}' cannot be imported ({_brief(error)})") from error
    if not (callable(found) or isinstance(found, OutsidePolicy) or hasattr(found, "predict")):
        raise InputError(f"policy-import: '{name}' is a {type(found).__name__}; must be f(key, observations)")
    return found


def imported_outside(name: str, found: Any, world: AnyWorld) -> OutsidePolicy | None:
    """An outside policy, if that is what was imported: one that `evarl.policies` made, a model of Stable-Baselines3, a module of
    PyTorch, or a function of observations alone; None for a function of a key and observations.

    For observations [B, ...] of NumPy the function returns actions, or probabilities of discrete actions [B, A].
    """
    if not (isinstance(found, OutsidePolicy) or hasattr(found, "predict")):
        packages = {one.__module__.partition(".")[0] for one in type(found).__mro__}
        if "torch" not in packages and required_parameters(found) != 1:
            return None
        if "torch" not in packages:
            return from_numpy(found, _gives(name, found, world))
    return wrap_policy(found)


def outside_policy(policy: OutsidePolicy, world: AnyWorld) -> AssessedPolicy:
    """An outside policy in a world."""
    acting = ActingOutside.create(policy, world)
    known = policy.gives == "gaussian" or not isinstance(world.action_space, Box)
    found = AssessedPolicy(Partial(acting.act), errors=Partial(acting.errors))
    return found._replace(distribution=Partial(acting.distribution)) if known else found


def outside_given(run: Run, policy: Any, name: str | None) -> tuple[AssessedPolicy, str] | None:
    """A policy of another package, as it is or as "module:name", and its name; None if neither is given."""
    if policy is not None and name is not None:
        raise InputError("policy and policy-import: only one of them can be given")
    if name is not None:
        return import_policy(name, run.world), name
    if policy is None:
        return None
    outside = wrap_policy(policy)
    return outside_policy(outside, run.world), outside.description


def _gives(name: str, function: Any, world: AnyWorld) -> Gives:
    """What a function of observations gives in a world, by a trial."""
    space = world.observation_space
    seen = np.clip(np.zeros(space.shape), *space.bounds()).astype(space.dtype)
    try:
        found = function(np.stack([seen] * 3))
    except Exception as error:
        raise InputError(
            f"policy-import: '{name}' does not work on observations {space.dtype}{[3, *space.shape]} ({_brief(error)})"
        ) from error
    if isinstance(world.action_space, Box):
        return "gaussian" if isinstance(found, tuple) else "actions"
    return "probabilities" if np.ndim(found) == 2 and np.shape(found) != (3, 1) else "actions"


def _shape(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
