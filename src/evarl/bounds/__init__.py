"""Finite-sample, distribution-free bounds on plain arrays: they hold for every n and every distribution. NumPy and SciPy only.

- mean-return, J ≥ ℓ: `betting_lower_bound`; with an evaluator `mixture_lower_bound`
- mean-return, returns of two values only: `two_valued_lower_bound`, `two_valued_upper_bound`
- a mean of numbers without a known upper end: `anderson_lower_bound`
- a whole distribution function, also from weighted numbers: `dkw_band`, `weighted_dkw_band`, `weighted_grid_band`
- mean-return, sequentially, J ≥ threshold: `sequential_test`; with an evaluator `mixture_sequential_test`
- mean-return, evidence against J ≤ m: `e_process`, `mixture_e_process`
- single-episode, a new episode returns at least L(s) with probability 1 − α, at confidence 1 − δ: `order_bound`, `least_rollouts`
- evaluator-overstatement, E[(L(s) − V(s))₊] ≤ ε: `risk_control`
- evaluator-error, RMSE ≤ u: `rmse_upper_bound`
- new-policy, J_new ≥ Ĵ(Ξ_new) + q without a rollout of the new policy: `conformal_bound`
- a new site, its return or its expected return from the test there: `site_bound`, of a `SiteCalibration`
- several candidates with a family-wise error of at most α: `fixed_sequence`
- an estimate with low variance, not a bound: `trajectory_estimate`
- returns of a vectorised world, without bias towards short episodes: `first_begun`

Every function assumes what arrays cannot show: that policy, evaluator, range, levels and stopping rule were fixed before the
rollouts, that rollouts are independent, and that they were used for nothing else. Bounds for comparison (Hoeffding, Bernstein,
Student's t) are in `evarl.stats`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
