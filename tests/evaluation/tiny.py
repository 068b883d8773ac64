"""Runs that are trained in no time, and copies of them with other evaluators."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import jax

import evarl
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.presets import preset
from evarl.runs.assessments import save_evaluator


def train_tiny(out: Path, hidden: int = 8, log_megabytes: float = 0.0, **changes) -> evarl.Run:
    base = preset("navigation")
    network = dataclasses.replace(base.evaluator.network, width=8, layers=1)
    evaluator = dataclasses.replace(base.evaluator, network=network, policies=4, warmup=2, initial_steps=5)
    settings = {"environments": 4, "steps": 32, "updates": 6, "seeds": 2, "rollouts_per_start": 2, "beta": 0.05}
    agent = dataclasses.replace(base.agent, hidden_sizes=(hidden,))
    config = dataclasses.replace(base, agent=agent, evaluator=evaluator, **(settings | changes))
    return evarl.train(config, out=out, quiet=True, log_megabytes=log_megabytes)


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
