"""Whether what is read from a file of a run can be used: the run's own, made of numbers, and fitted."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from evarl.errors import FileError
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.configuration import TrainConfig

EVERY_SEED = "all"
"""What evaluators say that were fitted to all seeds of a run, by `evarl pretrain`."""


def written_by(config: TrainConfig, seed: int | None) -> dict[str, str]:
    """What a policy or an evaluator says about where it comes from; None stands for all seeds."""
    return {"seed": EVERY_SEED if seed is None else str(seed), "hash": config.hash()}


def check_own(path: Path, about: dict[str, str], kind: str, config: TrainConfig, seed: int) -> None:
    """Refuse a file that another seed or another run has written."""
    if about.get("kind") != kind:
        raise FileError(f"{path}: is of kind {about.get('kind')}; want the {kind} of seed {seed}")
    if kind == "evaluator" and "seed" not in about:
        return  # earlier versions did not say
    wanted = written_by(config, seed)
    said = {name: about.get(name, "unknown") for name in wanted}
    if said != wanted:
        raise FileError(
            f"{path}: is the {kind} of seed {said['seed']} of a run with the configuration {said['hash']}; want seed {seed} "
            f"of {wanted['hash']}; put the run's own file back, or train again"
        )


def check_finite(path: Path, tree: Any) -> None:
    """Refuse parameters that are NaN or infinite: whatever is computed with them means nothing."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    for where, leaf in leaves:
        broken = ~np.isfinite(np.asarray(leaf))
        if broken.any():
            name = jax.tree_util.keystr(where, simple=True, separator="/")
            value = np.asarray(leaf)[broken][0]
            raise FileError(f"{path}: {name} is {value} in {broken.sum()} of {broken.size} places; want finite numbers")


def within_warmup(config: TrainConfig) -> str | None:
    """Why an evaluator that is learnt beside the policy is never fitted, and what to do; None if it is."""
    settings = config.evaluator
    unfitted = settings.unfitted_updates()
    if config.evaluator_mode != "colearned" or config.updates > unfitted:
        return None
    what = f"the warm-up of {unfitted}" if settings.initial_steps else f"the {unfitted} before its first step"
    return f"{config.updates} updates do not exceed {what}; train for more, or lower --evaluator.warmup"


def not_fitted(learnt: LearntEvaluator, config: TrainConfig, seed: int) -> str | None:
    """Why the evaluator of a seed has nothing to say, and what to do; None if it was fitted."""
    if learnt.state.steps() > 0:
        return None
    reason = within_warmup(config) or "it has taken no gradient step; freeze one made by `evarl pretrain`"
    return f"the evaluator of seed {seed} was not fitted: {reason}"
