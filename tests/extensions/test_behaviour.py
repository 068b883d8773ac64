"""A kind of behaviour Ξ of one's own, in one file and by public names: training, assessment, evaluation, files and controls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.cli.main import call


class ReturnsStepsAndProbabilities:
    """For each start state the return, the number of steps, and the probabilities of the first action."""

    def rolled_out(self, rollout, rewards_to_go):
        steps = jnp.cumsum(rollout.alive[::-1].astype(jnp.float32), axis=0)[::-1]
        return {"return": rewards_to_go, "steps": steps}

    def pathwise(self, rollout, policy):
        return jax.nn.softmax(policy(rollout.observation[0, :, 0]).logits)


evarl.register_behaviour("returns-steps-probabilities", ReturnsStepsAndProbabilities)
SETTINGS = {
    "assessment.behaviour": "returns-steps-probabilities",
    "assessment.replicates": 2,
    "evaluator.warmup": 1,
    "evaluator.initial_steps": 5,
    "evaluator.policies": 3,
    "evaluator.network.width": 8,
    "beta": 0.05,
    "environments": 2,
    "steps": 8,
    "updates": 4,
    "seeds": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = evarl.with_settings(evarl.preset("navigation"), SETTINGS)
    return evarl.train(config, out=tmp_path_factory.mktemp("run") / "own", quiet=True)


@pytest.mark.slow
def test_evaluators_are_saved_with_all_of_the_behaviour(run):
    learnt = evarl.Run.load(run.path).evaluator_state(1)
    assert {name: x.shape for name, x in learnt.remembered.rolled_out.items()} == {"return": (3, 4), "steps": (3, 4)}
    assert learnt.remembered.pathwise.shape == (3, 4, 4)
    assert (np.asarray(learnt.lowest.pathwise) <= np.asarray(learnt.highest.pathwise)).all()
    assert learnt.highest.rolled_out["steps"].tolist() == [15.0] * 4, "15 steps in each scenario"


@pytest.mark.slow
def test_assess_and_evaluate_use_it(run, capsys):
    found = evarl.assess(run, interval=False)
    assert found.behaviour.shape == (4, 6), "two statistics and four probabilities for each start state"
    np.testing.assert_allclose(found.behaviour[:, 0], found.mean_returns, rtol=1e-5)
    np.testing.assert_allclose(found.behaviour[:, 2:].sum(axis=1), np.ones(4), rtol=1e-5)
    evaluation = evarl.evaluate(run, rollouts=2, states=2)
    names = {row.predictor for row in evaluation.rows}
    assert {"evaluator", "evaluator, Ξ zeroed", "evaluator, Ξ shuffled"} <= names
    assert call(["assess", str(run.path), "--no-interval", "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.slow
def test_it_changes_what_the_policy_learns(run, tmp_path):
    other = evarl.with_settings(run.config, {"assessment.behaviour": "returns"})
    plain = evarl.train(other, out=tmp_path / "returns", quiet=True)
    assert not np.array_equal(plain.metrics["policy_loss"].to_numpy(), run.metrics["policy_loss"].to_numpy())


def test_an_evaluator_of_another_kind_is_refused(run, tmp_path):
    frozen = {"evaluator_mode": "frozen", "evaluator.file": str(run.path / "evaluator/seed-0.safetensors")}
    config = evarl.with_settings(run.config, {"assessment.behaviour": "returns"} | frozen)
    with pytest.raises(
        evarl.errors.InputError, match="has behaviour returns-steps-probabilities, the configuration returns"
    ):
        evarl.train(config, out=tmp_path / "frozen", quiet=True)


def test_a_policy_without_probabilities_cannot_be_assessed(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "up_only.py").write_text(
        "import jax.numpy as jnp\nact = lambda key, x: (jnp.zeros(len(x), int), None)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert call(["assess", str(run.path), "--policy-import", "up_only:act"]) == 2
    assert "requires the action probabilities of the policy" in capsys.readouterr().err


def test_unknown_kinds_are_refused_with_the_known_ones(capsys):
    assert call(["train", "navigation", "--beta", "0.1", "--assessment.behaviour", "return"]) == 2
    assert "assessment.behaviour: unknown 'return'; did you mean 'returns'?" in capsys.readouterr().err
