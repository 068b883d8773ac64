"""What this machine offers: memory, and a place to keep compiled programs."""

import os
from pathlib import Path

import jax

SHARE = 0.8
"""Part of the free memory that a run may plan to use."""


def free_memory() -> int:
    """Bytes that a new program may use without swapping, under the limits of a container if there is one."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) * 1024)
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        limits.append(int(limit) - int(used))
    return min(limits)


def keep_compiled_programs() -> None:
    """Turn on JAX's persistent compilation cache unless the user has already chosen a place for it."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(base) / "evarl" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
