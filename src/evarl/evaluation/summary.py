"""Errors of each predictor over all seeds of an evaluation."""

from collections.abc import Sequence

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, ORDER, WITHOUT, ZEROED
from evarl.evaluation.results import START, Row, SeedEvaluation
from evarl.evaluation.scores import UNKNOWN, MeanAndError, Score, average, root, skill_of_scores
from evarl.ope.metrics import PolicyMetrics, policy_metrics
from evarl.ope.registry import LABELS
from evarl.stats import spearman


def table(seeds: Sequence[SeedEvaluation], not_fitted: str | None) -> tuple[list[Row], dict[str, str]]:
    """Rows for every kind of states and predictor, and the best predictor without Ξ by kind of states."""
    rows, best = [], {}
    for kind in seeds[0].queries:
        for name in (EVALUATOR, ZEROED) if not_fitted else ():
            rows.append(Row(name, kind, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, None, UNKNOWN, not_fitted))
        scores = [seed.queries[kind].scores for seed in seeds]
        by_predictor = {name: [one[name] for one in scores] for name in shared(scores)}
        skilled = UNKNOWN
        if EVALUATOR in by_predictor:
            without = {name: by_predictor[name] for name in WITHOUT if name in by_predictor}
            found = skill_of_scores(by_predictor[EVALUATOR], without)
            skilled = found.estimate
            if found.best_without is not None:
                best[kind] = found.best_without
        for name, column in by_predictor.items():
            over_seeds = spearman(*start_means(seeds, name)) if kind == START else None
            rows.append(_row(name, kind, column, over_seeds, skilled if name == EVALUATOR else UNKNOWN))
    return rows, best


def over_policies(seeds: Sequence[SeedEvaluation]) -> dict[str, PolicyMetrics]:
    """How well each predictor orders and measures the policies of at least two seeds, by their means over start states."""
    if len(seeds) < 2:
        return {}
    names = shared([seed.queries[START].predictions for seed in seeds])
    return {name: policy_metrics(*start_means(seeds, name)) for name in names}


def shared(columns: Sequence[dict]) -> list[str]:
    """Predictors that every seed has, in the order of tables."""
    return [name for name in (*ORDER, *LABELS.values()) if all(name in column for column in columns)]


def start_means(seeds: Sequence[SeedEvaluation], predictor: str) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true values of each seed's policy, averaged over start states."""
    starts = [seed.queries[START] for seed in seeds]
    predicted = np.array([one.predictions[predictor].mean() for one in starts])
    return predicted, np.array([one.truth.value.mean() for one in starts])


def _row(predictor: str, kind: str, column: Sequence[Score], rank_seeds: float | None, skill: MeanAndError) -> Row:
    return Row(
        predictor=predictor,
        queries=kind,
        mae=average([one.mae for one in column]),
        rmse=root(average([one.mse for one in column])),
        bias=average([one.bias for one in column]),
        rank_states=average([one.rank for one in column]),
        rank_seeds=rank_seeds,
        skill=skill,
    )
