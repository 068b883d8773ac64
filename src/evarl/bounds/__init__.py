"""Certificates: promises that hold for every n and every distribution, on plain arrays. NumPy and SciPy only, usable on its own.

| claim | function |
| --- | --- |
| C1: J ≥ ℓ | `betting_lower_bound`; with an evaluator `mixture_lower_bound` |
| C1, returns of two values only | `two_valued_lower_bound`, `two_valued_upper_bound` |
| C1, rollout by rollout: J ≥ threshold | `sequential_test`; with an evaluator `mixture_sequential_test` |
| C1, evidence against J ≤ m | `e_process`, `mixture_e_process` |
| C2: a new episode returns at least L(s) but for α, at confidence 1 − δ | `order_bound`, `least_rollouts` |
| C3: E[(L(s) − V(s))₊] ≤ ε | `risk_control` |
| C4: evaluator RMSE ≤ u | `rmse_upper_bound` |
| C5: J_new ≥ Ĵ(Ξ_new) + q, without a rollout of the new policy | `conformal_bound` |
| several candidates, one α | `fixed_sequence` |
| an estimate with little variance, no certificate | `trajectory_estimate` |
| returns of a vectorised world, without a preference for short episodes | `first_begun` |

Every function trusts what no array can show: that policy, evaluator, range, levels and stopping rule were fixed before the
rollouts, that rollouts are independent, and that they were used for nothing else.
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
