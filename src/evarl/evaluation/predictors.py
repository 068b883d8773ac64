"""Names of predictors of values, as they appear in tables and result files. No JAX."""

EVALUATOR = "evaluator"
ZEROED = "evaluator, Ξ zeroed"
SHUFFLED = "evaluator, Ξ shuffled"
CRITIC = "critic"
BATCH = "last batch's mean"
PASSIVE = "passive evaluator"
ORDER = (EVALUATOR, ZEROED, SHUFFLED, CRITIC, BATCH)
"""Order of the rows of tables; off-policy methods come after these."""
WITHOUT = (CRITIC, BATCH, ZEROED)
"""Predictors that do not use the policy's assessment."""
BLIND, CONSTANT = "fitted without Ξ", "constant"
"""Further predictors without Ξ, for policies that the evaluator was not fitted to."""

MEAN = "mean over sites"
"""The best constant: the mean of the true values of all sites that are evaluated."""
BLIND_CRITIC = "critic, mean over contexts"
TOLD_CRITIC = "critic, told the context"
TOLD = "regression, told the context"
"""True values of the other sites, regressed on their contexts: what perfect knowledge of the context would give."""
BEST = "best evaluator of Ξ"
"""The posterior mean of V_c given Ξ, exact: no evaluator has a smaller mean squared error."""
SITE_ORDER = (EVALUATOR, ZEROED, SHUFFLED, MEAN, CRITIC, BLIND_CRITIC, BATCH, TOLD_CRITIC, TOLD, BEST)
"""Order of the rows over sites of a family of worlds; the last three are references, which know more than an evaluator may."""
SITE_WITHOUT = (CRITIC, BLIND_CRITIC, BATCH, ZEROED, MEAN)
"""Predictors over sites that use neither the assessment nor the context."""
