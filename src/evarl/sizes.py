"""What settings need of memory, disk and time, estimated from below before anything is allocated or compiled. No JAX.

An estimate counts the least that the settings ask for. What it lets pass may still be too large, and is then noticed by the
compiler's own account of its buffers (`evarl.runs.groups`).
"""

import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evarl.errors import InputError
from evarl.ranges import whole

if TYPE_CHECKING:
    from evarl.learning.configuration import TrainConfig
    from evarl.ope.fqe_configuration import FQEConfig

SHARE = 0.8
"""Part of the free memory that may be planned for."""
LOOP_SECONDS = 1e-5
"""One turn of a compiled loop, at the least."""
LONGEST = 3600.0
"""Seconds that a piece of work may take, by the least estimate, if it cannot be stopped and resumed half-way."""
METRIC_BYTES = 100
"""One row of the metrics, at the least."""
RUN_BYTES = 64 * 2**10
"""What a report keeps in memory of one seed of a reproduction."""
WORKER_BYTES = 200 * 2**20
"""A process that has imported JAX."""


START_BYTES, START_ADDRESSES = 300 * 2**20, 3 * 2**30
"""What importing JAX and compiling the smallest program takes, in memory and, where `ulimit -v` limits them, addresses."""


def check_start() -> None:
    """Refuse a machine on which not even the smallest program would run: libraries in C++ abort there without a word."""
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY and addresses < START_ADDRESSES:
        raise InputError(
            f"memory: this process may have {_gib(addresses)} of addresses (ulimit -v), and JAX alone reserves some "
            f"{_gib(START_ADDRESSES)}; raise the limit"
        )
    if (free := free_memory()) < START_BYTES:
        raise InputError(f"memory: {_gib(free)} are free, and JAX alone takes {_gib(START_BYTES)}; make room")


