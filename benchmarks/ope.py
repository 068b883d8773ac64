"""`make bench-ope`: off-policy evaluation beside d3rlpy, in turn, in one run, on one log."""

import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.table import Table

from evarl.cli.tables import print_table
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe import FittedQ, fit
from evarl.ope.fqe_table import prepare, target_actions
from evarl.ope.importance import Steps, per_decision, trajectory_wise
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig

STATES, ACTIONS, TRAJECTORIES, LENGTH, DISCOUNT = 20, 4, 500, 50, 0.9
SAME = FQEConfig(convention="greedy-huber", target_interval=100)
"""d3rlpy's network, batch, target interval and backups; both sides get this learning rate."""
SOUND = FQEConfig()


@dataclasses.dataclass
class Problem:
    """A log of the uniform policy in a random world, the policy that is asked about, and what is true of it."""

    data: LoggedData
    target: np.ndarray
    exact: float


def main(
    d3rlpy: Path = Path(".venv-d3rlpy/bin/python"),
    repeats: int = 5,
    steps: int = 10_000,
    threads: int = 1,
    out: Path = Path("runs/bench-ope.json"),
) -> None:
    """Measure and print.

    Args:
        d3rlpy: interpreter of the environment that has it.
        repeats: interleaved repetitions; the median is reported, with the quartiles behind it.
        steps: gradient steps of a fit. Ours makes them in every repetition, d3rlpy divides them among the repetitions.
        threads: PyTorch's; networks this small are slower with more.
        out: file for the figures.
    """
    problem = make_problem()
    results = {"fitted Q evaluation": bench_fqe(problem, d3rlpy, repeats, steps, threads)}
    results["importance sampling"] = bench_importance_sampling(repeats)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nfigures in {out}")


