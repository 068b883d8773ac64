"""Warnings about the results of a run, from its configuration and its metrics."""

import numpy as np
import pyarrow as pa

from evarl.learning.configuration import TrainConfig
from evarl.runs.checks import within_warmup

ENOUGH = 20
"""Updates after which an assessment return that never varied is reported before the run ends."""


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
    if "weights_bounded" in metrics.column_names:
        bounded = np.unique(update[metrics["weights_bounded"].to_numpy(zero_copy_only=False) > 0])
        if bounded.size:
            found["bounded weights"] = (
                f"the assessment's weights in the policy gradient exceeded their bound, --max-shift {config.max_shift:g}, in "
                f"{bounded.size} of {int(update.max()) + 1} updates: the evaluator is too sensitive to the assessment; lower "
                "--beta, or use a longer --assessment.horizon"
            )
    return found


def _never_varied(returns: np.ndarray, config: TrainConfig) -> bool:
    if len(returns) < 2 or len(returns) < min(ENOUGH, config.updates):
        return False
    return bool(np.ptp(returns) <= 1e-6 * max(1.0, float(np.abs(returns).max())))