def total_memory() -> int:
    """Bytes that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory() -> int:
    """Bytes that a new program may use without swapping, under the limits of a container or `ulimit` if there are any."""
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
    """Refuse a setting for which `needed` bytes would have to be allocated, if so many are not free."""
    free = SHARE * free_memory()
    if needed > free:
        raise InputError(
            f"{name}: {value} is not allowed; {what} takes at least {_gib(needed)} of memory, and {_gib(free)} can be used "
            "here; want less"
        )


def check_time(name: str, value: object, loops: float, what: str) -> None:
    """Refuse a setting that asks for so many turns of compiled loops in a piece of work that cannot be resumed."""
    seconds = loops * LOOP_SECONDS
    if seconds > LONGEST:
        raise InputError(
            f"{name}: {value} is not allowed; {what} takes at least {seconds / 3600:.3g} hours, and cannot be stopped and "
            "resumed half-way; want less"
        )


def check_disk(name: str, value: object, needed: float, folder: Path) -> None:
    """Refuse a setting for which `needed` bytes would have to be written, if so many are not free."""
    while not os.path.isdir(folder) and folder != folder.parent:  # False for names that are too long, unlike Path's
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{name}: {value} is not allowed; files take at least {_gib(needed)}, and {_gib(free)} are free in {folder}; "
            "want less"
        )


def check_rollouts(name: str, rollouts: int, states: int = 1, least: int = 1) -> None:
    """Refuse a number of rollouts from each of some states whose returns cannot be held."""
    whole(name, rollouts, least=least)
    whole("states", states)
    check_memory(name, rollouts, 32.0 * rollouts * states, "what is kept of the rollouts")


def check_states(name: str, states: int, world: Any) -> None:
    """Refuse a number of states whose observations cannot be held."""
    whole(name, states)
    check_memory(name, states, float(states) * (_bytes(world.observation_space) + 16), "what is seen at these states")


def check_assessment(world: Any, scenarios: int, horizon: int, replicates: int) -> None:
    """Refuse an assessment whose rollouts cannot be held: `horizon` steps of `scenarios` × `replicates` rollouts."""
    whole("replicates", replicates)
    count = float(scenarios) * replicates
    needed = count * horizon * (_bytes(world.observation_space) + 13)
    needed += count * world.environment_bytes
    name, value = "assessment.scenarios × horizon × replicates", f"{scenarios} × {horizon} × {replicates}"
    check_memory(name, value, needed, "an assessment")
    check_time(name, value, horizon, "an assessment")


def check_training(config: "TrainConfig", world: Any) -> None:
    """Refuse a run that no group of one seed fits into this machine, or that would not come to its first checkpoint.

    The configuration must have been validated.
    """
    agent, space = config.agent, world.observation_space
    batch = float(config.environments) * config.steps
    shown = _bytes(space)
    name, value = "environments × steps", f"{config.environments} × {config.steps}"
    check_memory(name, value, batch * (shown + 18), "a batch")
    needed = float(config.environments) * world.environment_bytes
    check_memory("environments", config.environments, needed, "the environments")
    # parameters, two moments and a gradient of both networks, in 32 bits
    check_memory("agent.hidden-sizes", agent.hidden_sizes, 32 * _weights(space.size, *agent.hidden_sizes), "training")
    if agent.algorithm == "ppo":
        passes = float(agent.ppo.epochs) * agent.ppo.minibatches
        check_time("agent.ppo.epochs", agent.ppo.epochs, passes, "an update")
    check_time("horizon", world.horizon, world.horizon, "an episode")
    check_time("steps", config.steps, config.steps, "an update")
    rows = float(config.updates) * config.seeds
    check_memory("updates × seeds", f"{config.updates} × {config.seeds}", rows * METRIC_BYTES, "the table of metrics")
    if config.evaluator_mode != "none":
        _check_examiner(config, world, batch)


def _check_examiner(config: "TrainConfig", world: Any, batch: float) -> None:
    """The part of `check_training` that evaluation-aware training adds."""
    wanted, network = config.assessment, config.evaluator.network
    given = wanted.file is not None or wanted.start_states or config.world == "navigation"
    scenarios = 1 if given else wanted.scenarios
    check_assessment(world, scenarios, wanted.horizon, wanted.replicates)
    if not given and wanted.base_run is None and world.can_restart:
        loops = float(wanted.base_updates) * config.steps
        check_time("assessment.base-updates", wanted.base_updates, loops, "training the base policy")
    value = f"width {network.width}, {network.layers} layers"
    layers = network.layers if network.kind in ("listing", "pairs") else 1
    weights = _weights(world.observation_space.size, network.width) + 4.0 * layers * network.width**2
    check_memory("evaluator.network", value, 16 * weights, "training")
    check_time("evaluator.network.layers", network.layers, layers * 1e4, "compilation")
    if config.evaluator_mode != "frozen":
        _check_fitting(config, world, batch, scenarios)


def _check_fitting(config: "TrainConfig", world: Any, batch: float, scenarios: int) -> None:
    """The memory of policies, and fits of an evaluator to it."""
    evaluator, shown = config.evaluator, _bytes(world.observation_space)
    kept = min(batch, evaluator.transitions or batch)
    memory = evaluator.policies * (kept * (shown + 4) + 4 * scenarios)
    check_memory("evaluator.policies", evaluator.policies, memory, "the memory of policies")
    rows = (
        max(evaluator.batch_size, evaluator.policies) * 4.0 * (world.observation_space.size + evaluator.network.width)
    )
    check_memory("evaluator.batch-size", evaluator.batch_size, rows, "a batch of queries")
    for name in ("steps", "initial_steps"):
        steps = getattr(evaluator, name)
        check_time(f"evaluator.{name.replace('_', '-')}", steps, steps, "fitting the evaluator")


def check_log(megabytes: float, config: "TrainConfig", world: Any, out: Path) -> None:
    """Refuse a log, or more seeds, than the disk has room for."""
    batch = float(config.environments) * config.steps * (_bytes(world.observation_space) + 18)
    log = min(megabytes * 2**20, batch * config.updates * config.seeds)
    check_disk("log-megabytes", megabytes, log, out)
    policies = 8.0 * _weights(world.observation_space.size, *config.agent.hidden_sizes) * config.seeds
    check_disk("seeds", config.seeds, policies, out)


def check_fit(config: "FQEConfig", refits: int, rows: int, features: int) -> None:
    """Refuse fitted Q evaluation on a log of `rows` transitions that cannot be held or does not come to an end."""
    widest = max(config.hidden_sizes)
    needed = 4.0 * config.batch_size * (features + widest)
    check_memory("fqe.batch-size", config.batch_size, needed, "a batch")
    check_memory("fqe.hidden-sizes", config.hidden_sizes, 16 * _weights(features, *config.hidden_sizes), "a fit")
    check_memory("fqe.action-samples", config.action_samples, 4.0 * config.action_samples * rows, "what is drawn")
    check_time("fqe.steps", config.steps, config.steps, "a fit")
    check_time("fqe-refits", refits, float(refits) * config.steps, "all fits together")


def check_pretraining(config: "TrainConfig", world: Any, policies: int, transitions: int, steps: int) -> None:
    """Refuse to remember more of a run than memory holds, or to fit for hours in one piece."""
    for name, value in {"policies": policies, "transitions": transitions, "steps": steps}.items():
        whole(name, value)
    kept = min(float(transitions), float(config.environments) * config.steps)
    rows = min(policies, config.updates) * kept * config.seeds
    check_memory("policies", policies, rows * (_bytes(world.observation_space) + 4), "what is remembered of them")
    check_time("steps", steps, steps, "fitting the evaluator")


def check_reproduction(seeds: int, conditions: int) -> None:
    """Refuse more seeds than a report can be made of."""
    whole("seeds", seeds)
    what = f"a report of {seeds * conditions} runs" if conditions else "a report"
    check_memory("seeds", seeds, float(RUN_BYTES) * seeds * max(1, conditions), what)


def check_workers(workers: int, jobs: int) -> None:
    """Refuse more processes at a time than memory holds."""
    whole("workers", workers)
    check_memory("workers", workers, float(WORKER_BYTES) * min(workers, jobs), "as many processes")


def _bytes(space: Any) -> int:
    """Of one observation."""
    return int(space.size) * (1 if space.dtype in ("bool", "uint8") else 4)


def _weights(*sizes: int) -> float:
    """Entries of the matrices between layers of these sizes, and of one to a single number."""
    return float(sum(one * other for one, other in zip(sizes, (*sizes[1:], 1), strict=True)))


def _gib(count: float) -> str:
    return f"{count / 2**30:.3g} GiB"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
