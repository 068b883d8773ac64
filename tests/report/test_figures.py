"""Pictures are drawn without a screen; what they look like is judged by eye."""

import dataclasses

import numpy as np

from evarl.evaluation.predictors import EVALUATOR
from evarl.evaluation.results import Evaluation, Queries, SeedEvaluation
from evarl.evaluation.scores import MeanAndError
from evarl.report.figures import STYLES, evaluation_picture
from evarl.truth.monte_carlo import Truth


def test_a_picture_is_a_png_even_of_a_single_perfect_point():
    truth = Truth(np.zeros(1), np.zeros(1), np.zeros(1), rollouts=2)
    seed = SeedEvaluation(
        0, MeanAndError(0.0), MeanAndError(0.0), [], {"start": Queries(truth, {EVALUATOR: np.zeros((1, 1))})}
    )
    numbers = {"beta": 0.0, "discount": 0.9, "horizon": 5, "rollouts": 2, "drawn": 1, "distinct": 1}
    rest = {field.name: None for field in dataclasses.fields(Evaluation)} | {"world": "a world", "seeds": [seed]}
    picture = evaluation_picture(Evaluation(**(rest | numbers)))
    assert picture.startswith(b"\x89PNG")
    assert len(set(STYLES.values())) == len(STYLES)
