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
