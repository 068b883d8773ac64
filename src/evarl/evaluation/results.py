"""Results of `evaluate`: true and predicted values of each seed's policy, and the table of errors over seeds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from evarl.evaluation.described import described_evaluation
from evarl.evaluation.logged import LoggedSeed, method_labels
from evarl.evaluation.predictions import Predictions
from evarl.evaluation.predictors import EVALUATOR, ORDER, SITE_ORDER, SITE_WITHOUT, WITHOUT, ZEROED
from evarl.evaluation.scores import UNKNOWN, MeanAndError, Score, average, root, score, skill
from evarl.ope.metrics import PolicyMetrics, policy_metrics
from evarl.stats import spearman
from evarl.truth.monte_carlo import Truth

START, VISITED = "start", "visited"
"""Kinds of states at which values are predicted: start states, and states that the policy visits."""
SITE = "site"
"""In a family of worlds: the mean over the start states of each site."""


@dataclass(frozen=True)
class Queries:
    """True and predicted values of one policy at Q states."""

    truth: Truth
    predictions: Predictions

    @property
    def scores(self) -> dict[str, Score]:
        """Errors by predictor."""
        return {name: score(self.truth, values) for name, values in self.predictions.items()}

    @property
    def mean_predictions(self) -> dict[str, Float[np.ndarray, " Q"]]:
        """Predicted values by predictor; `Ξ shuffled` is averaged over the other policies."""
        return {name: values.mean(axis=0) for name, values in self.predictions.items()}


@dataclass(frozen=True)
class SeedEvaluation:
    """Evaluation of one seed's final policy."""

    seed: int
    discounted: MeanAndError
    """True mean discounted return over μ_D, with the standard error of the Monte Carlo estimate."""
    undiscounted: MeanAndError
    assessment: list[float]
    """Mean return of each scenario in a fresh assessment; empty without an evaluator."""
    queries: dict[str, Queries]
    """By kind of states: start and visited."""
    logs: tuple[LoggedSeed, ...] = ()
    """Off-policy estimates from each part of the log, if requested."""


@dataclass(frozen=True)
class Row:
    """Errors of one predictor at one kind of states, over all seeds."""

    predictor: str
    queries: str
    mae: MeanAndError = UNKNOWN
    rmse: MeanAndError = UNKNOWN
    """Root of the noise-corrected mean squared error, which is averaged over seeds first."""
    bias: MeanAndError = UNKNOWN
    rank_states: MeanAndError = UNKNOWN
    """Rank correlation with the truth over states, averaged over seeds."""
    rank_seeds: float | None = None
    """Rank correlation over seeds of the means over start states."""
    skill: MeanAndError = UNKNOWN
    """Skill of the evaluator against the best predictor without Ξ; unknown for other predictors."""
    not_fitted: str | None = None
    """Why all numbers are missing, if the evaluator was not fitted."""


