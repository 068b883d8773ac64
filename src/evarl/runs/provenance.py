"""Of what code and machine results are: versions of packages, the commit, the processor. No JAX."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = ("evarl", "jax", "jaxlib", "flax", "optax", "numpy", "gymnax", "brax", "gymnasium")


def versions() -> dict[str, str | None]:
    """Of Python and of the packages that numbers depend on; None for those that are not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def commit() -> str | None:
    """The commit of the source tree this package runs from, marked when it has uncommitted changes; None elsewhere."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        call = ["git", "-C", str(here), *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, str | int | None]:
    """What the numbers were computed on, as far as speed depends on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": _processor(), "cores": cores, "system": platform.system()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