def bench_fqe(problem: Problem, d3rlpy: Path, repeats: int, steps: int, threads: int) -> dict[str, Any]:
    """Milliseconds per gradient step and estimates, ours and d3rlpy's."""
    ours = {
        "evarl, greedy-huber": Ours(problem, dataclasses.replace(SAME, steps=steps)),
        "evarl, sound": Ours(problem, dataclasses.replace(SOUND, steps=steps)),
    }
    with tempfile.TemporaryDirectory() as folder:
        theirs = Theirs(problem, d3rlpy, Path(folder), threads)
        theirs.repeat(100)  # builds the network and warms up
        theirs.milliseconds.clear()
        for _ in range(repeats):
            theirs.repeat(steps // repeats)
            for one in ours.values():
                one.repeat()
        theirs.close()
    print(
        f"Fitted Q evaluation of a {STATES}-state world, {TRAJECTORIES} × {LENGTH} logged steps, exact value "
        f"{problem.exact:.4f}: batch 100, two hidden layers of 100, {steps} steps"
    )
    table = Table("", "estimate", "error", "ms per step", "d3rlpy's over ours", "compile s", box=None)
    table.add_row(*_estimate("d3rlpy " + theirs.versions["d3rlpy"], theirs.estimate, problem), _spread(theirs), "1", "")
    figures: dict[str, Any] = {"exact": problem.exact, "d3rlpy": _plain(theirs) | {"versions": theirs.versions}}
    for name, one in ours.items():
        pairs = zip(theirs.milliseconds, one.milliseconds, strict=True)
        ratio = statistics.median(other / mine for other, mine in pairs)
        table.add_row(
            *_estimate(name, one.estimate, problem), _spread(one), f"{ratio:.1f}", f"{one.compile_seconds:.1f}"
        )
        figures[name] = _plain(one) | {"compile_seconds": one.compile_seconds, "ratio": ratio}
    print_table(table)
    print(f"milliseconds: median (quartiles) of {repeats} interleaved repetitions; PyTorch with {threads} thread(s)")
    return figures


def bench_importance_sampling(repeats: int, trajectories: int = 10_000, length: int = 1_000) -> dict[str, Any]:
    """Seconds of each estimator, with its standard error and diagnostics."""
    generator = np.random.default_rng(0)
    reward, log_ratio = generator.normal(size=(2, trajectories, length))
    steps = Steps(reward, 0.01 * log_ratio, np.ones((trajectories, length), bool), 0.99)
    forms = {
        "TIS": partial(trajectory_wise, self_normalised=False),
        "self-normalised TIS": partial(trajectory_wise, self_normalised=True),
        "PDIS": partial(per_decision, self_normalised=False),
        "self-normalised PDIS": partial(per_decision, self_normalised=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats + 1):
        for name, form in forms.items():
            began = time.perf_counter()
            form(steps)
            seconds[name].append(time.perf_counter() - began)
    table = Table("", "seconds", box=None)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    for name, median in (medians | {"all four": sum(medians.values())}).items():
        table.add_row(name, f"{median:.3f}")
    print(f"\nImportance sampling of {trajectories} × {length} steps, median of {repeats} repetitions")
    print_table(table)
    return {"seconds": {name: times[1:] for name, times in seconds.items()}}


class Ours:
    """Fitted Q evaluation of this package: one compiled program makes all steps."""

    def __init__(self, problem: Problem, config: FQEConfig):
        key, target = jax.random.PRNGKey(0), jnp.asarray(problem.target, jnp.float32)
        policy = TargetPolicy(
            log_prob=lambda seen, action: jnp.log((seen @ target)[jnp.arange(len(action)), action]),
            probabilities=lambda seen: seen @ target,
            sample=lambda key, seen: jax.random.categorical(key, jnp.log(seen @ target)),
            mode=lambda seen: (seen @ target).argmax(axis=1),
        )
        self._config, self._key = config, key
        self._table = prepare(config, problem.data, DISCOUNT, key)
        self._target = target_actions(config, problem.data, policy, key)
        began = time.perf_counter()
        jax.block_until_ready(fit(dataclasses.replace(config, steps=1), self._table, self._target, key))
        self.compile_seconds = time.perf_counter() - began
        self.estimate = float("nan")
        self.milliseconds: list[float] = []

    def repeat(self) -> None:
        """Time one fit."""
        began = time.perf_counter()
        fitted: FittedQ = jax.block_until_ready(fit(self._config, self._table, self._target, self._key))
        self.milliseconds.append(1e3 * (time.perf_counter() - began) / self._config.steps)
        self.estimate = float(fitted.start_value[-1])


class Theirs:
    """d3rlpy in a process of its own, which goes on where it stopped."""

    def __init__(self, problem: Problem, python: Path, folder: Path, threads: int):
        data, log = problem.data, folder / "log.npz"
        np.savez(
            log,
            observation=data.observation,
            action=data.action,
            reward=data.reward,
            ends=np.asarray(data.truncated, np.float32),  # as in logs that know terminals alone
            best=problem.target.argmax(axis=1),
            settings=np.array([DISCOUNT, SAME.learning_rate, SAME.batch_size, SAME.target_interval]),
        )
        script = Path(__file__).with_name("ope_d3rlpy.py")
        command = [str(python), str(script), str(log), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions: dict[str, str] = self._answer()
        self.estimate = float("nan")
        self.milliseconds: list[float] = []

    def repeat(self, steps: int) -> None:
        """Time some more steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.milliseconds.append(1e3 * answer["seconds"] / steps)
        self.estimate = answer["estimate"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("d3rlpy ended early; its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def make_problem(seed: int = 1) -> Problem:
    """The exact value is Σ_s μ(s) V(s), V = (I − γ P_π)⁻¹ r_π, with μ the logged start states."""
    rng = np.random.default_rng(seed)
    rewards = 0.6 + rng.normal(size=(STATES, ACTIONS)) / 2
    transitions = rng.dirichlet(np.full(STATES, 0.3), size=(STATES, ACTIONS))
    target = np.exp(2 * rewards)
    target /= target.sum(axis=1, keepdims=True)
    moves = np.einsum("sa,sat->st", target, transitions)
    values = np.linalg.solve(np.eye(STATES) - DISCOUNT * moves, (target * rewards).sum(axis=1))

    action = rng.integers(0, ACTIONS, (TRAJECTORIES, LENGTH))
    state = np.zeros((TRAJECTORIES, LENGTH + 1), int)
    state[:, 0] = rng.integers(0, STATES, TRAJECTORIES)
    for t in range(LENGTH):
        reached = transitions[state[:, t], action[:, t]].cumsum(axis=1)
        state[:, t + 1] = (rng.random((TRAJECTORIES, 1)) > reached).sum(axis=1).clip(max=STATES - 1)
    truncated = np.zeros(action.shape, bool)
    truncated[:, -1] = True
    seen = np.eye(STATES)[state]
    data = LoggedData.from_arrays(
        observation=seen[:, :-1],
        action=action,
        reward=rewards[state[:, :-1], action],
        log_prob=np.full(action.shape, -np.log(ACTIONS)),
        truncated=truncated,
        final_observation=seen[:, -1],
    )
    return Problem(data, target, float(values[state[:, 0]].mean()))


def _estimate(name: str, estimate: float, problem: Problem) -> tuple[str, str, str]:
    return name, f"{estimate:.4f}", f"{estimate / problem.exact - 1:+.2%}"


def _spread(one: Ours | Theirs) -> str:
    low, middle, high = statistics.quantiles(one.milliseconds, n=4)
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"


def _plain(one: Ours | Theirs) -> dict[str, Any]:
    return {"estimate": one.estimate, "milliseconds_per_step": one.milliseconds}


if __name__ == "__main__":
    tyro.cli(main)
