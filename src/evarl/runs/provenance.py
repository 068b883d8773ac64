"""Provenance of results: versions of packages, the source, the commit, the processor. No JAX."""

import functools
import hashlib
import importlib.resources
import os
import platform
import subprocess
from pathlib import Path

from evarl.storage.files import version

PACKAGES = ("evarl", "jax", "jaxlib", "flax", "optax", "numpy", "gymnax", "brax", "gymnasium")
SOURCE = {".py", ".html", ".css", ".js"}


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that results depend on; None for those that are not installed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


@functools.cache
def source() -> str:
    """SHA-256 of this package's modules and templates, which are read once."""
    package = Path(str(importlib.resources.files("evarl")))
    digest = hashlib.sha256()
    for path in sorted(one for one in package.rglob("*") if one.suffix in SOURCE):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def commit() -> str | None:
    """The commit of the source tree, with "+changes" if some are not committed; None outside of a repository."""
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
    """The processor, the number of cores and the operating system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": _processor(), "cores": cores, "system": platform.system()}


def can_repeat(there: dict[str, str | int | None] | None, here: dict[str, str | int | None]) -> bool:
    """Whether what was computed on a machine has the same bits here: it is like this one, and has no more cores.

    A process can be confined to fewer cores than there are, but not given more.

    >>> can_repeat({"processor": "P", "cores": 1}, {"processor": "P", "cores": 2})
    True
    """
    if not there or there | {"cores": None} != here | {"cores": None}:
        return there == here
    most, needed = here.get("cores"), there.get("cores")
    return needed == most or (isinstance(needed, int) and isinstance(most, int) and needed < most)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
