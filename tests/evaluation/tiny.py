"""Runs that are trained in no time, and copies of them with other evaluators."""

import dataclasses
import fcntl
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import evarl
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.presets import preset
from evarl.runs.assessments import save_evaluator

SETTINGS = {"environments": 4, "steps": 32, "updates": 6, "seeds": 2, "rollouts_per_start": 2, "beta": 0.05}
SHARED: list[Path] = []
"""The folder of this session, set by `conftest.py`, in which every run is trained once for all workers."""


def train_tiny(
    out: Path, hidden: int = 8, log_megabytes: float = 0.0, log_from: str = "recent", **changes: Any
) -> evarl.Run:
    """A run of these settings, at `out` and nobody else's: a copy of the one that was trained first."""
    base = preset("navigation")
    network = dataclasses.replace(base.evaluator.network, width=8, layers=1)
    evaluator = dataclasses.replace(
        base.evaluator, network=network, policies=4, warmup=2, initial_steps=5, final_steps=0
    )
    agent = dataclasses.replace(base.agent, hidden_sizes=(hidden,))
    config = dataclasses.replace(base, agent=agent, evaluator=evaluator, **SETTINGS | changes)
    return train_once(config, out, log_megabytes=float(log_megabytes), log_from=log_from)


def train_once(config: evarl.TrainConfig, out: Path, **options: Any) -> evarl.Run:
    """The same for any configuration: what is trained with it is at `out`, and trained once for all tests."""
    first = SHARED[0] / hashlib.sha256(repr((config, sorted(options.items()))).encode()).hexdigest()
    first.mkdir(parents=True, exist_ok=True)
    with (first / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (first / "finished").exists():
            shutil.rmtree(first / "run", ignore_errors=True)
            evarl.train(config, out=first / "run", quiet=True, **options)
            (first / "finished").touch()
    shutil.copytree(first / "run", out)
    return evarl.Run.load(out)


def with_evaluators(run: evarl.Run, path: Path, change: Callable[[int, LearntEvaluator], LearntEvaluator]) -> evarl.Run:
    """A copy of a run with changed evaluators."""
    shutil.copytree(run.path, path)
    for seed in run.seeds:
        changed = change(seed, run.evaluator_state(seed))
        save_evaluator(path / "evaluator" / f"seed-{seed}.safetensors", changed, run.config, seed)
    return evarl.Run.load(path)


def constant(seed: int, learnt: LearntEvaluator) -> LearntEvaluator:
    """Parameters of 0 say 0 in standardised units: the mean of the targets."""
    zeros = jax.tree.map(lambda leaf: 0 * leaf, learnt.state.parameters)
    return learnt.replace(state=learnt.state.replace(parameters=zeros))
