"""What an evaluator knows about a policy: an interval around its prediction, and whether it has met such behaviour at all.

**Interval.** Perturbed policies i = 1 … n that the evaluator was never fitted to have scores r_i = |G_i − V̂_i| / u(Ξ_i), with the
mean return G_i from their start states and the mean prediction V̂_i there. With

    V̂ ± q u(Ξ),    q = the (n + 1 − k)-th smallest r_i,    k = max{k : P(Binomial(n, 0.1) ≤ k − 1) ≤ 0.05}

at least 90 % of all policies that are drawn like these have their mean return in their interval, at confidence 95 % over the n
that were held out (a tolerance interval; with the ⌈(n + 1) · 0.9⌉-th, split conformal prediction, 90 % would be the average
over held-out sets, and about half of all evaluators would cover less). u says how hard policies of this behaviour are to
predict: the mean error on the nearest behaviours that the evaluator *was* fitted to. Whatever u is, the interval is valid.

**Warning.** An evaluator may know nothing about a behaviour for two reasons. First, it is unlike anything that was remembered:
the distance of Ξ to the nearest remembered behaviour, in standardised units, is compared with the distance of each remembered
behaviour to the nearest other one, and hardly any of these are as large. Second, it is like behaviour that was mispredicted: the
interval reaches further than REACH of the range of all returns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from evarl.assessment.behaviour import Behaviour
from evarl.bounds.ranks import least_rollouts, order_index
from evarl.evaluators.evaluator import LearntEvaluator, features
from evarl.evaluators.knowledge import Known
from evarl.stats.conformal import conformal_p_value

SHARE = 0.9
"""Share of policies whose interval holds their mean return."""
DOUBT = 0.05
"""Probability, over the policies that are held out, that this share is not reached."""
LEVEL = 0.02
"""A behaviour is outside of what is known if its p-value is below this."""
NEIGHBOURS = 5
"""Fitted policies whose errors say how hard a behaviour is to predict."""
REACH = 0.15
"""Half the length of an interval, relative to the range of returns, above which a behaviour is not known."""
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


class Mispredicted(NamedTuple):
    """A behaviour like that of policies whose values were predicted badly, so that the interval says little."""

    reach: float
    """Half the length of the interval."""
    error: float
    """Mean absolute error on the perturbed policies that behaved most alike."""
    spread: float
    """Range of the mean returns of all perturbed policies."""
    policies: int
    """How many of them behaved most alike."""

    def __str__(self) -> str:
        return (
            f"the {self.policies} perturbed policies that behaved most alike were mispredicted by {self.error:.3g} on average, "
            f"and the interval reaches {self.reach:.3g} from the prediction, where all returns lie within {self.spread:.3g} of "
            "one another"
        )


class Judgement(NamedTuple):
    """What stands beside a prediction."""

    interval: PredictionInterval | None
    no_interval: str | None
    """Why there is no interval; None if there is one."""
    p_value: float | None
    """Of the distance to what is remembered; None if the memory was not diverse."""
    outside: Outside | Mispredicted | None
    """None if the behaviour is like others, or if that is not known."""


def judge(
    learnt: LearntEvaluator,
    behaviour: Behaviour,
    predicted: float | None,
    possible: tuple[float, float] = (-np.inf, np.inf),
) -> Judgement:
    """What an evaluator knows about the policy that behaved like this; `predicted` is None if it predicts nothing.

    Returns are always within `possible`, and so is the interval.
    """
    knowledge = learnt.knowledge
    if knowledge is None:
        return Judgement(None, "it was not asked for", None, None)
    points = Standardised.by(knowledge.others)
    own = points.of(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], behaviour))
    others = points.of(knowledge.others.behaviour)
    outside, p_value = _outside(np.concatenate([others, points.of(knowledge.earlier)]), own)
    if predicted is None:
        return Judgement(None, "the evaluator was not fitted", p_value, outside)
    scores = errors(knowledge.held_out) / difficulty(points.of(knowledge.held_out.behaviour), others, knowledge.others)
    count, least = len(scores), least_rollouts(1 - SHARE, DOUBT)
    if count < least:
        why = (
            f"{count} held-out policies are too few for {SHARE:.0%} at confidence {1 - DOUBT:.0%}, which takes {least}"
        )
        why = f"{why}; raise --evaluator.reservoir, --evaluator.perturbed or --updates"
        return Judgement(None, why, p_value, outside)
    reach = tolerance_quantile(scores) * float(difficulty(own, others, knowledge.others)[0])
    missed = outside or _mispredicted(reach, knowledge.others, others, own)
    lowest, highest = possible
    low, high = max(predicted - reach, lowest), min(predicted + reach, highest)
    return Judgement(PredictionInterval(low, high, SHARE, 1 - DOUBT, count), None, p_value, missed)


def tolerance_quantile(scores: Float[np.ndarray, " n"]) -> float:
    """The (n + 1 − k)-th smallest score: at least SHARE of all scores are below it, at confidence 1 − DOUBT."""
    return float(np.sort(scores)[len(scores) - order_index(len(scores), 1 - SHARE, DOUBT)])


def errors(known: Known) -> Float[np.ndarray, " n"]:
    """|mean return − mean prediction| of each policy."""
    return np.abs(np.asarray(known.returned, np.float64) - np.asarray(known.predicted, np.float64))


def difficulty(points: Asked, fitted: Points, known: Known) -> Float[np.ndarray, " m"]:
    """The mean error on the NEIGHBOURS fitted policies nearest to each of m points, and a little of the mean over all of them."""
    wrong = errors(known)
    return error_nearby(points, fitted, known) + FLOOR * wrong.mean() + np.finfo(np.float32).tiny


def error_nearby(points: Asked, fitted: Points, known: Known) -> Float[np.ndarray, " m"]:
    """The mean error on the NEIGHBOURS known policies nearest to each of m points."""
    nearest = np.argsort(distances(points, fitted), axis=1, kind="stable")[:, :NEIGHBOURS]
    return errors(known)[nearest].mean(axis=1)


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


def _mispredicted(reach: float, known: Known, points: Points, own: Asked) -> Mispredicted | None:
    spread = float(np.ptp(np.asarray(known.returned, np.float64)))
    if reach <= REACH * spread:
        return None
    error = float(error_nearby(own, points, known)[0])
    return Mispredicted(reach, error, spread, min(NEIGHBOURS, len(known.returned)))


class Standardised(NamedTuple):
    """Behaviours as points, whose coordinates are in deviations of what some policies showed."""

    mean: Float[np.ndarray, " d"]
    deviation: Float[np.ndarray, " d"]

    @classmethod
    def by(cls, known: Known) -> "Standardised":
        """In the deviations of these policies; what they all share counts as it is."""
        rows = _rows(known.behaviour)
        deviation = rows.std(axis=0)
        return cls(
            rows.mean(axis=0), np.where(deviation > np.finfo(np.float32).eps * np.abs(rows).max(), deviation, 1.0)
        )

    def of(self, behaviour: Behaviour) -> Points:
        """Stacked behaviours [n, k, ...] as points."""
        return (_rows(behaviour) - self.mean) / self.deviation


def _rows(behaviour: Behaviour) -> Points:
    shown = np.asarray(jax.vmap(features)(behaviour), np.float64)
    return shown.reshape(len(shown), -1)
