"""Estimates of memory, disk space and time from below, made before anything is allocated or compiled. No JAX.

An estimate counts the least that the settings need. What it accepts may still be too large; the compiler's own account of
its buffers (`evarl.runs.groups`) then shows it.
"""

import os
import resource
import shutil
from pathlib import Path
from typing import Any

from evarl.errors import InputError
from evarl.ranges import whole

SHARE = 0.8
"""Part of the free memory that may be used."""
LOOP_SECONDS = 1e-5
"""Least time of one iteration of a compiled loop."""
LONGEST = 3600.0
"""Greatest least time of work that cannot be stopped and resumed, in seconds."""
RUN_BYTES = 64 * 2**10
"""Memory that a report needs for one seed of a reproduction."""
WORKER_BYTES = 200 * 2**20
"""Memory of a process that has imported JAX."""
START_BYTES, START_ADDRESSES = 300 * 2**20, 3 * 2**30
"""Memory, and addresses where `ulimit -v` limits them, for importing JAX and compiling the smallest program."""


def check_start() -> None:
    """Raise InputError on a machine without memory for the smallest program, where C++ libraries abort silently."""
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY and addresses < START_ADDRESSES:
        raise InputError(
            f"memory: this process may have {_gib(addresses)} of addresses (ulimit -v), and JAX alone reserves some "
            f"{_gib(START_ADDRESSES)}; raise the limit"
        )
    if (free := free_memory()) < START_BYTES:
        raise InputError(f"memory: {_gib(free)} are free, and JAX alone takes {_gib(START_BYTES)}; make room")


def total_memory() -> int:
    """Memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory() -> int:
    """Bytes that a new program may use without swapping, within the limits of a container or `ulimit`."""
    limits = [total_memory()]
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) * 1024)
    group = next((line[3:] for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    for folder, most, now in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        (f"/sys/fs/cgroup{group.rstrip('/')}", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = _read(f"{folder}/{most}").strip(), _read(f"{folder}/{now}").strip()
        if limit.isdigit() and used.isdigit():
            limits.append(int(limit) - int(used))
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _read("/proc/self/statm").split()
    if addresses != resource.RLIM_INFINITY and pages:
        limits.append(addresses - int(pages[0]) * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(limits))


def check_memory(name: str, value: object, needed: float, what: str) -> None:
    """Raise InputError if a setting needs more bytes of memory than are free; `what` says for what."""
    free = SHARE * free_memory()
    if needed > free:
        raise InputError(
            f"{name}: {value} is not allowed; {what} takes at least {_gib(needed)} of memory, and {_gib(free)} can be used "
            "here; must be less"
        )


def check_time(name: str, value: object, loops: float, what: str) -> None:
    """Raise InputError if a setting asks for so many iterations that work which cannot be resumed takes hours."""
    seconds = loops * LOOP_SECONDS
    if seconds > LONGEST:
        raise InputError(
            f"{name}: {value} is not allowed; {what} takes at least {seconds / 3600:.3g} hours, and cannot be stopped and "
            "resumed; must be less"
        )


def check_disk(name: str, value: object, needed: float, folder: Path) -> None:
    """Raise InputError if a setting needs more bytes on the disk of `folder` than are free."""
    while not os.path.isdir(folder) and folder != folder.parent:  # False for names that are too long, unlike Path's
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{name}: {value} is not allowed; files take at least {_gib(needed)}, and {_gib(free)} are free in {folder}; "
            "must be less"
        )


def check_rollouts(name: str, rollouts: int, states: int = 1, least: int = 1) -> None:
    """Raise InputError if the returns of `rollouts` rollouts from each of `states` states do not fit into memory."""
    whole(name, rollouts, least=least)
    whole("states", states)
    check_memory(name, rollouts, 32.0 * rollouts * states, "the returns of all rollouts")


def check_states(name: str, states: int, world: Any) -> None:
    """Raise InputError if the observations of so many states do not fit into memory."""
    whole(name, states)
    needed = float(states) * (observation_bytes(world.observation_space) + 16)
    check_memory(name, states, needed, "the observations of these states")


def check_environments(world: Any, environments: float) -> None:
    """Raise InputError if so many environments on the host do not fit into memory."""
    check_memory("environments", environments, float(environments) * world.environment_bytes, "the environments")


def check_assessment(world: Any, scenarios: int, horizon: int, replicates: int) -> None:
    """Raise InputError if `horizon` steps of `scenarios` × `replicates` rollouts do not fit into memory."""
    whole("replicates", replicates)
    count = float(scenarios) * replicates
    needed = count * horizon * (observation_bytes(world.observation_space) + 13)
    needed += count * world.environment_bytes
    name, value = "assessment.scenarios × horizon × replicates", f"{scenarios} × {horizon} × {replicates}"
    check_memory(name, value, needed, "an assessment")
    check_time(name, value, horizon, "an assessment")


def check_reproduction(seeds: int, conditions: int) -> None:
    """Raise InputError if a report of so many seeds of each condition does not fit into memory."""
    whole("seeds", seeds)
    what = f"a report of {seeds * conditions} runs" if conditions else "a report"
    check_memory("seeds", seeds, float(RUN_BYTES) * seeds * max(1, conditions), what)


def check_workers(workers: int, jobs: int) -> None:
    """Raise InputError if so many processes do not fit into memory."""
    whole("workers", workers)
    check_memory("workers", workers, float(WORKER_BYTES) * min(workers, jobs), "as many processes")


def observation_bytes(space: Any) -> int:
    """Size of one observation."""
    return int(space.size) * (1 if space.dtype in ("bool", "uint8") else 4)


def matrix_entries(*sizes: int) -> float:
    """Entries of the matrices between layers of these sizes, and of one to a single output."""
    return float(sum(one * other for one, other in zip(sizes, (*sizes[1:], 1), strict=True)))


def _gib(count: float) -> str:
    return f"{count / 2**30:.3g} GiB"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
