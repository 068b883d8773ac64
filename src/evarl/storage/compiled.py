"""JAX's persistent cache of compiled programs, and how they are started."""

import contextlib
import os
import warnings
from typing import Any

import jax

from evarl.storage.files import cache_folder

RUN_ONCE: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""Compiler options for a program that runs a few times: it compiles in a quarter of the time."""


def keep_compiled_programs() -> None:
    """Switch on the persistent cache of compiled programs, unless the user has already chosen a folder for it.

    JAX writes entries in place. One that another process is still writing, or was killed while writing, is cut short: JAX
    warns and compiles the program again, and nobody needs to know.
    """
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry", UserWarning)
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def run_programs_inline() -> None:
    """Let the CPU run programs in the thread that calls them, if JAX has not begun to use it yet.

    By default they are handed to another thread, which for the few microseconds that a small policy takes costs more than the
    policy. Results are the same. For worlds on the host, where every step is a call; JAX reads the setting only once.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def split_processor(seeds: int) -> None:
    """Let JAX see the processor as several devices over which so many seeds can be spread, if it has not begun to use it yet.

    Programs of small networks keep one core busy. As many devices as there are cores, each with equally many seeds, use all of
    them. Where a user has set a number of devices, nothing changes.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    devices = max((count for count in range(1, min(seeds, cores) + 1) if seeds % count == 0), default=1)
    if devices > 1 and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # JAX is in use already
            jax.config.update("jax_num_cpu_devices", devices)
