"""JAX's persistent cache of compiled programs."""

import os
import warnings
from pathlib import Path

import jax


def keep_compiled_programs() -> None:
    """Switch on the persistent cache of compiled programs, unless the user has already chosen a folder for it.

    JAX writes entries in place. One that another process is still writing, or was killed while writing, is cut short: JAX
    warns and compiles the program again, and nobody needs to know.
    """
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry", UserWarning)
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(base) / "evarl" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
