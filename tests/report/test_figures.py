"""Figures are drawn without a screen; what they look like is judged by eye."""

import numpy as np

from evarl.evaluation.predictors import EVALUATOR
from evarl.evaluation.results import Evaluation, Queries, SeedEvaluation
from evarl.evaluation.scores import MeanAndError
from evarl.report.figures import STYLES, evaluation_picture
from evarl.truth.monte_carlo import Truth


def test_a_picture_is_a_png_even_of_a_single_perfect_point():
    truth, zero = Truth(np.zeros(1), np.zeros(1), np.zeros(1), rollouts=2), MeanAndError(0.0)
    seed = SeedEvaluation(0, zero, zero, [], {"start": Queries(truth, {EVALUATOR: np.zeros((1, 1))})})
    numbers = {"beta": 0.0, "discount": 0.9, "horizon": 5, "rollouts": 2, "drawn": 1, "distinct": 1}
    texts = {"run": "a run", "world": "a world", "start_states": "1 of 1", "shuffled_with": None, "not_fitted": None}
    tables = {"seeds": [seed], "rows": [], "policies": {}, "best_without": {}, "notes": []}
    found = Evaluation(**numbers, **texts, **tables, discounted=zero, undiscounted=zero, passive=None)
    assert evaluation_picture(found).startswith(b"\x89PNG")
    assert len(set(STYLES.values())) == len(STYLES)
