"""Policies as files of StableHLO, which run without evarl wherever JAX or XLA does."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from evarl.runs.acting import Acting
from evarl.storage.files import write_bytes

PLATFORMS = ("cpu", "cuda", "tpu")


def export_policy(path: Path, acting: Acting, policy: Any, deterministic: bool = True) -> Path:
    """Write a policy as a program from observations [N, ...] to actions [N, ...], both in the environment's own spaces.

    N is any number; standardisation of observations and the bounds of actions are part of the program. A policy that draws
    takes a key, uint32[2], as a second argument. `jax.export.deserialize` reads the file.
    """
    (size,) = export.symbolic_shape("N")
    observation = jax.ShapeDtypeStruct((size, *acting.own.observation_shape), acting.input_dtype)
    parameters = jax.tree.map(jnp.asarray, policy)

    def likeliest(observation: jax.Array) -> jax.Array:
        return acting.likeliest(parameters, observation)

    def drawn(observation: jax.Array, key: jax.Array) -> jax.Array:
        nothing = jnp.zeros((), jnp.int32)
        return acting.drawn(parameters, observation, key, nothing, nothing)

    made = export.export(jax.jit(likeliest if deterministic else drawn), platforms=PLATFORMS)
    exported = made(observation) if deterministic else made(observation, jax.ShapeDtypeStruct((2,), np.uint32))
    write_bytes(path, bytes(exported.serialize()))
    return path
