"""Policies to be assessed: from a file of a run, from a checkpoint, or a Python function of the user."""

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from evarl.agents.actor_critic import PolicyState
from evarl.errors import FileError, InputError
from evarl.runs.checks import check_finite
from evarl.runs.run import Run
from evarl.simulation.rollouts import Act
from evarl.storage.tensors import load_arrays
from evarl.worlds.spaces import Box
from evarl.worlds.world import AnyWorld, Key

IN_CHECKPOINT = "agent/policy/"


def read_policy(run: Run, path: Path, index: int = 0) -> PolicyState:
    """The parameters of a policy for this run's agent, from a policy file or the index-th seed of a checkpoint."""
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
    environments = run.config.environments
    wanted = jax.eval_shape(lambda key: run.learner.agent.init(key, environments).policy, jax.random.PRNGKey(0))
    leaves, structure = jax.tree_util.tree_flatten_with_path(wanted)
    named = {jax.tree_util.keystr(where, simple=True, separator="/"): leaf for where, leaf in leaves}
    for name in sorted(named.keys() | arrays.keys()):
        here, there = _shape(named.get(name)), _shape(arrays.get(name))
        if here != there:
            raise InputError(
                f"policy: {path} does not fit this run's agent: {name} is {there} there and {here} here; "
                "must be a policy with the same networks"
            )
    policy = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in named])
    check_finite(path, policy)
    return policy


def import_policy(name: str, world: AnyWorld) -> Act:
    """The function `f(key, observations) → (actions, log-probabilities or None)` that the user names as module:name.

    The module is searched in the current directory first. Actions are in the policy's units: whole numbers, or numbers
    that are −1 and 1 at the bounds. The function is traced with abstract arrays, so that errors are found before it runs.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
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
        action = jnp.asarray(action)
        return action, jnp.zeros(observation.shape[0]) if log_prob is None else log_prob

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
    return act


def _shape(leaf: Any) -> str:
    return "missing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
