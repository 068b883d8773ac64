"""The claims that can be certified: for each its settings and the functions that plan, gather evidence and conclude.

A new claim is a name and a description in `names`, its meaning in `explanations`, and an entry here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from evarl import bounds
from evarl.bounds.sites import VALUE_ERROR as SITE_VALUE_ERROR
from evarl.certificates import conclusions, evidence, explanations
from evarl.certificates.certified_policy import CertifiedPolicy
from evarl.certificates.conclusions import Conclusion
from evarl.certificates.evidence import Evidence, Notify, PolicyTest
from evarl.certificates.explanations import Picture, Seen
from evarl.certificates.names import DESCRIPTIONS, ClaimName
from evarl.certificates.protocol import DRAWN, Calibration, Protocol, Terms
from evarl.errors import InputError
from evarl.worlds.contexts import parse_site

VALUE_ERROR = 0.2
"""Share of α that new-policy spends on the lower bounds of the calibration policies."""


@dataclass(frozen=True)
class Claim:
    """A claim: which settings it has, and how it is planned, tested, concluded and drawn."""

    name: ClaimName
    gather: Callable[[PolicyTest, Notify], Evidence]
    conclude: Callable[[Protocol, Evidence], Conclusion]
    picture: Callable[[Protocol, Conclusion, Seen], Picture]
    settings: frozenset[str]
    """Settings that it has beside level, number of rollouts and nonce."""
    plan: Callable[[CertifiedPolicy, Terms, Sequence[CertifiedPolicy]], dict[str, Any]] = lambda policy, terms, others: {}
    """Fields of the protocol that only this claim has; refuses numbers of rollouts, policies and sites that are too small."""
    requires: Mapping[str, str] = field(default_factory=dict)
    """Settings that must be given, and what they are."""
    about_evaluator: bool = True
    """Whether it uses the evaluator's predictions, so that there must be an evaluator that was fitted."""
    own_rollouts: bool = False
    """Whether J of the policy is bounded from its own rollouts; such bounds answer thresholds and compare candidates."""
    other_policies: bool = False
    """Whether evidence comes from other policies."""
    about_sites: bool = False
    """Whether it is about a new site of a world with hidden contexts; without a site its test is a calibration."""
    larger_is_stronger: bool = True
    """Whether a larger bound says more."""

    @property
    def description(self) -> str:
        """The claim in one line."""
        return DESCRIPTIONS[self.name]


def _plan_single_episode(policy: CertifiedPolicy, terms: Terms, others: Sequence[CertifiedPolicy]) -> dict[str, Any]:
    delta = terms.alpha if terms.delta is None else terms.delta
    bounds.order_index(terms.number(), terms.alpha, delta)  # refuses too few rollouts
    return {"delta": delta}


def _plan_new_policy(policy: CertifiedPolicy, terms: Terms, others: Sequence[CertifiedPolicy]) -> dict[str, Any]:
    value_error = round(VALUE_ERROR * terms.alpha, 12)  # as it would be written
    if len(others) < (least := bounds.least_policies(terms.alpha, value_error)):
        raise InputError(
            f"from-policies: there are {len(others)} other policies; must be at least {least} for alpha {terms.alpha:g}, of "
            f"which {value_error:g} goes to the lower bounds that are used for their true J"
        )
    return {"value_error": value_error, "calibration": tuple(Calibration(one.seed, one.files()) for one in others)}


def _plan_site(
    policy: CertifiedPolicy, terms: Terms, others: Sequence[CertifiedPolicy], value_error: float | None = None
) -> dict[str, Any]:
    if not policy.world.contexts:
        raise InputError(
            f"claim: {terms.claim} is about sites with hidden contexts, and {policy.run.path} has none; train with --context"
        )
    if not terms.sites:
        raise InputError(f"sites: are missing; {terms.claim} requires a calibration, see evarl calibrate")
    if terms.threshold is not None and not terms.site:
        raise InputError("threshold: is not allowed in a calibration; give it with --site")
    policy.check_predictor(predictor := terms.predictor or "value")
    levels = terms.sites, terms.alpha
    try:
        index = bounds.site_index(*levels, terms.delta, value_error or 0.0)
        together = bounds.site_index(*levels, None, value_error or 0.0)
    except InputError as error:
        raise InputError(str(error).replace("returns: there are", "sites: there are", 1)) from error
    if index > together:  # δ near ½, for which 1 − α would not hold over calibration and site together
        raise InputError(
            f"delta: {terms.delta:g} is not allowed for {terms.sites} sites and alpha {terms.alpha:g}; use less"
        )
    return {
        "sites": terms.sites,
        "delta": terms.delta,
        "value_error": value_error,
        "site": _site(policy, terms.site),
        "predictor": predictor,
    }


