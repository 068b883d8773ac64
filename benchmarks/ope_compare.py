"""`make ope-compare`: evarl beside SCOPE-RL and d3rlpy, on the same data in one run, into docs/ope-comparison.md.

Both peers run in environments of their own. A peer that is not installed is left out, and the page says so.
"""

import dataclasses
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks import ope as fitted
from benchmarks.about import about
from benchmarks.ope_coverage import TRAJECTORIES
from benchmarks.ope_coverage_cases import Case, contribution_range
from benchmarks.ope_worlds import World
from benchmarks.race import ROOT
from evarl import ope
from evarl.ope.doubly_robust import ModelValues, doubly_robust
from evarl.report.markdown import fill_page, markdown_table
from evarl.storage.files import write_bytes

PAGE = ROOT / "docs" / "ope-comparison.md"
FIGURES = ROOT / "results" / "benchmarks" / "ope-comparison.json"
WEIGHTED = ("tis", "pdis", "wis", "wpdis")
CORRECTED = ("dr", "wdr")
INTERVALS = ("bootstrap", "t", "bernstein", "hoeffding")
ALPHA, RESAMPLES, LONG = 0.05, 400, 1000


@dataclasses.dataclass(frozen=True)
class Logs:
    """Logs [R, N, T] of one world, and Q of a model at every step [R, N, T, A]."""

    world: World
    data: tuple[ope.LoggedData, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """What SCOPE-RL is given: probabilities in place of their logarithms."""
        data, world = self.data, self.world
        state = np.stack([_states(world, one) for one in data])
        action = np.stack([np.asarray(one.action) for one in data])
        steps = np.arange(action.shape[2])
        return {
            "action": action.astype(int),
            "reward": np.stack([np.asarray(one.reward, np.float64) for one in data]),
            "pscore": world.behaviour[state, action],
            "probabilities": world.target[state],
            "q": 0.8 * world.values[1][steps, state],
            "settings": np.array([world.discount, ALPHA, RESAMPLES]),
        }


def _states(world: World, data: ope.LoggedData) -> np.ndarray:
    return np.rint(np.asarray(data.observation, np.float64) @ np.arange(len(world.start))).astype(int)


def short_logs(repetitions: int) -> Logs:
    """Logs of the smooth world of five steps, in which all intervals could hold."""
    world = Case("smooth", 5, False).world
    return Logs(world, tuple(world.sample(TRAJECTORIES, [17, r]) for r in range(repetitions)))


def long_log() -> Logs:
    """One log of a thousand steps of four uniform actions, evaluated for the policy that made it; reward is the action / 3."""
    shape = (1, 4, 1)
    uniform, following, ends = np.full((1, 4), 0.25), np.zeros(shape, int), np.zeros(shape, bool)
    reward = (np.arange(4) / 3).reshape(shape)
    world = World(np.ones(shape), following, reward, ends, np.ones(1), uniform, uniform, LONG, 0.99)
    return Logs(world, (world.sample(TRAJECTORIES, 18),))


def ours(logs: Logs) -> dict[str, Any]:
    """The answers of evarl: values, ends of the intervals and seconds, by method."""
    answers: dict[str, Any] = {}
    arrays, world = logs.arrays(), logs.world
    for method in WEIGHTED:
        settings = ope.Settings(resamples=RESAMPLES, confidence=1 - ALPHA, range=contribution_range(world, method))
        found, began = [], time.perf_counter()
        for data in logs.data:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(ope.estimate(ope.Log(data, world.discount), world.policy, settings, (method,))[method])
        answers[method] = {
            "seconds": time.perf_counter() - began,
            "values": [one.value for one in found],
            "intervals": {
                name: [[one.intervals[name].low, one.intervals[name].high] for one in found if name in one.intervals]
                for name in INTERVALS
                if any(name in one.intervals for one in found)
            },
        }
    for method in CORRECTED:
        values = []
        for r, data in enumerate(logs.data):
            q, probabilities = arrays["q"][r], arrays["probabilities"][r]
            taken = np.take_along_axis(q, arrays["action"][r][..., None], axis=2)[..., 0]
            model = ModelValues(taken.astype(np.float32), (q * probabilities).sum(axis=2).astype(np.float32))
            steps = ope.Log(data, world.discount).steps(world.policy)
            values.append(float(doubly_robust(steps, model, self_normalised=method == "wdr").value))
        answers[method] = {"values": values, "intervals": {}}
    return answers


def theirs(logs: Logs, python: Path) -> dict[str, Any]:
    """The answers of SCOPE-RL."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "log.npz", Path(folder) / "answers.json"
        np.savez(given, **logs.arrays())
        script = Path(__file__).parent / "peers" / "ope_scope.py"
        subprocess.run([str(python), str(script), str(given), str(out)], check=True)
        answers: dict[str, Any] = json.loads(out.read_text())
        return answers


def coverage(answers: Mapping[str, Any], exact: float) -> dict[str, float]:
    """The share of intervals that contain the exact value, by name."""
    shares = {}
    for name, ends in answers["intervals"].items():
        low, high = np.array(ends).T
        shares[name] = float(np.mean((low <= exact) & (exact <= high)))
    return shares


def width(answers: Mapping[str, Any], interval: str) -> float:
    """The mean width of an interval; NaN where it is not given."""
    ends = answers["intervals"].get(interval)
    return float(np.mean(np.diff(np.array(ends), axis=1))) if ends else float("nan")


def compare_with_scope(python: Path, repetitions: int) -> dict[str, Any]:
    """Values, coverages and widths of the same logs, by both."""
    short, far = short_logs(repetitions), long_log()
    mine, other = ours(short), theirs(short, python)
    mine_far, other_far = ours(far), theirs(far, python)
    versions = other.pop("versions")
    methods = {}
    for name in (*WEIGHTED, *CORRECTED):
        apart = np.abs(np.array(mine[name]["values"]) - np.array(other[name]["values"])).max()
        sides = {"evarl": mine[name], "SCOPE-RL": other[name]}
        methods[name] = {
            "largest_difference": float(apart),
            "coverage": {side: coverage(one, short.world.value) for side, one in sides.items()},
            "width": {side: {i: width(one, i) for i in one["intervals"]} for side, one in sides.items()},
            "given": {i: len(ends) / repetitions for i, ends in mine[name]["intervals"].items()},
            "seconds": {side: one.get("seconds") for side, one in sides.items()},
            "long": {"evarl": mine_far[name]["values"][0], "SCOPE-RL": other_far[name]["values"][0]},
        }
    returns = np.asarray(far.data[0].reward, np.float64) @ far.world.discount ** np.arange(LONG)
    world = {"exact": short.world.value, "long_mean_return": float(returns.mean()), "logs": repetitions}
    return {"versions": versions, "world": world, "methods": methods}


def answers_text(found: dict[str, Any] | None) -> str:
    """Markdown: the same data, by both."""
    if found is None:
        return "SCOPE-RL was not installed when this page was made; `make ope-compare` installs and runs it."
    world = found["world"]
    rows = []
    for name, one in found["methods"].items():
        far = [f"{one['long'][side]:.6f}" for side in ("evarl", "SCOPE-RL")]
        rows.append([f"`{name}`", f"{one['largest_difference']:.1e}", *far])
    values = markdown_table(
        ["method", "largest difference", "1 000 steps, evarl", "1 000 steps, SCOPE-RL"], rows, [False, True, True, True]
    )
    rows = []
    for name in WEIGHTED:
        one = found["methods"][name]
        for interval in INTERVALS:
            cells = []
            for side in ("evarl", "SCOPE-RL"):
                share, wide = one["coverage"][side].get(interval), one["width"][side].get(interval)
                cells += ["not given", ""] if share is None else [f"{100 * share:.1f}", f"{wide:.3g}"]
            given = one["given"].get(interval, 0.0)
            rows.append([f"`{name}`", interval, f"{100 * given:.1f}", *cells])
    columns = ["method", "interval", "evarl, given in %", "coverage in %", "width", "SCOPE-RL, coverage in %", "width"]
    covered = markdown_table(columns, rows, [False, False, True, True, True, True, True])
    error = 100 * (0.95 * 0.05 / world["logs"]) ** 0.5
    return (
        f"{world['logs']} logs of {TRAJECTORIES} trajectories of 5 steps in the smooth world of the "
        f"[coverage table](ope.md#coverage) (exact value {world['exact']:.4f}), and one log of {TRAJECTORIES} trajectories of "
        f"{LONG} steps by the policy that is evaluated (mean return {world['long_mean_return']:.6f}). Both were given the same "
        f"Q̂, 0.8 times the true one, for `dr` and `wdr`. SCOPE-RL {found['versions']['scope-rl']}.\n\n{values}\n\n"
        f"Intervals of nominal 95 %; a coverage has a standard error of {error:.1f} %. Of evarl's it is that of the intervals "
        f"that are given: they are withheld where weights are too uneven. SCOPE-RL's are always given.\n\n{covered}"
    )


def speed_text(found: dict[str, Any] | None, machine: Mapping[str, Any]) -> str:
    """Markdown: gradient steps of fitted Q evaluation in one second."""
    if found is None:
        return "d3rlpy was not installed when this page was made; `make ope-compare` installs and runs it."
    exact = found["exact"]
    rows = []
    for name, one in found.items():
        if name == "exact":
            continue
        label = f"d3rlpy {one['versions']['d3rlpy']}" if name == "d3rlpy" else name
        milliseconds = float(np.median(one["milliseconds_per_step"]))
        ratio = "1" if name == "d3rlpy" else f"{one['ratio']:.0f}"
        off = f"{100 * (one['estimate'] / exact - 1):+.1f}"
        rows.append([label, f"{1e3 / milliseconds:,.0f}", ratio, f"{one['estimate']:.3f}", off])
    columns = ["fitted Q evaluation", "steps per second", "times d3rlpy", "estimate", "error in %"]
    table = markdown_table(columns, rows, [False, True, True, True, True])
    log = f"{fitted.TRAJECTORIES} × {fitted.LENGTH} logged steps of a world with {fitted.STATES} states"
    return (
        f"{log}, exact value {exact:.4f}; two hidden layers of 100, batches of 100, the same learning rate; one thread for "
        f"PyTorch; medians of interleaved repetitions. Compilation of evarl's program, a few seconds once, is not counted. The "
        f"load of the machine was {machine['load_at_begin'][0]:.1f} at the beginning.\n\n"
        f"{table}"
    )


def methods_text() -> str:
    """Markdown: the estimators of this version."""
    named = ", ".join(f"`{name}`" for name in ope.estimators())
    return f"Estimators of this version of evarl: {named}."


def main(
    d3rlpy: Path = Path(".venv-d3rlpy/bin/python"),
    scope: Path = Path(".venv-scope/bin/python"),
    repetitions: int = 400,
    repeats: int = 5,
    steps: int = 10_000,
    out: Path = FIGURES,
    page: Path = PAGE,
) -> None:
    """Measure and fill in the page.

    Args:
        d3rlpy: interpreter of the environment that has d3rlpy.
        scope: interpreter of the environment that has SCOPE-RL.
        repetitions: logs for the coverage of intervals.
        repeats: interleaved repetitions of a fit.
        steps: gradient steps of a fit.
        out: file for the figures.
        page: where the tables go.
    """
    found: dict[str, Any] = {"about": about(), "scope": None, "d3rlpy": None}
    if scope.exists():
        found["scope"] = compare_with_scope(scope, repetitions)
    if d3rlpy.exists():
        found["d3rlpy"] = fitted.bench_fqe(fitted.make_problem(), d3rlpy, repeats, steps, threads=1)
    write_bytes(out, (json.dumps(found, indent=2) + "\n").encode())
    fill_page(page, texts(found))
    print(f"wrote {out} and {page}")


def texts(found: dict[str, Any]) -> dict[str, str]:
    """What the page holds, by the name of the place."""
    return {
        "answers": answers_text(found["scope"]),
        "speed": speed_text(found["d3rlpy"], found["about"]),
        "methods": methods_text(),
    }


if __name__ == "__main__":
    tyro.cli(main)
