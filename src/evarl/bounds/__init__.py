"""Finite-sample, distribution-free bounds on plain arrays: they hold for every n and every distribution. NumPy and SciPy only.

| claim | function | | --- | --- | | mean-return, J ≥ ℓ | `betting_lower_bound`; with an evaluator `mixture_lower_bound` | |
mean-return, returns of two values only | `two_valued_lower_bound`, `two_valued_upper_bound` | | mean-return, sequentially: J ≥
threshold | `sequential_test`; with an evaluator `mixture_sequential_test` | | mean-return, evidence against J ≤ m |
`e_process`, `mixture_e_process` | | single-episode: a new episode returns at least L(s) with probability 1 − α, at confidence 1
− δ | `order_bound`, `least_rollouts` | | evaluator-overstatement: E[(L(s) − V(s))₊] ≤ ε | `risk_control` | | evaluator-error:
RMSE ≤ u | `rmse_upper_bound` | | new-policy: J_new ≥ Ĵ(Ξ_new) + q, without a rollout of the new policy | `conformal_bound` | |
several candidates with a family-wise error of at most α | `fixed_sequence` | | an estimate with low variance, not a bound |
`trajectory_estimate` | | returns of a vectorised world, without bias towards short episodes | `first_begun` |

Every function assumes what arrays cannot show: that policy, evaluator, range, levels and stopping rule were fixed before the
rollouts, that rollouts are independent, and that they were used for nothing else. Bounds for comparison (Hoeffding, Bernstein,
Student's t) are in `evarl.stats`.
"""

from evarl.bounds.betting import betting_lower_bound, betting_upper_bound, e_process
from evarl.bounds.conformal import ConformalBound, conformal_bound, conformal_index, least_policies
from evarl.bounds.control import (
    SHARES,
    controlled_returns,
    mixture_e_process,
    mixture_lower_bound,
    mixture_sequential_test,
)
from evarl.bounds.episodes import first_begun
from evarl.bounds.order import OrderBound, least_rollouts, order_bound, order_index
from evarl.bounds.ordering import fixed_sequence
from evarl.bounds.risk import RiskControl, risk_control, rmse_upper_bound
from evarl.bounds.sequential import Decision, sequential_test
from evarl.bounds.trajectory import trajectory_estimate
from evarl.bounds.two_valued import two_valued_lower_bound, two_valued_upper_bound

__all__ = [
    "SHARES",
    "ConformalBound",
    "Decision",
    "OrderBound",
    "RiskControl",
    "betting_lower_bound",
    "betting_upper_bound",
    "conformal_bound",
    "conformal_index",
    "controlled_returns",
    "e_process",
    "first_begun",
    "fixed_sequence",
    "least_policies",
    "least_rollouts",
    "mixture_e_process",
    "mixture_lower_bound",
    "mixture_sequential_test",
    "order_bound",
    "order_index",
    "risk_control",
    "rmse_upper_bound",
    "sequential_test",
    "trajectory_estimate",
    "two_valued_lower_bound",
    "two_valued_upper_bound",
]
