from .anderson import anderson_lower_bound as anderson_lower_bound, anderson_upper_bound as anderson_upper_bound
from .bands import (
    Band as Band,
    dkw_band as dkw_band,
    weighted_dkw_band as weighted_dkw_band,
    weighted_grid_band as weighted_grid_band,
)
from .betting import (
    Range as Range,
    betting_lower_bound as betting_lower_bound,
    betting_upper_bound as betting_upper_bound,
    e_process as e_process,
)
from .control import (
    SHARES as SHARES,
    EvaluatedRollouts as EvaluatedRollouts,
    controlled_returns as controlled_returns,
    mixture_e_process as mixture_e_process,
    mixture_lower_bound as mixture_lower_bound,
    mixture_sequential_test as mixture_sequential_test,
)
from .ranks import (
    ConformalBound as ConformalBound,
    OrderBound as OrderBound,
    conformal_bound as conformal_bound,
    conformal_index as conformal_index,
    least_policies as least_policies,
    least_rollouts as least_rollouts,
    order_bound as order_bound,
    order_index as order_index,
)
from .risk import RiskControl as RiskControl, risk_control as risk_control, rmse_upper_bound as rmse_upper_bound
from .selection import first_begun as first_begun, fixed_sequence as fixed_sequence
from .sequential import Decision as Decision, StoppingRule as StoppingRule, sequential_test as sequential_test
from .sites import (
    SiteBound as SiteBound,
    SiteCalibration as SiteCalibration,
    least_sites as least_sites,
    site_bound as site_bound,
    site_index as site_index,
)
from .trajectory import Trajectories as Trajectories, trajectory_estimate as trajectory_estimate
from .two_valued import (
    two_valued_lower_bound as two_valued_lower_bound,
    two_valued_upper_bound as two_valued_upper_bound,
)
