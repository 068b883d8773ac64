"""Checks of the files of a run (its own seed and configuration, finite numbers, a fitted evaluator), and of its results."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from evarl.errors import FileError
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.configuration import TrainConfig

BEYOND = 0.05
"""γ^T from which on values beyond a time limit of T steps are told of."""
NEARLY_ALL = 0.95
"""Part of the episodes that end by the time limit, from which on that is how the task ends."""
ENOUGH = 20
"""Updates after which an assessment return that never varied is reported before the run ends."""


def written_by(config: TrainConfig, seed: int | None) -> dict[str, str]:
    """The texts in a policy or evaluator file that identify its run; the seed is "all" for a pre-trained evaluator."""
    return {"seed": "all" if seed is None else str(seed), "hash": config.hash()}


def check_own(path: Path, about: dict[str, str], kind: str, config: TrainConfig, seed: int) -> None:
    """Refuse a file that another seed or another run has written."""
    if about.get("kind") != kind:
        raise FileError(f"{path}: is of kind {about.get('kind')}; must be the {kind} of seed {seed}")
    expected = written_by(config, seed)
    found = {name: about.get(name, "unknown") for name in expected}
    if found != expected:
        raise FileError(
            f"{path}: is the {kind} of seed {found['seed']} of a run with the configuration {found['hash']}; must be of seed "
            f"{seed} of {expected['hash']}; put the run's own file back, or train again"
        )


def check_finite(path: Path, tree: Any) -> None:
    """Refuse a file whose arrays hold NaN or infinity."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    for where, leaf in leaves:
        broken = ~np.isfinite(np.asarray(leaf))
        if broken.any():
            name = jax.tree_util.keystr(where, simple=True, separator="/")
            value = np.asarray(leaf)[broken][0]
            raise FileError(
                f"{path}: {name} is {value} in {broken.sum()} of {broken.size} places; must be finite numbers"
            )


def within_warmup(config: TrainConfig) -> str | None:
    """The reason why a run is too short to fit its co-learned evaluator, and the remedy; None if it is long enough."""
    settings = config.evaluator
    unfitted = settings.unfitted_updates()
    if config.evaluator_mode != "colearned" or config.updates > unfitted:
        return None
    what = f"the warm-up of {unfitted}" if settings.initial_steps else f"the {unfitted} before its first step"
    return f"{config.updates} updates do not exceed {what}; train for more, or lower --evaluator.warmup"


def not_fitted(learnt: LearntEvaluator, config: TrainConfig, seed: int) -> str | None:
    """The reason why the evaluator of a seed was not fitted, and the remedy; None if it was fitted."""
    if learnt.state.steps() > 0:
        return None
    reason = within_warmup(config) or "it has taken no gradient step; freeze one made by `evarl pretrain`"
    return f"the evaluator of seed {seed} was not fitted: {reason}"


def cautions(config: TrainConfig, metrics: pa.Table | None = None) -> dict[str, str]:
    """Warnings by kind, one line each: those from the configuration, and those from the metrics so far."""
    found = {}
    if (reason := within_warmup(config)) is not None:
        found["not fitted"] = f"the evaluator is not fitted in this run, and β has no effect: {reason}"
    if metrics is None or "assessment_return" not in metrics.column_names:
        return found
    update, seed = metrics["update"].to_numpy(), metrics["seed"].to_numpy()
    returns = metrics["assessment_return"].to_numpy(zero_copy_only=False)
    constant = [int(one) for one in np.unique(seed) if _never_varied(returns[seed == one], config)]
    if constant:
        same = returns[seed == constant[0]]
        found["constant assessment"] = (
            f"the assessment return was {same[0]:.3f} in each of {len(same)} updates (seed {', '.join(map(str, constant))}), so "
            "it does not distinguish policies; use a longer --assessment.horizon, or other start states"
        )
    if (beyond := _beyond_the_limit(config, metrics)) is not None:
        found["time limit"] = beyond
    if (going_on := _unended_warmups(config, metrics)) is not None:
        found["warm-up"] = going_on
    if "weights_bounded" in metrics.column_names:
        bounded = np.unique(update[metrics["weights_bounded"].to_numpy(zero_copy_only=False) > 0])
        if bounded.size:
            found["bounded weights"] = (
                f"the assessment's weights in the policy gradient exceeded their bound, --max-shift {config.max_shift:g}, in "
                f"{bounded.size} of {int(update.max()) + 1} updates: the evaluator is too sensitive to the assessment; lower "
                "--beta, or use a longer --assessment.horizon"
            )
    return found


def _beyond_the_limit(config: TrainConfig, metrics: pa.Table) -> str | None:
    """The reason why a co-learned evaluator predicts rewards after the time limit, and the remedy; None if it does not.

    Its targets end at the limit. But where a batch cuts an episode the critic's value follows, which goes on beyond the limit
    unless `agent.truncation` is as-termination; an evaluator's own values do so if `evaluator.truncation` is bootstrap.
    """
    settings, update = config.evaluator, metrics["update"].to_numpy()
    if (
        config.evaluator_mode != "colearned"
        or "truncated" not in metrics.column_names
        or update.max() < config.updates - 1
    ):
        return None
    late = update >= config.updates - max(1, config.updates // 10)
    truncated, length = (metrics[name].to_numpy(zero_copy_only=False)[late] for name in ("truncated", "episode_length"))
    ended = np.isfinite(truncated) & np.isfinite(length)
    if not ended.any() or truncated[ended].mean() < NEARLY_ALL:
        return None
    limit = round(float(length[ended].max()))
    if config.discount**limit <= BEYOND:
        return None
    if settings.bootstrap == "evaluator":
        who, remedy = "the evaluator's values include", "--evaluator.truncation end"
        goes_on = settings.truncation == "bootstrap"
    else:
        who = "the values of the critic, and of the evaluator that follows it where a batch cuts an episode, include"
        remedy = "--agent.truncation as-termination"
        cuts = settings.states != "start" and config.steps % limit > 0
        goes_on = cuts and config.agent.truncation == "bootstrap"
    if not goes_on:
        return None
    return (
        f"nearly all episodes end by the time limit of {limit} steps; {who} rewards beyond it, which the return of a deployment "
        f"does not (γ^{limit} is {config.discount**limit:.2g}); use {remedy}"
    )


def _unended_warmups(config: TrainConfig, metrics: pa.Table) -> str | None:
    """Seeds whose warm-up should have ended by itself and had not in the last update of the run; None if there are none."""
    if "warmup_ended" not in metrics.column_names or max(config.beta, config.beta_variance) == 0:
        return None
    last = metrics["update"].to_numpy() == config.updates - 1
    ended = metrics["warmup_ended"].to_numpy(zero_copy_only=False) > 0
    seeds = metrics["seed"].to_numpy()[last & ~ended]
    if not seeds.size:
        return None
    return (
        f"the warm-up of seed {', '.join(map(str, seeds))} did not end within {config.updates} updates, and β had no effect: the "
        "evaluator's skill over predictors without Ξ was not positive for long enough; train for more updates, use other start "
        "states, or --evaluator.warmup-ends fixed"
    )


def _never_varied(returns: np.ndarray, config: TrainConfig) -> bool:
    if len(returns) < 2 or len(returns) < min(ENOUGH, config.updates):
        return False
    return bool(np.ptp(returns) <= 1e-6 * max(1.0, float(np.abs(returns).max())))
