"""Conclusions of tests: the statement that follows from a protocol and its evidence. NumPy and SciPy only."""

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from evarl import bounds
from evarl.bounds import Decision
from evarl.certificates.protocol import Protocol
from evarl.errors import InputError

Evidence = dict[str, list[float]]
"""Columns by name: returns, values (V̂ at their start states) and more, by claim."""
Outcome = Literal["certified", "bounded", "refuted", "not certified", "out of budget"]
"""Certified: the claim is shown. Bounded: no threshold was given, and a bound is stated. Refuted: the opposite of the claim is
shown. Not certified, out of budget: neither is shown."""


@dataclass(frozen=True)
class Conclusion:
    """What follows from the evidence of a test."""

    outcome: Outcome
    statement: str
    """One sentence, which is true with the stated confidence."""
    confidence: float
    bound: float | None
    """The bound or margin in the statement; None where nothing is stated."""
    upper: float | None
    """Upper bound of J, where a threshold is neither shown nor refuted."""
    rollouts: int
    """Number of rollouts that were used."""
    numbers: dict[str, float]
    """Further results by name, which are estimates and not bounds."""


def decide(protocol: Protocol, rows: Iterable[tuple[float, ...]], *, controlled: bool) -> Decision:
    """The sequential test on rows (return) or (return, value, mean of fresh values); takes no more rows than it needs."""
    (low, high), threshold = protocol.range, _threshold(protocol)
    rule = bounds.StoppingRule(protocol.alpha, protocol.alpha, protocol.rollouts)
    if not controlled:
        return bounds.sequential_test((row[0] for row in rows), threshold, low, high, rule)
    triples = ((result, value, [fresh]) for result, value, fresh in rows)
    return bounds.mixture_sequential_test(triples, threshold, bounds.Range(low, high), rule)


