"""`make ope-coverage`: how often the intervals of off-policy estimates contain the exact value, and what is said where not.

Every registered method is asked about the worlds of `benchmarks.ope_coverage_cases`, many times each. Results are written after
every block of repetitions; a run that was stopped goes on where it was, unless the package has changed. After a change that
should not matter, `--recheck-blocks N` repeats N blocks at random and goes on if they are the same.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.about import about
from benchmarks.ope_coverage_cases import CASES, Case, contribution_range
from benchmarks.ope_coverage_table import full_table, page_text
from benchmarks.race import ROOT
from evarl import ope
from evarl.report.markdown import fill_page
from evarl.storage.files import write_bytes

PAGE = ROOT / "docs" / "ope.md"
FIGURES = ROOT / "results" / "benchmarks" / "ope-coverage.json"
TRAJECTORIES, CONFIDENCE = 200, 0.95
SLOW = (
    ("dr", "wdr", "magic", "switch-dr", "dr-os"),
    ("fqe",),
    ("fqe-linear", "mrdr"),
    ("fqe-greedy-huber",),
    ("dualdice",),
)
"""Groups of methods that take longer than others; those of the first share the fits of their models."""
BLOCK = 20
"""Repetitions of a job, after which results are written."""
NETWORK: dict[int, dict[str, Any]] = {
    5: {"steps": 600, "target_interval": 40},
    50: {"steps": 1000, "target_interval": 5},
}
"""Fitted Q evaluation by the horizon: at least as many backups as steps, of a small network that sees the time."""
SMALL = {"hidden_sizes": (16,), "learning_rate": 1e-2, "batch_size": 64, "time_feature": True}
DICE = {"hidden_sizes": (16,), "steps": 200}
REFITS = 4
WORKERS = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "compiled-coverage"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Environment of the processes: one thread each, and programs that are compiled once for all."""


