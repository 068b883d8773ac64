"""Values of a policy from logged data, by any of the registered estimators."""

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np

from evarl.errors import InputError
from evarl.ope.log import CollapsedWeights, Estimate, Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.registry import Estimator, chosen, default_methods
from evarl.ope.settings import FQEConfig, Settings
from evarl.sizes import check_memory, check_time, matrix_entries

DEFAULT = Settings()


def estimate(
    log: Log, policy: TargetPolicy, settings: Settings = DEFAULT, methods: Sequence[str] | None = None
) -> dict[str, Estimate]:
    """Estimates of J, and of V at `log.states` [Q, ...], by method; all but those for special logs by default.

    A time limit does not end the value by default: fitted Q evaluation and the doubly robust methods continue with the
    model's value there. With `settings.fqe.time_feature` the value ends at the T-th step, as it always does for importance
    sampling alone.
    """
    settings.validate()
    asked = chosen(default_methods() if methods is None else methods)
    data = log.data
    for estimator in asked:
        if data.log_prob is None and "log_prob" in estimator.needs:
            raise InputError(f"log_prob: is missing in the log; {estimator.name} requires it, fqe does not")
    if any("fqe" in estimator.needs for estimator in asked):
        check_fit(settings.fqe, settings.fqe_refits, data.mask.size, int(np.prod(data.observation.shape[2:])))
    needed = 4.0 * settings.resamples * data.trajectories
    check_memory("resamples", settings.resamples, needed, "a bootstrap sample of every trajectory")
    found = {}
    for estimator in asked:  # not a comprehension, which some versions of Python count in `stacklevel`
        found[estimator.name] = _checked(estimator, log, policy, settings)
    return found


def check_fit(config: FQEConfig, refits: int, rows: int, features: int) -> None:
    """Raise InputError if fitted Q evaluation on `rows` logged transitions does not fit into memory, or takes hours."""
    widest = max(config.hidden_sizes)
    check_memory("fqe.batch-size", config.batch_size, 4.0 * config.batch_size * (features + widest), "a batch")
    check_memory("fqe.hidden-sizes", config.hidden_sizes, 16 * matrix_entries(features, *config.hidden_sizes), "a fit")
    drawn = 4.0 * config.action_samples * rows
    check_memory("fqe.action-samples", config.action_samples, drawn, "the sample of actions")
    check_time("fqe.steps", config.steps, config.steps, "a fit")
    check_time("fqe-refits", refits, float(refits) * config.steps, "all fits together")


def _checked(estimator: Estimator, log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """The estimate of one method, with a warning if its weights have collapsed."""
    found = estimator.estimate(log, policy, settings)
    have, expected = (None if x is None else x.shape[:1] for x in (found.state_values, log.states))
    if have != expected:
        raise InputError(f"state_values: have shape {have}, by {estimator.name}; must be {expected}")
    notes, size, count = found.warnings, found.effective_sample_size, log.data.trajectories
    if size is not None and size < settings.warn_below * count:
        largest = found.largest_weight_share
        share = "" if largest is None else f", the largest with {largest:.0%} of the weight"
        notes += (f"the weights have collapsed: effective sample size {size:.1f} of {count} trajectories{share}",)
        warnings.warn(f"{estimator.name}: {'; '.join(notes)}", CollapsedWeights, stacklevel=3)
    return dataclasses.replace(found, method=estimator.name, rule=settings.rule, warnings=notes)
