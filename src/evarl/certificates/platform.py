"""The platform that the bits of results depend on: instruction set, libraries and settings of JAX."""

import os
import platform
import re
from pathlib import Path

import jax

from evarl.runs.provenance import machine

SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_default_matmul_precision",
    "jax_platforms",
)
"""Settings of JAX that change random numbers or rounding."""
VECTOR = re.compile(r"^(avx|amx|fma|f16c|sse4|asimd|sve|neon)")


def platform_here() -> dict[str, str]:
    """The platform of this process; results are compared bit by bit only between equal platforms.

    >>> platform_here()["jax_enable_x64"]
    'False'
    """
    found = {
        "architecture": platform.machine(),
        "instruction set": _instruction_set(),
        "cores": str(machine()["cores"]),
    }
    found |= {"jaxlib": jax.lib.__version__, "XLA_FLAGS": _flags()}
    return found | {name: str(getattr(jax.config, name, None)) for name in SETTINGS}


def differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """The differences between two platforms, one line each."""
    return [f"{name} was {then.get(name)!r:.80}, is {now[name]!r:.80}" for name in now if then.get(name) != now[name]]


def _flags() -> str:
    """XLA's flags in alphabetical order, without those about files."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    return " ".join(sorted(flag for flag in set(flags) if not flag.startswith("--xla_dump")))


def _instruction_set() -> str:
    """Names of the vector instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    words = next(
        (line.split(":", 1)[1].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    return " ".join(sorted(word for word in words if VECTOR.match(word)))