@dataclasses.dataclass(frozen=True)
class Job:
    """Some repetitions of some methods in one world."""

    case: Case
    methods: tuple[str, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name under which its results are kept."""
        return f"{self.case.name} | {' '.join(self.methods)} | {self.first}–{self.last}"


def settings(method: str, case: Case, seed: int) -> ope.Settings:
    """Settings of one estimate; options that this version of the package does not have are left out."""
    known = {field.name for field in dataclasses.fields(ope.Settings)}
    wanted: dict[str, Any] = {
        "confidence": CONFIDENCE,
        "resamples": 400,
        "range": contribution_range(case.world, method),
        "fqe": _with_options(ope.FQEConfig(), SMALL | NETWORK[case.horizon]),
        "fqe_refits": REFITS,
        "random_seed": seed,
    }
    if "dice" in known:
        wanted["dice"] = _with_options(ope.Settings().dice, DICE)  # type: ignore[attr-defined]
    return ope.Settings(**{name: value for name, value in wanted.items() if name in known})


def _with_options(config: Any, options: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{name: value for name, value in options.items() if name in known})


def truth(case: Case, found: ope.Estimate) -> float:
    """The exact J of what the estimate says that it is of: which policy, and over the logged steps or without a limit."""
    said = getattr(found, "estimand", "")
    world = case.world.of_most_probable_actions if "most probable" in said else case.world
    return world.endless_value if "without a time limit" in said else world.value


def run_job(job: Job) -> dict[str, dict[str, Any]]:
    """Counts by method."""
    counts: dict[str, dict[str, Any]] = {}
    policy = job.case.world.policy
    for number in range(job.first, job.last):
        log = job.case.world.log(TRAJECTORIES, [CASES.index(job.case), number])
        for method in job.methods:
            of_method = counts.setdefault(
                method,
                {"runs": 0, "warned": 0, "errors": {}, "bias": 0.0, "square": 0.0, "intervals": {}, "seconds": 0.0},
            )
            began = time.process_time()
            _count(of_method, job.case, method, number, (log, policy))
            of_method["seconds"] += time.process_time() - began
    return counts


def _count(
    counts: dict[str, Any], case: Case, method: str, number: int, given: tuple[ope.Log, ope.TargetPolicy]
) -> None:
    """Add one run of a method."""
    counts["runs"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ope.estimate(*given, settings(method, case, number), (method,))[method]
    except Exception as error:  # one method that fails must not end the others
        said = f"{type(error).__name__}: {error}"[:120]
        counts["errors"][said] = counts["errors"].get(said, 0) + 1
        return
    exact, warned = truth(case, found), bool(found.warnings)
    counts["warned"] += warned
    counts["bias"] += found.value - exact
    counts["square"] += (found.value - exact) ** 2
    for name, interval in found.intervals.items():
        one = counts["intervals"].setdefault(name, {"given": 0, "covered": 0, "missed_unwarned": 0})
        covered = bool(interval.low <= exact <= interval.high)
        one["given"] += 1
        one["covered"] += covered
        one["missed_unwarned"] += not covered and not warned


def digest() -> str:
    """Of everything that results depend on."""
    sources = [ROOT / "benchmarks" / f"ope_{name}.py" for name in ("coverage", "coverage_cases", "worlds")]
    for folder in ("ope", "stats", "bounds"):
        sources += sorted((ROOT / "src" / "evarl" / folder).glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def jobs(cases: tuple[Case, ...], methods: tuple[str, ...], repetitions: int) -> list[Job]:
    """All jobs. Those of one group of methods follow those of another, and all worlds advance together.

    The methods of a job are asked about the same logs, and share fits to them.
    """
    slow = {name for group in SLOW for name in group}
    groups = [tuple(name for name in methods if name not in slow)]
    groups += [tuple(name for name in methods if name in group) for group in SLOW]
    return [
        Job(case, group, first, min(first + BLOCK, repetitions))
        for group in groups
        if group
        for first in range(0, repetitions, BLOCK)
        for case in cases
    ]


def measure(found: dict[str, Any], out: Path, cases: tuple[Case, ...], repetitions: int, processes: int) -> None:
    """Run what is missing in `found`, and write it after every job."""
    context = multiprocessing.get_context("spawn")
    os.environ |= {name: value for name, value in WORKERS.items() if name not in os.environ}
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {
            pool.submit(run_job, job): job
            for job in jobs(cases, tuple(found["methods"]), repetitions)
            if job.name not in found["jobs"]
        }
        began, total = time.perf_counter(), len(waiting)
        for done, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            found["jobs"][waiting[future].name] = future.result()
            write(out, found)
            print(f"{done}/{total} after {time.perf_counter() - began:.0f} s: {waiting[future].name}", flush=True)


def write(out: Path, found: dict[str, Any]) -> None:
    write_bytes(out, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())


def opened(out: Path, methods: tuple[str, ...]) -> dict[str, Any]:
    """Results of a run that was stopped, if it was of the same methods and sources; otherwise none."""
    now = digest()
    if out.exists():
        found: dict[str, Any] = json.loads(out.read_text())
        if found.get("digest") == now and found.get("methods") == list(methods):
            return found
    return {"about": about(), "digest": now, "methods": list(methods), "jobs": {}}


def recheck(out: Path, blocks: int) -> None:
    """Repeat some stored blocks; if their counts are the same, results of other sources count as those of the present ones."""
    found: dict[str, Any] = json.loads(out.read_text())
    before, now = found["digest"], digest()
    known = {job.name: job for job in jobs(CASES, tuple(found["methods"]), 10_000)}
    names = np.random.default_rng(int(now, 16)).permutation([name for name in found["jobs"] if name in known])[:blocks]
    context = multiprocessing.get_context("spawn")
    os.environ |= {name: value for name, value in WORKERS.items() if name not in os.environ}
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        for name, again in zip(names, pool.map(run_job, [known[name] for name in names]), strict=True):
            if list(map(_untimed, again.values())) != list(map(_untimed, found["jobs"][name].values())):
                raise SystemExit(f"{name}: has other counts with the present sources; all must be measured anew")
            print(f"the same: {name}", flush=True)
    found.setdefault("rechecked", []).append({"before": before, "now": now, "blocks": list(names), "about": about()})
    write(out, found | {"digest": now})


def _untimed(counts: dict[str, Any]) -> dict[str, Any]:
    """Counts, with sums of errors to the digits that the order of additions leaves."""
    rounded = {name: float(f"{counts[name]:.6g}") for name in ("bias", "square")}
    return {name: value for name, value in counts.items() if name != "seconds"} | rounded


def main(
    quick: bool = False,
    repetitions: int = 400,
    methods: tuple[str, ...] | None = None,
    processes: int = 2,
    recheck_blocks: int = 0,
    out: Path | None = None,
    page: Path | None = PAGE,
) -> None:
    """Measure, print, and fill in the page.

    Args:
        quick: short horizons and one start state, with 4 repetitions; fills in no page.
        repetitions: of each method in each world.
        methods: those that are measured; all that are registered when not given.
        processes: that run at a time.
        recheck_blocks: repeat so many blocks that were measured before the package changed, and go on if they are the same.
        out: file for the figures.
        page: file that the table is written to.
    """
    asked = tuple(ope.estimators()) if methods is None else methods
    wanted = 4 if quick else repetitions
    cases = tuple(one for one in CASES if one.horizon == 5 and not one.many) if quick else CASES
    out = out or (ROOT / "runs" / "ope-coverage-quick.json" if quick else FIGURES)
    if recheck_blocks:
        recheck(out, recheck_blocks)
    found = opened(out, asked)
    measure(found, out, cases, wanted, processes)
    print(full_table(found))
    if page is not None and not quick:
        fill_page(page, {"coverage": page_text(found)})
        write_bytes(out.with_suffix(".md"), (full_table(found) + "\n").encode())
        print(f"wrote {page} and {out.with_suffix('.md')}")
    print(f"figures in {out}")


if __name__ == "__main__":
    tyro.cli(main)
