"""What an evaluator knows about a policy: an interval around its prediction, and whether it has met such behaviour at all.

**Interval.** Perturbed policies i = 1 … n that the evaluator was never fitted to have scores r_i = |G_i − V̂_i| / u(Ξ_i), with the
mean return G_i from their start states and the mean prediction V̂_i there. With

    V̂ ± q u(Ξ),    q = the (n + 1 − k)-th smallest r_i,    k = max{k : P(Binomial(n, 0.1) ≤ k − 1) ≤ 0.05}

at least 90 % of all policies that are drawn like these have their mean return in their interval, at confidence 95 % over the n
that were held out (a tolerance interval; with the ⌈(n + 1) · 0.9⌉-th, split conformal prediction, 90 % would be the average
over held-out sets, and about half of all evaluators would cover less). u says how hard policies of this behaviour are to
predict: the mean error on the nearest behaviours that the evaluator *was* fitted to. Whatever u is, the interval is valid.

**Warning.** The distance of Ξ to the nearest remembered behaviour, in standardised units, is compared with the distance of each
remembered behaviour to the nearest other one. If hardly any of these are as large, Ξ is unlike anything that was remembered.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from evarl.assessment.behaviour import Behaviour
from evarl.bounds.ranks import least_rollouts, order_index
from evarl.evaluators.evaluator import EvaluatorState, LearntEvaluator, features, standardised_behaviour
from evarl.evaluators.knowledge import Known
from evarl.learning.configuration import TrainConfig
from evarl.stats.conformal import conformal_p_value

SHARE = 0.9
"""Share of policies whose interval holds their mean return."""
DOUBT = 0.05
"""Probability, over the policies that are held out, that this share is not reached."""
LEVEL = 0.02
"""A behaviour is outside of what is known if its p-value is below this."""
NEIGHBOURS = 5
"""Fitted policies whose errors say how hard a behaviour is to predict."""
FLOOR = 0.1
"""Least difficulty, relative to the mean error on all fitted policies."""

Points = Float[np.ndarray, "n d"]
Asked = Float[np.ndarray, "m d"]


class PredictionInterval(NamedTuple):
    """Where the mean return of the policy lies, for policies like those by which it was calibrated."""

    low: float
    high: float
    share: float
    """Share of such policies whose interval holds their mean return."""
    confidence: float
    """Probability, over the policies by which it was calibrated, with which that share is reached."""
    policies: int
    """Held-out policies by which it was calibrated."""


class Outside(NamedTuple):
    """A behaviour that is unlike all that the evaluator remembers."""

    distance: float
    """To the nearest remembered behaviour: root mean square over its numbers, each in deviations of what is remembered."""
    usual: float
    """Median distance of a remembered behaviour to the nearest other one."""
    p_value: float
    level: float
    remembered: int

    def __str__(self) -> str:
        return (
            f"the nearest of {self.remembered} remembered behaviours is {self.distance:.2f} deviations away, where "
            f"{self.usual:.2f} is usual among them (p = {self.p_value:.3f}, level {self.level:g})"
        )


class Judgement(NamedTuple):
    """What stands beside a prediction."""

    interval: PredictionInterval | None
    no_interval: str | None
    """Why there is no interval; None if there is one."""
    p_value: float | None
    """Of the distance to what is remembered; None if the memory was not diverse."""
    outside: Outside | None
    """None if the behaviour is like others, or if that is not known."""


def judge(
    learnt: LearntEvaluator,
    config: TrainConfig,
    behaviour: Behaviour,
    predicted: float | None,
    possible: tuple[float, float] = (-np.inf, np.inf),
) -> Judgement:
    """What an evaluator knows about the policy that behaved like this; `predicted` is None if it predicts nothing.

    Returns are always within `possible`, and so is the interval.
    """
    knowledge = learnt.knowledge
    if knowledge is None:
        memory = config.evaluator.memory
        why = "was trained with --evaluator.memory recent" if memory == "recent" else "remembers no perturbed policies"
        why = f"no policies were held out to calibrate it, since the evaluator {why}"
        return Judgement(None, f"{why}; train with --evaluator.memory diverse", None, None)
    own = _points(learnt.state, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], behaviour))
    shown = knowledge.fitted.behaviour, knowledge.earlier
    remembered = np.concatenate([_points(learnt.state, one) for one in shown])
    outside, p_value = _outside(remembered, own)
    if predicted is None:
        return Judgement(None, "the evaluator was not fitted", p_value, outside)
    scale = lambda points: difficulty(points, _points(learnt.state, knowledge.fitted.behaviour), knowledge.fitted)  # noqa: E731
    held_out = knowledge.held_out
    scores = errors(held_out) / scale(_points(learnt.state, held_out.behaviour))
    count, least = len(scores), least_rollouts(1 - SHARE, DOUBT)
    if count < least:
        why = (
            f"{count} held-out policies are too few for {SHARE:.0%} at confidence {1 - DOUBT:.0%}, which takes {least}"
        )
        why = f"{why}; train for more updates, or raise --evaluator.reservoir"
        return Judgement(None, why, p_value, outside)
    reach = tolerance_quantile(scores) * float(scale(own)[0])
    lowest, highest = possible
    low, high = max(predicted - reach, lowest), min(predicted + reach, highest)
    return Judgement(PredictionInterval(low, high, SHARE, 1 - DOUBT, count), None, p_value, outside)


def tolerance_quantile(scores: Float[np.ndarray, " n"]) -> float:
    """The (n + 1 − k)-th smallest score: at least SHARE of all scores are below it, at confidence 1 − DOUBT."""
    return float(np.sort(scores)[len(scores) - order_index(len(scores), 1 - SHARE, DOUBT)])


def errors(known: Known) -> Float[np.ndarray, " n"]:
    """|mean return − mean prediction| of each policy."""
    return np.abs(np.asarray(known.returned, np.float64) - np.asarray(known.predicted, np.float64))


def difficulty(points: Asked, fitted: Points, known: Known) -> Float[np.ndarray, " m"]:
    """The mean error on the NEIGHBOURS fitted policies nearest to each of m points, and a little of the mean over all of them."""
    wrong = errors(known)
    nearest = np.argsort(distances(points, fitted), axis=1, kind="stable")[:, :NEIGHBOURS]
    return wrong[nearest].mean(axis=1) + FLOOR * wrong.mean() + np.finfo(np.float32).tiny


def distances(points: Asked, others: Points) -> Float[np.ndarray, "m n"]:
    """Root mean square differences between m and n points."""
    return np.sqrt(np.mean((points[:, None] - others[None]) ** 2, axis=2))


def _outside(remembered: Points, own: Asked) -> tuple[Outside | None, float]:
    between = distances(remembered, remembered)
    np.fill_diagonal(between, np.inf)
    usual, distance = between.min(axis=1), float(distances(own, remembered).min())
    p_value = conformal_p_value(usual, distance)
    if p_value >= LEVEL:
        return None, p_value
    return Outside(distance, float(np.median(usual)), p_value, LEVEL, len(remembered)), p_value


def _points(state: EvaluatorState, behaviour: Behaviour) -> Points:
    """Stacked behaviours [n, k, ...] as points, standardised as the evaluator sees them."""
    shown = jax.vmap(lambda one: features(standardised_behaviour(state, one)))(behaviour)
    return np.asarray(shown, np.float64).reshape(shown.shape[0], -1)
