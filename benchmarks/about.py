"""Where and of what figures were taken: without that they say little."""

import datetime
import os
from typing import Any

from evarl.runs.provenance import commit, machine, versions


def about() -> dict[str, Any]:
    """Machine, versions, date, and how busy the machine is at the beginning."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **machine(),
        "versions": versions(),
        "commit": commit(),
        "load_at_begin": os.getloadavg(),
    }
