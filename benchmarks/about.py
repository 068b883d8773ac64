"""Where and of what figures were taken: without that they say little."""

import datetime
import os
import platform
from pathlib import Path
from typing import Any

from evarl.runs.provenance import commit, versions


def about() -> dict[str, Any]:
    """Machine, versions, date, and how busy the machine is at the beginning."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions(),
        "commit": commit(),
        "load_at_begin": os.getloadavg(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
