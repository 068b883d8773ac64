"""Names of the claims that can be certified. Nothing is imported, so that `--help` stays quick."""

from typing import Literal

SiteClaimName = Literal["site-return", "site-value"]
"""Claims about a new site."""
PredictorName = Literal["value", "quantile"]
"""What the bound on a site is relative to: the predicted value V̂(Ξ), or a predicted lower quantile q̂(Ξ) of it."""
ClaimName = Literal[
    "mean-return",
    "single-episode",
    "evaluator-overstatement",
    "evaluator-error",
    "new-policy",
    "site-return",
    "site-value",
]

DESCRIPTIONS: dict[ClaimName, str] = {
    "mean-return": "the mean return J is at least …",
    "single-episode": "a new episode returns at least L(s), but for a share α of them",
    "evaluator-overstatement": "L(s) = V̂(s) − λ overstates the value by at most ε on average",
    "evaluator-error": "the evaluator's root mean squared error is at most …",
    "new-policy": "J is at least …, from an assessment and without deployment (requires --from-policies)",
    "site-return": "the mean return of some episodes on a new site is at least …, from the test there (requires --site)",
    "site-value": "the expected return on a new site is at least …, from the test there (requires --site)",
}
"""One line for each claim; `evarl.certificates.claims` has how they are tested."""
