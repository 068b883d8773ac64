from .comparison import (
    PairedDifference as PairedDifference,
    bootstrap_distribution as bootstrap_distribution,
    bootstrap_interval as bootstrap_interval,
    paired_difference as paired_difference,
    probability_of_improvement as probability_of_improvement,
    sign_flip_p_value as sign_flip_p_value,
)
from .conformal import conformal_p_value as conformal_p_value, conformal_quantile as conformal_quantile
from .distribution import Distribution as Distribution, weighted_distribution as weighted_distribution
from .intervals import (
    Interval as Interval,
    bernstein_interval as bernstein_interval,
    bernstein_lower_bound as bernstein_lower_bound,
    hoeffding_interval as hoeffding_interval,
    hoeffding_lower_bound as hoeffding_lower_bound,
    percentile_interval as percentile_interval,
    standard_error as standard_error,
    t_interval as t_interval,
    t_lower_bound as t_lower_bound,
)
from .ranking import Ranking as Ranking, rank_means as rank_means
from .selection import Candidate as Candidate, Selection as Selection, slope as slope
from .summaries import iqm as iqm, kendall as kendall, ratio_of_means as ratio_of_means, spearman as spearman
