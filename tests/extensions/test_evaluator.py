"""An evaluator of one's own, in one file and by public names: training, assessment, evaluation and files."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

import evarl


class MeanOfBehaviour(nn.Module):
    """A line through the mean of the behaviour, the same value at every query."""

    config: evarl.NetworkConfig
    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, scenarios, behaviour, queries):
        value = nn.Dense(1, param_dtype=self.dtype)(behaviour.mean(axis=0))
        return jnp.broadcast_to(value, (len(queries),))


evarl.register_evaluator("mean-of-behaviour", MeanOfBehaviour)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {"evaluator.network.kind": "mean-of-behaviour", "evaluator.warmup": 1, "evaluator.initial_steps": 5}
    small = {"beta": 0.05, "environments": 2, "steps": 8, "updates": 4}
    config = evarl.with_settings(evarl.preset("navigation"), settings | small)
    return evarl.train(config, out=tmp_path_factory.mktemp("run") / "own", quiet=True)


def test_it_is_fitted_saved_and_read(run):
    parameters = evarl.Run.load(run.path).fitted_evaluator().state.parameters["params"]["Dense_0"]
    assert parameters["kernel"].shape == (1, 1)
    assert np.isfinite(run.metrics["evaluator_loss"].to_numpy()).all()


@pytest.mark.slow
def test_assess_and_evaluate_use_it(run):
    states = "0.1,0.1 0.9,0.9"
    first, second = evarl.assess(run, states=states, interval=False).predicted_at_states
    assert first == second, "it does not look at the query"
    assert "evaluator" in {row.predictor for row in evarl.evaluate(run, rollouts=2, states=2).rows}
