"""Controlled estimates of a run against the exact mean and variance, by dynamic programming."""

import pytest

import evarl
from benchmarks.variance import exact_figures, tables
from evarl.evaluation.controlled import controlled_estimates
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from tests.evaluation.tiny import train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


@pytest.mark.slow
def test_mean_and_variance_are_the_exact_ones(run):
    exact = exact_figures(run, seed=1, random_seed=3)
    found = {name: one.summary for name, one in controlled_estimates(run.path, 1, 4096, random_seed=3).items()}
    assert list(found) == [EVALUATOR, CRITIC]
    assert found[EVALUATOR].plain == found[CRITIC].plain, "the same rollouts"
    for name, told in found.items():
        assert told.plain == pytest.approx(exact["value"], abs=4 * told.plain_error)
        assert told.controlled == pytest.approx(exact["value"], abs=4 * told.controlled_error)
        assert told.plain_error**2 * 4096 == pytest.approx(exact["variance"], rel=0.15)
        assert told.variance_ratio == pytest.approx(exact["variance_ratios"][name], rel=0.15)
    assert exact["variance_ratios"]["V with all the time ahead"] > 1
    row = {"seed": 1, "exact": exact} | {name: told._asdict() for name, told in found.items()}
    assert f"| 1 | {exact['value']:.4f} | {told.plain:.4f} ± {told.plain_error:.4f} |" in tables([row])
