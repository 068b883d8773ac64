"""What follows from a protocol and its evidence: plain numbers in, a statement out. NumPy and SciPy only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from evarl import certify
from evarl.certificates.protocol import Protocol
from evarl.certify import Decision
from evarl.errors import InputError

Outcome = Literal["certified", "bounded", "not certified", "rejected", "out of budget"]
"""Certified: what was asked for is shown. Bounded: nothing in particular was asked for, and the bound is given."""


@dataclass(frozen=True)
class Conclusion:
    """What may be promised."""

    outcome: Outcome
    statement: str
    """One sentence, true with the stated confidence; or that nothing is promised."""
    confidence: float
    bound: float | None
    """ℓ of J and C5, the margin of C2 and C3, u of C4; None where nothing is promised."""
    rollouts: int
    """That were used."""
    numbers: dict[str, float]
    """More, by name, for those who want to know."""


def conclude(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    """The statement that the evidence allows."""
    return {"J": _mean_return, "C2": _episode, "C3": _shortfall, "C4": _error, "C5": _new_policy}[protocol.claim](
        protocol, evidence
    )


def decide(protocol: Protocol, rows: Iterable[tuple[float, ...]], *, controlled: bool) -> Decision:
    """The sequential test on rows (return) or (return, value, mean of fresh values), taking no more than it needs."""
    (low, high), threshold = protocol.range, _threshold(protocol)
    level, budget = protocol.alpha, protocol.rollouts
    if not controlled:
        return certify.sequential_test((row[0] for row in rows), threshold, low, high, level, level, budget)
    triples = ((result, value, [fresh]) for result, value, fresh in rows)
    return certify.mixture_sequential_test(triples, threshold, low, high, level, level, budget)


def least_rollouts(protocol: Protocol) -> int | None:
    """The least n at which J ≥ threshold could be certified, should every rollout return the most; None: 10⁶ are too few."""
    (low, high), threshold = protocol.range, _threshold(protocol)

    def enough(n: int) -> bool:
        return certify.e_process(np.full(n, high), threshold, low, high, protocol.alpha).max() >= 1 / protocol.alpha

    most = 1
    while not enough(most):
        most *= 2
        if most > 10**6:
            return None
    least = most // 2 + 1
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle + 1, most)
    return most


def _mean_return(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    (low, high), threshold = protocol.range, protocol.threshold
    returns = evidence["returns"]
    controlled = "fresh" in evidence
    if controlled:
        fresh = np.asarray(evidence["fresh"])[:, None]
        bound = certify.mixture_lower_bound(
            returns, evidence["values"], fresh, low, high, protocol.alpha, sequential=protocol.sequential
        )
    else:
        bound = certify.betting_lower_bound(returns, low, high, protocol.alpha, sequential=protocol.sequential)
    numbers = {"mean of the returns": float(np.mean(returns)), "least return": min(returns)}
    outcome: Outcome = "bounded"
    if protocol.sequential:
        columns = [evidence[name] for name in (("returns", "values", "fresh") if controlled else ("returns",))]
        decision = decide(protocol, zip(*columns, strict=True), controlled=controlled)
        numbers |= {"evidence for": decision.e_certified, "evidence against": decision.e_rejected}
        outcome = decision.outcome
        # The test stops at its threshold; the bound of the same wealth, read at that time, cannot say less.
        bound = max(bound, _threshold(protocol)) if outcome == "certified" else bound
    elif threshold is not None:
        outcome = "certified" if bound >= threshold else "not certified"
    if outcome == "certified" and protocol.candidates:
        # Testing in order protects the threshold only: with bounds of their own there would be as many promises as candidates.
        bound = _threshold(protocol)
    statement = f"The mean discounted return J of this policy in {protocol.world} is at least {below(bound)}."
    if outcome == "rejected":
        # One promise for one α: beside this one the lower bound would cost a second.
        statement = f"The mean discounted return J of this policy in {protocol.world} is below {threshold:g}."
        return Conclusion(outcome, statement, 1 - protocol.alpha, None, len(returns), numbers)
    if outcome not in ("certified", "bounded"):
        if protocol.candidates:
            statement = f"Not shown that the mean discounted return J is at least {threshold:g}."
            return Conclusion(outcome, statement, 1 - protocol.alpha, None, len(returns), numbers)
        statement = f"Not shown that J is at least {threshold:g}; what is shown is that it is at least {below(bound)}."
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, len(returns), numbers)


def _episode(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    assert protocol.delta is not None
    found = certify.order_bound(evidence["returns"], evidence["values"], protocol.alpha, protocol.delta)
    margin = f"+ {below(found.margin)}" if found.margin > 0 else f"− {above(-found.margin)}"
    typical = float(np.mean(found.at(evidence["values"])))
    statement = (
        f"A new episode in {protocol.world} returns at least V̂(s) {margin}, which is {below(typical)} on average over start "
        f"states, with probability {percent(1 - protocol.alpha)} or more."
    )
    numbers = {"mean of L over start states": typical, "rank of the residual": float(found.index)}
    numbers |= {"mean of the returns": float(np.mean(evidence["returns"]))}
    return Conclusion("bounded", statement, 1 - protocol.delta, found.margin, found.rollouts, numbers)


def _shortfall(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    low, high = protocol.range
    assert protocol.epsilon is not None
    returns, values = evidence["returns"], evidence["values"]
    found = certify.risk_control(returns, values, low, high, protocol.epsilon, protocol.alpha)
    numbers = {"mean of the returns": float(np.mean(returns)), "mean of V̂": float(np.mean(values))}
    if found.margin is None or found.bound is None:
        statement = f"Not shown for any margin that V̂(s) less it overstates by at most {protocol.epsilon:g} on average."
        return Conclusion("not certified", statement, 1 - protocol.alpha, None, len(returns), numbers)
    statement = (
        f"L(s) = V̂(s) − {above(found.margin)} overstates the value of a start state in {protocol.world} by at most "
        f"{protocol.epsilon:g} on average: E[(L(s) − V(s))₊] ≤ {protocol.epsilon:g}."
    )
    numbers |= {
        "mean of L over start states": float(np.mean(found.at(values))),
        "bound of the mean shortfall": found.bound,
    }
    return Conclusion("certified", statement, 1 - protocol.alpha, found.margin, len(returns), numbers)


def _error(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    low, high = protocol.range
    returns, others, values = evidence["returns"], evidence["others"], evidence["values"]
    bound = certify.rmse_upper_bound(returns, others, values, low, high, protocol.alpha)
    products = (np.asarray(returns) - values) * (np.asarray(others) - values)
    outcome: Outcome = "bounded"
    if protocol.epsilon is not None:
        outcome = "certified" if bound <= protocol.epsilon else "not certified"
    statement = (
        f"The evaluator's root mean squared error over start states of {protocol.world} is at most {above(bound)}."
        if outcome != "not certified"
        else f"Not shown that the evaluator's root mean squared error is at most {protocol.epsilon:g}; shown is {above(bound)}."
    )
    numbers = {"estimate of the mean squared error": float(products.mean())}
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, 2 * len(returns), numbers)


def _new_policy(protocol: Protocol, evidence: dict[str, list[float]]) -> Conclusion:
    assert protocol.value_error is not None
    found = certify.conformal_bound(
        evidence["bounds"], evidence["predictions"], protocol.alpha, value_error=protocol.value_error
    )
    (prediction,) = evidence["prediction"]
    bound = max(float(found.at(prediction)), protocol.range[0])
    outcome: Outcome = "bounded"
    if protocol.threshold is not None:
        outcome = "certified" if bound >= protocol.threshold else "not certified"
    statement = (
        f"The mean discounted return J of this policy in {protocol.world} is at least {below(bound)}; it was not deployed."
        if outcome != "not certified"
        else f"Not shown that J is at least {protocol.threshold:g}; what is shown without deploying it is {below(bound)}."
    )
    numbers = {"prediction": prediction, "margin": found.margin, "rank of the residual": float(found.index)}
    return Conclusion(outcome, statement, 1 - protocol.alpha, bound, 0, numbers)


def below(number: float) -> str:
    """Six digits, rounded down: what is printed of a lower bound must not promise more than it does.

    >>> below(-4.72215344), below(1.23456789)
    ('-4.72216', '1.23456')
    """
    return _rounded(number, floor)


def above(number: float) -> str:
    """Six digits, rounded up, for upper bounds.

    >>> above(0.0123456189)
    '0.0123457'
    """
    return _rounded(number, ceil)


def _rounded(number: float, towards: Callable[[float], int]) -> str:
    if number == 0:
        return "0"
    digits = 5 - floor(log10(abs(number)))
    return f"{towards(number * 10.0**digits) / 10.0**digits:.6g}"


def _threshold(protocol: Protocol) -> float:
    if protocol.threshold is None:
        raise InputError("threshold: is missing; want the J that is to be reached")
    return protocol.threshold


def percent(share: float) -> str:
    """As it is said in words."""
    return f"{100 * share:.4g} %"
