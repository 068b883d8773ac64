"""Statistics of runs and returns: aggregates, confidence intervals, bootstrap, rank correlations and comparisons.

NumPy and SciPy only; JAX is not imported. Finite-sample bounds for certificates are in `evarl.bounds`.
"""

from evarl.stats.aggregate import iqm
from evarl.stats.bootstrap import bootstrap_distribution, bootstrap_interval
from evarl.stats.comparison import PairedDifference, paired_difference, probability_of_improvement, sign_flip_p_value
from evarl.stats.intervals import (
    Interval,
    bernstein_interval,
    bernstein_lower_bound,
    hoeffding_interval,
    hoeffding_lower_bound,
    percentile_interval,
    standard_error,
    t_interval,
    t_lower_bound,
)
from evarl.stats.ranks import kendall, spearman

__all__ = [
    "Interval",
    "PairedDifference",
    "bernstein_interval",
    "bernstein_lower_bound",
    "bootstrap_distribution",
    "bootstrap_interval",
    "hoeffding_interval",
    "hoeffding_lower_bound",
    "iqm",
    "kendall",
    "paired_difference",
    "percentile_interval",
    "probability_of_improvement",
    "sign_flip_p_value",
    "spearman",
    "standard_error",
    "t_interval",
    "t_lower_bound",
]