@dataclass(frozen=True)
class Sites:
    """The sites on which the policies of a family of worlds are evaluated."""

    contexts: list[str]
    """How contexts are drawn, in training and here."""
    names: list[str]
    drawn: Float[np.ndarray, "C P"]
    """The hidden context of each site."""
    exact: bool
    """Whether true values are exact, by dynamic programming, and not means of rollouts."""
    random_seed: int

    @property
    def count(self) -> int:
        """The number C."""
        return len(self.drawn)


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`."""

    run: str
    world: str
    beta: float
    discount: float
    horizon: int
    rollouts: int
    """Rollouts from each state."""
    start_states: str
    """How many start states were drawn, and how many of them are different."""
    drawn: int
    distinct: int
    shuffled_with: str | None
    """The policies whose Ξ is used for `Ξ shuffled`."""
    seeds: list[SeedEvaluation]
    rows: list[Row]
    policies: dict[str, PolicyMetrics]
    """By predictor: errors and ranks over the policies of the seeds, by their means over start states."""
    not_fitted: str | None
    """Why the evaluator predicts nothing; None if it was fitted, or if there is none."""
    best_without: dict[str, str]
    """The best predictor without Ξ by kind of states, with which the evaluator is compared by its skill."""
    discounted: MeanAndError
    """True mean return over μ_D, averaged over seeds; the standard error is over seeds, or that of a single seed."""
    undiscounted: MeanAndError
    notes: list[str]
    passive: "Evaluation | None"
    """Evaluation of a run with β = 0: its own policies against their own true values."""
    policy: str | None = None
    """The policy of another package about which the evaluators of the seeds were asked; None for the seeds' final policies."""
    predicted: MeanAndError = UNKNOWN
    """The evaluators' predictions, averaged over start states or sites and over seeds; the standard error is over seeds."""
    sites: Sites | None = None
    """In a family of worlds: the sites, over which values are compared; then there is one kind of queries, `site`."""
    random_seed: int = 0
    """Of start states, sites, rollouts, and the one draw of each policy's test from which its value is predicted."""

    def __repr__(self) -> str:
        return described_evaluation(self)

    def row(self, predictor: str, queries: str) -> Row:
        """One row of the table."""
        return next(row for row in self.rows if (row.predictor, row.queries) == (predictor, queries))


def table(seeds: Sequence[SeedEvaluation], not_fitted: str | None) -> tuple[list[Row], dict[str, str]]:
    """Rows for every kind of states and predictor, and the best predictor without Ξ by kind of states."""
    rows: list[Row] = []
    best: dict[str, str] = {}
    for kind in seeds[0].queries:
        rows += [Row(name, kind, not_fitted=not_fitted) for name in (EVALUATOR, ZEROED) if not_fitted]
        scores = [seed.queries[kind].scores for seed in seeds]
        columns = {name: [one[name] for one in scores] for name in _shared(scores, kind)}
        skilled = UNKNOWN
        if EVALUATOR in columns:
            without = {name: columns[name] for name in _without(kind) if name in columns}
            skilled, reference = skill(columns[EVALUATOR], without)
            best |= {} if reference is None else {kind: reference}
        for name, column in columns.items():
            rank_seeds = spearman(*_start_means(seeds, name)) if kind == START else None
            rows.append(_row(name, kind, column, rank_seeds, skilled if name == EVALUATOR else UNKNOWN))
    return rows, best


def over_policies(seeds: Sequence[SeedEvaluation]) -> dict[str, PolicyMetrics]:
    """How well each predictor orders and measures the policies of at least two seeds, by their means over start states."""
    if len(seeds) < 2:
        return {}
    names = _shared([seed.queries[START].predictions for seed in seeds], START)
    return {name: policy_metrics(*_start_means(seeds, name)) for name in names}


def predicted(seeds: Sequence[SeedEvaluation], kind: str) -> MeanAndError:
    """The evaluator's mean prediction over queries of one kind, averaged over seeds."""
    found = [seed.queries[kind].predictions.get(EVALUATOR) for seed in seeds]
    return average([None if values is None else float(values.mean()) for values in found])


def _shared(columns: Sequence[Collection[str]], kind: str) -> list[str]:
    """Predictors that every seed has, in the order of tables."""
    every = (*(SITE_ORDER if kind == SITE else ORDER), *method_labels())
    return [name for name in every if all(name in column for column in columns)]


def _without(kind: str) -> tuple[str, ...]:
    return SITE_WITHOUT if kind == SITE else WITHOUT


def _start_means(seeds: Sequence[SeedEvaluation], predictor: str) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true values of each seed's policy, averaged over start states."""
    starts = [seed.queries[START] for seed in seeds]
    predicted = np.array([one.predictions[predictor].mean() for one in starts])
    return predicted, np.array([one.truth.value.mean() for one in starts])


def _row(predictor: str, kind: str, column: Sequence[Score], rank_seeds: float | None, skilled: MeanAndError) -> Row:
    mae, mse, bias, rank = (average([getattr(one, x) for one in column]) for x in ("mae", "mse", "bias", "rank"))
    return Row(predictor, kind, mae, root(mse), bias, rank, rank_seeds, skilled)
