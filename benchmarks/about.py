"""Where and of what figures were taken: without that they say little."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.race import ROOT


def about() -> dict[str, Any]:
    """Machine, versions, date, and how busy the machine is at the beginning."""
    packages = ("jax", "jaxlib", "flax", "optax", "gymnax", "brax", "evarl")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
        "commit": _commit(),
        "load_at_begin": os.getloadavg(),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    """The commit, with a plus if files have changed since."""
    try:
        said = [
            subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return said[0] + ("+" if said[1] else "")