def least_rollouts(protocol: Protocol) -> int | None:
    """The least n at which J ≥ threshold could be certified if every rollout had the greatest return; None above 10⁶."""
    (low, high), threshold = protocol.range, _threshold(protocol)

    def enough(n: int) -> bool:
        return bounds.e_process(np.full(n, high), threshold, low, high, protocol.alpha).max() >= 1 / protocol.alpha

    most = next((2**k for k in range(20) if enough(2**k)), None)
    if most is None:
        return None
    return bisect_left(range(most), True, lo=most // 2 + 1, key=enough)


def mean_return(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """mean-return: a lower bound on J or, with a threshold X, whether J is at least X.

    With a threshold the test is two-sided, each side at level α, and the statement is still false with probability at most α:
    it says that J lies in [min(ℓ, X), max(u, X)]. If J ≥ X, that is false only if u < J; if J < X, only if ℓ > J.
    """
    returns, threshold = evidence["returns"], protocol.threshold
    numbers = {"mean of the returns": float(np.mean(returns)), "least return": min(returns)}
    what = f"mean discounted return J of this policy in {task(protocol)}"
    outcome: Outcome = "bounded"
    bound = upper = None
    if threshold is not None:
        outcome, more = _decision(protocol, evidence)
        numbers |= more
    if threshold is None:
        bound = _lower(protocol, evidence)
        statement = f"The {what} is at least {below(bound)}."
    elif outcome == "certified":
        bound = threshold
        statement = f"The {what} is at least {threshold:.15g}."
    elif protocol.candidates:  # α is the family-wise error of certifying, and of nothing else
        outcome = "not certified"
        statement = f"It is not shown that the {what} is at least {threshold:.15g}."
    elif outcome == "refuted":
        statement = f"The {what} is below {threshold:.15g}."
    else:
        bound, upper = min(_lower(protocol, evidence), threshold), max(_upper(protocol, evidence), threshold)
        statement = (
            f"It is neither shown nor refuted that the {what} is at least {threshold:.15g}: it lies between {below(bound)} and "
            f"{above(upper)}."
        )
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, upper, len(returns), numbers)


def _decision(protocol: Protocol, evidence: Evidence) -> tuple[Outcome, dict[str, float]]:
    """Whether J ≥ threshold is shown, refuted or neither, and the e-values of a sequential test."""
    threshold = _threshold(protocol)
    if not protocol.sequential:
        shown, refuted = _lower(protocol, evidence) >= threshold, _upper(protocol, evidence) < threshold
        return ("not certified" if shown == refuted else "certified" if shown else "refuted"), {}
    columns = [evidence[name] for name in (("returns", "values", "fresh") if "fresh" in evidence else ("returns",))]
    decision = decide(protocol, zip(*columns, strict=True), controlled="fresh" in evidence)
    used = protocol.rollouts if decision.outcome == "out of budget" else decision.rollouts
    if used != len(columns[0]):
        raise InputError(f"evidence: has {len(columns[0])} returns; must have {used}, where this sequential test stops")
    outcome: Outcome = "refuted" if decision.outcome == "rejected" else decision.outcome
    return outcome, {"evidence for": decision.e_certified, "evidence against": decision.e_rejected}


def _lower(protocol: Protocol, evidence: Evidence) -> float:
    """The lower bound ℓ with P(J < ℓ) ≤ α."""
    low, high = protocol.range
    returns = evidence["returns"]
    if protocol.two_valued:
        return bounds.two_valued_lower_bound(returns, low, high, protocol.alpha)
    if "fresh" in evidence:
        rollouts = bounds.EvaluatedRollouts(returns, evidence["values"], np.asarray(evidence["fresh"])[:, None])
        limits = bounds.Range(low, high)
        return bounds.mixture_lower_bound(rollouts, limits, protocol.alpha, sequential=protocol.sequential)
    return bounds.betting_lower_bound(returns, low, high, protocol.alpha, sequential=protocol.sequential)


def _upper(protocol: Protocol, evidence: Evidence) -> float:
    """The upper bound u with P(J > u) ≤ α: minus the lower bound of the negated returns."""
    low, high = protocol.range
    if protocol.two_valued:
        return bounds.two_valued_upper_bound(evidence["returns"], low, high, protocol.alpha)
    mirrored = {name: [-number for number in column] for name, column in evidence.items()}
    return -_lower(dataclasses.replace(protocol, low=-high, high=-low), mirrored)


def single_episode(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """single-episode: a lower bound L(s) on the return of a new episode."""
    assert protocol.delta is not None
    found = bounds.order_bound(evidence["returns"], evidence["values"], protocol.alpha, protocol.delta)
    margin = f"+ {below(found.margin)}" if found.margin > 0 else f"− {above(-found.margin)}"
    typical = float(np.mean(found.at(evidence["values"])))
    statement = (
        f"Of new episodes of this policy in {task(protocol)}, a share of at least {percent(1 - protocol.alpha)} returns "
        f"V̂(s) {margin} or more."
    )
    numbers = {"mean of L over start states": typical, "rank of the residual": float(found.index)}
    numbers |= {"mean of the returns": float(np.mean(evidence["returns"]))}
    return Conclusion("bounded", statement, 1 - protocol.delta, found.margin, None, found.rollouts, numbers)


def evaluator_overstatement(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """evaluator-overstatement: a margin λ below the predictions, with which they overstate by at most ε on average."""
    assert protocol.epsilon is not None
    returns, values = evidence["returns"], evidence["values"]
    found = bounds.risk_control(returns, values, bounds.Range(*protocol.range), protocol.epsilon, protocol.alpha)
    numbers = {"mean of the returns": float(np.mean(returns)), "mean of V̂": float(np.mean(values))}
    if found.margin is None or found.bound is None:
        statement = (
            f"It is not shown for any margin λ that V̂(s) − λ overstates by at most {protocol.epsilon:.15g} on average."
        )
        return Conclusion("not certified", statement, 1 - protocol.alpha, None, None, len(returns), numbers)
    statement = (
        f"L(s) = V̂(s) − {above(found.margin)} overstates the value of a start state in {task(protocol)} by at most "
        f"{protocol.epsilon:.15g} on average: E[(L(s) − V(s))₊] ≤ {protocol.epsilon:.15g}."
    )
    numbers |= {
        "mean of L over start states": float(np.mean(found.at(values))),
        "bound of the mean overstatement": found.bound,
    }
    return Conclusion("certified", statement, 1 - protocol.alpha, found.margin, None, len(returns), numbers)


def evaluator_error(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """evaluator-error: an upper bound on the root mean squared error of the predictions."""
    returns, others, values = evidence["returns"], evidence["others"], evidence["values"]
    bound = bounds.rmse_upper_bound(returns, others, values, bounds.Range(*protocol.range), protocol.alpha)
    products = (np.asarray(returns) - values) * (np.asarray(others) - values)
    outcome = _outcome(None if protocol.epsilon is None else bound <= protocol.epsilon)
    statement = (
        f"The evaluator's root mean squared error over start states of {task(protocol)} is at most {above(bound)}."
        if outcome != "not certified"
        else "It is not shown that the evaluator's root mean squared error is at most "
        f"{protocol.epsilon:.15g}; it is at most {above(bound)}."
    )
    numbers = {"estimate of the mean squared error": float(products.mean())}
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, None, 2 * len(returns), numbers)


def new_policy(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """new-policy: a lower bound on J from the prediction and the calibration policies."""
    assert protocol.value_error is not None
    found = bounds.conformal_bound(
        evidence["bounds"], evidence["predictions"], protocol.alpha, value_error=protocol.value_error
    )
    (prediction,) = evidence["prediction"]
    low, high = protocol.range
    bound = max(float(found.at(prediction)), low)
    if bound > high:
        raise InputError(
            f"prediction: {prediction:g} and the margin {found.margin:g} exceed the greatest possible return {high:g}; "
            "this evaluator is not like those of the calibration policies, and nothing can be concluded"
        )
    outcome = _outcome(None if protocol.threshold is None else bound >= protocol.threshold)
    statement = (
        f"The mean discounted return J of this policy in {task(protocol)} is at least {below(bound)}; it was not deployed."
        if outcome != "not certified"
        else f"It is not shown that J is at least {protocol.threshold:.15g}; without deployment it is at least {below(bound)}."
    )
    numbers = {"prediction": prediction, "margin": found.margin, "rank of the residual": float(found.index)}
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, None, 0, numbers)


def site(protocol: Protocol, evidence: Evidence) -> Conclusion:
    """site-return and site-value: the margin of a calibration or, for a site, the bound from its prediction.

    Predictions are those of the protocol's predictor: values, or lower quantiles of them (conformalised quantile regression).

    At a site the level is α whether or not there is a δ: with δ the rank k of the margin is not larger, which the plan makes
    sure of, and k/(n + 1) is the probability that the bound fails.
    """
    column = "returns" if protocol.value_error is None else "bounds"
    calibration = bounds.SiteCalibration(
        evidence["predictions"], evidence[column], protocol.rollouts, value_error=protocol.value_error or 0.0
    )
    found = bounds.site_bound(calibration, protocol.alpha, protocol.delta)
    numbers = {
        "calibration sites": float(found.sites),
        "margin": found.margin,
        "rank of the margin": float(found.index),
    }
    if not protocol.site:
        numbers[f"mean {predicted(protocol)} on them"] = float(np.mean(evidence["predictions"]))
        numbers["mean return on them" if column == "returns" else "mean bound on them"] = float(
            np.mean(evidence[column])
        )
        rollouts = found.sites * found.episodes
        statement = _calibration_statement(protocol, found.margin)
        return Conclusion("bounded", statement, 1 - protocol.error, found.margin, None, rollouts, numbers)
    (prediction,) = evidence["prediction"]
    bound = float(found.at(prediction))
    if protocol.value_error is not None:
        bound = max(bound, protocol.range[0])
        if bound > protocol.range[1]:
            raise InputError(
                f"prediction: {prediction:g} and the margin {found.margin:g} exceed the greatest possible return; this test is "
                "not like those of the calibration, and nothing can be concluded"
            )
    outcome = _outcome(None if protocol.threshold is None else bound >= protocol.threshold)
    statement = _site_statement(protocol, evidence["context"], bound, outcome)
    return Conclusion(
        outcome, statement, 1 - protocol.alpha, bound, None, 0, {predicted(protocol): prediction} | numbers
    )


def _calibration_statement(protocol: Protocol, margin: float) -> str:
    shift = f"+ {below(margin)}" if margin > 0 else f"− {above(-margin)}"
    drawn = f"drawn like the {protocol.sites} of this calibration ({', '.join(protocol.contexts)})"
    symbol = "q̂(Ξ)" if protocol.predictor == "quantile" else "V̂(Ξ)"
    where = f"{symbol} is the {predicted(protocol)} from the test there"
    what = f"{_measured(protocol)} is at least {symbol} {shift}, where {where}"
    if protocol.delta is None:
        return f"On a new site {drawn}, the {what}."
    return f"Of new sites {drawn}, a share of at least {percent(1 - protocol.alpha)} is such that the {what}."


def _site_statement(protocol: Protocol, context: list[float], bound: float, outcome: Outcome) -> str:
    names = [text.partition("=")[0] for text in protocol.contexts]
    where = ", ".join(f"{name}={value:.6g}" for name, value in zip(names, context, strict=True))
    like = f"drawn like the {protocol.sites} of the calibration ({', '.join(protocol.contexts)})"
    condition = (
        f"; this site was {like}" if protocol.drawn else f", if this site was {like}, not picked for its context"
    )
    what = f"on the site {where} the {_measured(protocol)}"
    if outcome == "not certified":
        return f"It is not shown that {what} is at least {protocol.threshold:.15g}; it is at least {below(bound)}{condition}."
    return f"O{what[1:]} is at least {below(bound)}{condition}."


def predicted(protocol: Protocol) -> str:
    """What the margin is added to."""
    return "predicted lower quantile" if protocol.predictor == "quantile" else "prediction"


def _measured(protocol: Protocol) -> str:
    """What is bounded on a site."""
    what = (
        "expected discounted return"
        if protocol.value_error
        else f"mean discounted return of {protocol.rollouts} episodes"
    )
    return f"{what} of this policy in {task(protocol)}"


def task(protocol: Protocol) -> str:
    """The task about which a statement is made, and what the issuer assumed about its returns."""
    found = f"{protocol.world} (horizon {protocol.horizon}, discount {protocol.discount:g}"
    if protocol.contexts and not protocol.sites:
        found += f", over sites with {', '.join(protocol.contexts)}"
    if protocol.two_valued:
        found += f", if every return is {protocol.low:.15g} or {protocol.high:.15g}"
    elif protocol.range_from == "user":
        found += f", if every return lies between {protocol.low:.15g} and {protocol.high:.15g}"
    return found + ")"


def below(number: float) -> str:
    """Six digits, rounded down, so that a printed lower bound is valid.

    >>> below(-4.72215344), below(1.23456789)
    ('-4.72216', '1.23456')
    """
    return _rounded(number, floor)


def above(number: float) -> str:
    """Six digits, rounded up, so that a printed upper bound is valid.

    >>> above(0.0123456189)
    '0.0123457'
    """
    return _rounded(number, ceil)


def _rounded(number: float, towards: Callable[[float], int]) -> str:
    if number == 0:
        return "0"
    digits = 5 - floor(log10(abs(number)))
    return f"{towards(number * 10.0**digits) / 10.0**digits:.6g}"


def _outcome(reached: bool | None) -> Outcome:
    """The outcome of a test that cannot refute; None where there is nothing to reach."""
    return "bounded" if reached is None else "certified" if reached else "not certified"


def _threshold(protocol: Protocol) -> float:
    if protocol.threshold is None:
        raise InputError("threshold: is missing; must be a number")
    return protocol.threshold


def percent(share: float) -> str:
    """A share in per cent, rounded down; only 1 gives 100 %.

    >>> percent(0.95), percent(0.9), percent(0.949999), percent(1 - 1e-9), percent(1.0)
    ('95 %', '90 %', '94.99 %', '99.9999999 %', '100 %')
    """
    if not 0 <= share <= 1:
        raise InputError(f"share: {share:g} is not allowed; must be a number from 0 to 1")
    digits = 2 if share == 1 else max(2, ceil(-log10(1 - share) - 1e-6) - 2)
    scale = 10**digits
    return f"{floor(100 * share * scale + 1e-3) / scale:.{digits}f}".rstrip("0").rstrip(".") + " %"


def weaker(stated: Conclusion, fresh: Conclusion, larger_is_stronger: bool) -> Conclusion:
    """What two tests of a claim both show; never more than what the fresh one shows."""
    if stated.bound is None or fresh.bound is None or stated.outcome not in ("certified", "bounded"):
        return fresh
    return stated if (stated.bound <= fresh.bound) == larger_is_stronger else fresh
