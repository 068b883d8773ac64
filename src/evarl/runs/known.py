"""Keys of what runs keep for one another: they must stand for everything that it depends on."""

import hashlib
import json
import os
from typing import Any

import jax

from evarl.agents.configuration import ALGORITHMS, NETWORKS as TORSOS
from evarl.assessment.configuration import BEHAVIOURS, behaviour_names
from evarl.evaluators.configuration import NETWORKS
from evarl.learning.configuration import TrainConfig
from evarl.runs.provenance import machine, source, versions
from evarl.worlds.registry import own_names
from evarl.worlds.world import AnyWorld

NUMERICAL = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable", "jax_default_matmul_precision")
"""Settings of JAX that decide what a program computes."""
KNOWN = ("evarl", "gymnax", "brax")
"""Packages of worlds, whose versions stand for their code."""


def known_code(config: TrainConfig) -> bool:
    """Whether what a configuration names is this package's or its dependencies' code, so that versions can stand for it."""
    named = {
        ALGORITHMS: (config.agent.algorithm,),
        TORSOS: (config.agent.network,),
        NETWORKS: (config.evaluator.network.kind,),
        BEHAVIOURS: behaviour_names(config.assessment.behaviour),
    }
    builtin = all(registry.builtin(name) for registry, names in named.items() for name in names)
    worlds = (config.world, config.assessment.world or config.world)
    return builtin and not any(":" in name or name in own_names() for name in worlds)


def known_world(world: AnyWorld) -> bool:
    """Whether the code of a world, and of the environment of another package in it, belongs to KNOWN packages."""
    parts = world, getattr(world, "environment", world)
    return all(type(part).__module__.partition(".")[0] in KNOWN for part in parts)


def key_for(about: Any) -> str:
    """A digest of plain data, of all code and its versions, and of what decides how numbers are rounded."""
    settings = {name: str(getattr(jax.config, name, None)) for name in NUMERICAL}
    rounding = os.environ.get("XLA_FLAGS"), jax.default_backend(), settings
    return hashlib.sha256(json.dumps([about, source(), versions(), machine(), rounding]).encode()).hexdigest()[:32]