def _site(policy: CertifiedPolicy, texts: tuple[str, ...]) -> tuple[str, ...]:
    """A site as it is written in protocols; refuses contexts that are never drawn."""
    kind, _, number = (*texts, "")[0].partition(":")
    if kind == DRAWN:
        number = number or "1"
        if len(texts) > 1 or not (number.isdecimal() and len(number) < 7 and int(number)):
            raise InputError(f"site: {' '.join(texts)!r:.60} is not allowed; must be drawn, drawn:2, … or NAME=VALUE")
        return (f"{DRAWN}:{int(number)}",)
    contexts = policy.world.contexts
    found = parse_site(texts, contexts, policy.world.name)
    values = [] if found is None else [float(str(value)) for value in found]
    for context, value in zip(contexts, values, strict=False):
        if not context.allows(value):
            raise InputError(
                f"site: {context.name}={value:g} is outside of what the calibration draws, {context}; nothing is known about "
                "such sites"
            )
    return tuple(f"{context.name}={value!r}" for context, value in zip(contexts, values, strict=False))


_ALL = (
    Claim(
        "mean-return",
        evidence.deployment_returns,
        conclusions.mean_return,
        explanations.returns_picture,
        frozenset({"threshold", "range", "two-valued", "sequential"}),
        about_evaluator=False,
        own_rollouts=True,
    ),
    Claim(
        "single-episode",
        evidence.returns_and_predictions,
        conclusions.single_episode,
        explanations.residuals_picture,
        frozenset({"delta"}),
        _plan_single_episode,
    ),
    Claim(
        "evaluator-overstatement",
        evidence.returns_and_predictions,
        conclusions.evaluator_overstatement,
        partial(explanations.residuals_picture, sign=-1),
        frozenset({"epsilon", "range"}),
        requires={"epsilon": "the overstatement that is allowed on average"},
        larger_is_stronger=False,
    ),
    Claim(
        "evaluator-error",
        partial(evidence.returns_and_predictions, twice=True),
        conclusions.evaluator_error,
        explanations.evaluator_error_picture,
        frozenset({"epsilon", "range"}),
        larger_is_stronger=False,
    ),
    Claim(
        "new-policy",
        evidence.calibration_bounds,
        conclusions.new_policy,
        explanations.calibration_picture,
        frozenset({"threshold", "range", "from-policies"}),
        _plan_new_policy,
        requires={"from-policies": "runs of other policies that were trained in the same way"},
        other_policies=True,
    ),
    Claim(
        "site-return",
        evidence.site_evidence,
        conclusions.site,
        partial(explanations.calibration_picture, over="sites", column="returns"),
        frozenset({"threshold", "delta", "sites", "site", "predictor"}),
        _plan_site,
        about_sites=True,
    ),
    Claim(
        "site-value",
        evidence.site_evidence,
        conclusions.site,
        partial(explanations.calibration_picture, over="sites"),
        frozenset({"threshold", "delta", "range", "sites", "site", "predictor"}),
        partial(_plan_site, value_error=SITE_VALUE_ERROR),
        about_sites=True,
    ),
)
CLAIMS: dict[str, Claim] = {one.name: one for one in _ALL}


def claim_of(terms: Terms, others: Sequence[CertifiedPolicy]) -> Claim:
    """The claim that terms ask for: with calibration policies, J of a new policy. Refuses settings that it does not have."""
    claim = CLAIMS["new-policy" if others and terms.claim == "mean-return" else terms.claim]
    terms.check()
    given = terms.given() | ({"from-policies": f"of {len(others)} policies"} if others else {})
    for name, value in given.items():
        if name not in claim.settings:
            having = " and ".join(one.name for one in CLAIMS.values() if name in one.settings)
            raise InputError(f"{name}: {value} is not allowed for the claim {claim.name}; only for {having}")
    for name, what in claim.requires.items():
        if name not in given:
            raise InputError(f"{name}: is missing; {claim.name} requires {what}")
    return claim


def gather(test: PolicyTest, notify: Notify) -> Evidence:
    """Make the rollouts of a test."""
    found = CLAIMS[test.protocol.claim].gather(test, notify)
    for name, column in found.items():
        if not np.isfinite(column).all():
            raise InputError(f"{test.policy.run.path}: {name} are not all finite numbers; nothing can be certified")
    return found


def conclude(protocol: Protocol, found: Evidence) -> Conclusion:
    """The statement that follows from the evidence; InputError where the protocol asks for other evidence."""
    lengths = {name: len(column) for name, column in found.items() if name not in ("prediction", "context")}
    expected = len(protocol.calibration) or protocol.sites or protocol.rollouts
    shorter = protocol.sequential and len(set(lengths.values())) == 1 and 0 < min(lengths.values()) <= expected
    if not lengths or (set(lengths.values()) != {expected} and not shorter):
        raise InputError(f"evidence: has columns of length {lengths}; must have {expected} numbers in each")
    return CLAIMS[protocol.claim].conclude(protocol, found)
