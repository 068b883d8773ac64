"""What can be said from few runs: aggregates, intervals and comparisons. NumPy and SciPy only, usable on its own."""

from evarl.stats.aggregate import Interval, iqm, standard_error, t_interval
from evarl.stats.bootstrap import bootstrap_distribution, bootstrap_interval
from evarl.stats.comparison import PairedDifference, paired_difference, probability_of_improvement, sign_flip_p_value

__all__ = [
    "Interval",
    "PairedDifference",
    "bootstrap_distribution",
    "bootstrap_interval",
    "iqm",
    "paired_difference",
    "probability_of_improvement",
    "sign_flip_p_value",
    "standard_error",
    "t_interval",
]
