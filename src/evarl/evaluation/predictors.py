"""Names of those who predict values, as tables and result files have them. No JAX."""

EVALUATOR = "evaluator"
ZEROED = "evaluator, Ξ zeroed"
SHUFFLED = "evaluator, Ξ shuffled"
CRITIC = "critic"
BATCH = "last batch's mean"
PASSIVE = "passive evaluator"
ORDER = (EVALUATOR, ZEROED, SHUFFLED, CRITIC, BATCH)
WITHOUT = (CRITIC, BATCH, ZEROED)
"""Predictors that see nothing of the policy's assessment."""
BLIND, CONSTANT = "fitted without Ξ", "constant"
"""Further predictors without Ξ, for policies that the evaluator was not fitted to."""
