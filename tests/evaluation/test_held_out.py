"""Errors on held-out policies, of a real evaluator in a tiny study."""

import numpy as np

from evarl.evaluation.held_out import held_out_scores
from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.learning.configuration import with_settings
from evarl.learning.presets import preset
from evarl.learning.pretraining import remember
from evarl.runs.inputs import new_assessment

TINY = {
    "updates": 3,
    "environments": 2,
    "steps": 8,
    "agent.hidden_sizes": [8],
    "evaluator_mode": "colearned",
    "evaluator.network.kind": "linear",
}


def test_scores_on_policies_of_other_seeds():
    config = with_settings(preset("navigation"), TINY).resolved()
    past = remember(config, new_assessment(config, print), 3, 8, [0, 1, 2])
    scores = held_out_scores(past, config, [2], steps=5)
    assert scores.keys() == {EVALUATOR, SHUFFLED, BLIND, CONSTANT}
    target = np.asarray(past.policies.target, np.float64)
    error = target[:2].mean() - target[2].mean(axis=1)
    np.testing.assert_allclose(scores[CONSTANT].mse, (error**2).mean(), rtol=1e-4)
    np.testing.assert_allclose(scores[CONSTANT].bias, error.mean(), rtol=1e-4)
    assert all(np.isfinite(score.mse) for score in scores.values())
    assert scores[EVALUATOR].mse != scores[SHUFFLED].mse
