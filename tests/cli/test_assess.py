"""`evarl assess` as a user meets it."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Behaviour
from evarl.cli.main import call
from evarl.runs.assessments import save_evaluator
from tests.evaluation.tiny import constant, train_tiny, with_evaluators

UP = """
import jax.numpy as jnp

def up(key, observations):
    return jnp.ones(observations.shape[0], jnp.int32), None

def slow(key, observations):
    return [float(x) for x in observations], None

def seventh(key, observations):
    return jnp.where(observations[:, 0] > 0.5, 7, 1), None

def before_first(key, observations):
    return jnp.full(observations.shape[0], -1), None

def fraction(key, observations):
    return jnp.ones(observations.shape[0]), None

def pairs(key, observations):
    return jnp.ones((observations.shape[0], 2), jnp.int32), None

number = 3
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


def assessed(capsys, *arguments: str) -> dict:
    """The JSON object, the only thing on standard output."""
    assert call(["assess", *arguments, "--no-interval", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_an_evaluator_from_a_file_predicts_in_place_of_the_runs_own(run, tmp_path, capsys):
    other = with_evaluators(run, tmp_path / "other", constant)
    file = other.path / "evaluator" / "seed-1.safetensors"
    found = assessed(capsys, str(run.path), "--evaluator", str(file))
    assert (found["evaluator"], found["seed"]) == (str(file), 0)
    assert found["predicted"] == pytest.approx(float(run.evaluator_state(1).state.target.mean), rel=1e-6)
    assert found["predicted"] != assessed(capsys, str(run.path))["predicted"]
    assert call(["assess", str(run.path), "--evaluator", str(file), "--no-interval"]) == 0
    assert f"evaluator {file})" in capsys.readouterr().out


def test_an_evaluator_of_another_network_is_refused_in_one_line(run, tmp_path, capsys):
    other = evarl.with_settings(run.config, {"evaluator.network.width": 2 * run.config.evaluator.network.width})
    save_evaluator(tmp_path / "wide.safetensors", run.evaluator_state(0), other)
    assert call(["assess", str(run.path), "--evaluator", str(tmp_path / "wide.safetensors")]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "evaluator: " in line
    assert "has network.width" in line


def test_the_table_shows_scenarios_and_predictions(run, capsys):
    assert call(["assess", str(run.path), "--states", "0.1,0.1 0.5,0.9", "--replicates", "3", "--no-interval"]) == 0
    out, _ = capsys.readouterr()
    assert "0.25, 0.75" in out
    assert "1 distinct of 64 drawn from μ_D" in out
    assert "predicted value at 0.5, 0.9:" in out


def test_a_constant_evaluator_predicts_its_constant_everywhere(run, tmp_path, capsys):
    changed = with_evaluators(run, tmp_path / "constant", constant)
    said = float(changed.evaluator_state(1).state.target.mean)
    found = assessed(capsys, str(changed.path), "--seed", "1", "--states", "0.1,0.1 0.5,0.9")
    assert found["predicted"] == pytest.approx(said)
    assert [state["predicted"] for state in found["states"]] == pytest.approx([said, said])
    assert found["predicted_spread"] is None


def test_a_policy_in_python_shows_what_it_must(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver_of_tests.py").write_text(UP)
    found = assessed(capsys, str(run.path), "--policy-import", "driver_of_tests:up", "--replicates", "2")
    goal, returns = np.array([0.9, 0.9]), []
    for x, y in [(0.1, 0.1), (0.25, 0.75), (0.75, 0.25), (0.5, 0.5)]:  # no obstacle is above any of them
        heights = [min(1.0, y + 0.2 * step) for step in range(1, 16)]
        returns.append(-sum(np.hypot(x - goal[0], height - goal[1]) for height in heights))
    assert [scenario["return"] for scenario in found["scenarios"]] == pytest.approx(returns, rel=1e-5)
    for name, message in (
        ("slow", "inside a compiled program"),
        ("number", "is a int"),
        ("none", "cannot be imported"),
    ):
        assert call(["assess", str(run.path), "--policy-import", f"driver_of_tests:{name}"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seventh", "takes the action 7 in navigation; must be a whole number from 0 to 3"),
        ("before_first", "takes the action -1 in navigation; must be a whole number from 0 to 3"),
        ("fraction", "gives actions float32[3] for 3 observations; must be integer[3]"),
        ("pairs", "gives actions int32[3, 2] for 3 observations; must be integer[3]"),
    ],
)
def test_actions_that_the_world_does_not_have_are_refused(run, name, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver_of_tests.py").write_text(UP)
    assert call(["assess", str(run.path), "--policy-import", f"driver_of_tests:{name}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"evarl: policy-import: 'driver_of_tests:{name}' {message}\n"


@pytest.mark.slow
def test_actions_are_refused_before_a_world_on_the_host_takes_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver_of_tests.py").write_text(UP)
    seeds = dataclasses.replace(evarl.preset("navigation").assessment, start_states="1 2")
    small = {"environments": 2, "steps": 8, "updates": 3, "seeds": 1, "horizon": 8, "assessment": seeds}
    run = train_tiny(tmp_path / "run", world="gymnasium/CartPole-v1", **small)
    assert call(["assess", str(run.path), "--policy-import", "driver_of_tests:before_first"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("takes the action -1 in gymnasium/CartPole-v1; must be a whole number from 0 to 1\n")
    assert err.count("\n") == 1


def test_returns_outside_of_training_are_warned_about(run, tmp_path, capsys):
    def narrowed(seed, learnt):
        lowest = jnp.full(4, -100.0).at[2].set(5.0)
        return learnt.replace(lowest=Behaviour(lowest), highest=Behaviour(jnp.full(4, 100.0)))

    changed = with_evaluators(run, tmp_path / "narrow", narrowed)
    assert call(["assess", str(changed.path), "--no-interval", "--json"]) == 0
    out, err = capsys.readouterr()
    (outside,) = json.loads(out)["outside_training"]
    assert (outside["scenario"], outside["lowest"], outside["highest"]) == (3, 5.0, 100.0)
    assert f"scenario 3 returned {outside['returned']:.3f}, outside of 5.000 to 100.000" in err

    def exact(seed, learnt):  # the very returns that are about to be shown
        shown = jnp.asarray([scenario["return"] for scenario in json.loads(out)["scenarios"]], jnp.float32)
        return learnt.replace(lowest=Behaviour(shown), highest=Behaviour(shown))

    assert assessed(capsys, str(with_evaluators(run, tmp_path / "exact", exact).path))["outside_training"] == []


def test_policies_come_from_files_and_checkpoints(run, capsys):
    (newest,) = run.path.glob("checkpoints/*/update-*6.safetensors")
    finals = [
        assessed(capsys, str(run.path), "--policy", str(run.path / f"policy/seed-{i}.safetensors")) for i in (0, 1)
    ]
    assert finals[0]["scenarios"] == assessed(capsys, str(run.path))["scenarios"]
    for i in (0, 1):
        found = assessed(capsys, str(run.path), "--policy", str(newest), "--policy-seed", str(i))
        assert found["scenarios"] == finals[i]["scenarios"]
    assert call(["assess", str(run.path), "--policy", str(newest), "--policy-seed", "2"]) == 2
    assert "policy-seed: 2 is not allowed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_policy_of_other_shapes_is_refused(run, tmp_path, capsys):
    other = train_tiny(tmp_path / "other", hidden=4, beta=0.0, seeds=1, updates=1)
    assert call(["assess", str(run.path), "--policy", str(other.path / "policy/seed-0.safetensors")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Dense_0/bias is float32[4]; must be float32[8]; its networks must be those of this run" in err
    assert call(["assess", str(other.path)]) == 2
    assert "has no evaluator; train with --beta" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "9"], "seed: 9 is not one of this run's seeds"),
        (["--states", "5,5"], "states: (5.0, 5.0) is outside of navigation"),
        (["--states", "1"], "states: [(1.0,)] is not allowed; a state of navigation has 2 numbers"),
        (["--samples", "0"], "samples: 0 is not allowed"),
        (["--policy-import", "numpy"], "policy-import: 'numpy' is not allowed; must be module:name"),
        (["--policy", "a", "--policy-import", "b:c"], "only one of them"),
        (["--context", "slip=0.1"], "context: navigation was trained without contexts; none can be given"),
        (["--truth-episodes", "4"], "truth-episodes: navigation was trained without contexts"),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, message, capsys):
    assert call(["assess", str(run.path), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
