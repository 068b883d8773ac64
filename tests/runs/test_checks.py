"""Results that mean nothing do not look as if they did: what was not fitted, is not finite, or belongs to another run."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from evarl.errors import FileError, InputError
from evarl.evaluation.controlled import frozen_values
from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, ZEROED
from evarl.storage.tensors import load_arrays, save_tree
from tests.evaluation.tiny import train_tiny

REASON = "2 updates do not exceed the warm-up of 2; train for more, or lower --evaluator.warmup"
EVALUATE = ["--rollouts", "4", "--states", "8"]
COMMANDS = {"assess": [], "evaluate": [*EVALUATE, "--json"], "certify": ["--rollouts", "20"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


@pytest.fixture(scope="module")
def unfitted(tmp_path_factory) -> evarl.Run:
    """As long as its warm-up."""
    return train_tiny(tmp_path_factory.mktemp("tiny") / "unfitted", updates=2)


def copied(run: evarl.Run, path: Path) -> evarl.Run:
    return evarl.Run.load(shutil.copytree(run.path, path))


def refused(capsys, command: str, run: Path, *more: str) -> str:
    """What a command says on one line before it leaves with 2."""
    assert call([command, str(run), *COMMANDS[command], *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("evarl: ")]
    return line


# --- Evaluators that were not fitted


@pytest.mark.slow
def test_one_update_more_than_the_warm_up_fits(unfitted, tmp_path):
    assert unfitted.evaluator_state(1).state.steps() == 0
    more = train_tiny(tmp_path / "more", updates=3)
    assert more.fitted_evaluator(1).state.steps() == 5
    with pytest.raises(InputError, match=r"the evaluator of seed 1 was not fitted: 2 updates do not exceed"):
        unfitted.fitted_evaluator(1)


def test_assess_gives_no_number_for_an_evaluator_that_was_not_fitted(unfitted, capsys):
    arguments = ["assess", str(unfitted.path), "--states", "0.1,0.1"]
    assert call([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["predicted"] is None
    assert found["predicted_spread"] is None
    assert found["states"] == [{"state": [0.1, 0.1], "predicted": None}]
    assert found["not_fitted"] == f"the evaluator of seed 0 was not fitted: {REASON}"
    assert all(np.isfinite(scenario["return"]) for scenario in found["scenarios"])
    assert found["not_fitted"] in err
    assert call(arguments) == 0
    out, _ = capsys.readouterr()
    assert f"predicted deployment value: not fitted (the evaluator of seed 0 was not fitted: {REASON})" in out
    assert "predicted value at" not in out


@pytest.mark.slow
def test_evaluate_keeps_truth_and_critic_of_an_evaluator_that_was_not_fitted(unfitted, run, capsys):
    assert call(["evaluate", str(unfitted.path), *EVALUATE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    reason = f"the evaluator of seed 0 was not fitted: {REASON}"
    assert found["not_fitted"] == reason
    assert reason in found["notes"]
    assert found["return_discounted"]["mean"] < 0
    for kind in ("start", "visited"):
        rows = {row["predictor"]: row for row in found["rows"] if row["queries"] == kind}
        assert list(rows) == [EVALUATOR, ZEROED, CRITIC, BATCH]
        assert [rows[name]["mae"]["mean"] is None for name in rows] == [True, True, False, False]
        assert [rows[name]["not_fitted"] for name in rows] == [reason, reason, None, None]
        assert set(found["seeds"][0]["queries"][kind]["scores"]) == {CRITIC, BATCH}
    assert set(found["policies"]) == {CRITIC, BATCH}
    assert call(["evaluate", str(unfitted.path), *EVALUATE]) == 0
    assert "not fitted" in capsys.readouterr().out
    assert list(frozen_values(unfitted, 0)) == [CRITIC]
    assert list(frozen_values(run, 0)) == [EVALUATOR, CRITIC]


@pytest.mark.slow
def test_a_passive_evaluator_that_was_not_fitted_is_called_so(run, tmp_path, capsys):
    passive = train_tiny(tmp_path / "passive", updates=2, beta=0.0, evaluator_mode="colearned")
    assert call(["evaluate", str(run.path), *EVALUATE, "--seeds", "0", "--passive", str(passive.path)]) == 0
    out, _ = capsys.readouterr()
    assert out.count("not fitted") == 3, "two tables and a note"
    assert f"note: passive: the evaluator of seed 0 was not fitted: {REASON}" in out


def test_what_was_not_fitted_cannot_be_frozen(unfitted, tmp_path):
    file = unfitted.path / "evaluator" / "seed-0.safetensors"
    config = dataclasses.replace(
        unfitted.config,
        evaluator_mode="frozen",
        evaluator=dataclasses.replace(unfitted.config.evaluator, file=str(file)),
    )
    with pytest.raises(
        InputError, match=r"evaluator\.file: .*seed-0\.safetensors was not fitted; train its run for more"
    ):
        evarl.train(config, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


# --- Parameters that are not numbers


def rewritten(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """The same file, checksum included, with other arrays."""
    arrays, about = load_arrays(path)
    change(arrays)
    save_tree(path, arrays, about)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_policy_that_is_not_finite_is_refused_by_all(run, command, value, tmp_path, capsys):
    broken = copied(run, tmp_path / "broken")
    file = broken.path / "policy" / "seed-0.safetensors"

    def one_bias(arrays):
        (name, *_) = [name for name in arrays if name.startswith("actor") and name.endswith("bias")]
        arrays[name] = arrays[name].copy()
        arrays[name][0] = value

    rewritten(file, one_bias)
    line = refused(capsys, command, broken.path)
    assert f"{file}: actor/" in line
    assert f"is {value} in 1 of " in line
    assert call(["assess", str(run.path), "--policy", str(file)]) == 2
    assert "must be finite numbers" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["assess", "evaluate"])
def test_an_evaluator_that_is_not_finite_is_refused(run, command, tmp_path, capsys):
    broken = copied(run, tmp_path / "broken")
    file = broken.path / "evaluator" / "seed-0.safetensors"

    def scale(arrays):
        arrays["state/target/mean"] = np.full_like(arrays["state/target/mean"], np.nan)

    rewritten(file, scale)
    assert f"{file}: state/target/mean is nan in 1 of 1 places" in refused(capsys, command, broken.path)


# --- Files of another seed or another run


@pytest.mark.parametrize("command", COMMANDS)
def test_the_policy_of_another_seed_or_run_is_noticed(run, unfitted, command, tmp_path, capsys):
    for number, source in enumerate(
        (run.path / "policy/seed-1.safetensors", unfitted.path / "policy/seed-0.safetensors")
    ):
        changed = copied(run, tmp_path / str(number))
        file = changed.path / "policy" / "seed-0.safetensors"
        shutil.copy(source, file)
        line = refused(capsys, command, changed.path)
        theirs, seed = (run.config, 1) if number == 0 else (unfitted.config, 0)
        assert f"{file}: is the policy of seed {seed} of a run with the configuration {theirs.hash()}" in line
        assert f"must be of seed 0 of {run.config.hash()}" in line


@pytest.mark.parametrize("command", ["assess", "evaluate"])
def test_the_evaluator_of_another_seed_or_run_is_noticed(run, unfitted, command, tmp_path, capsys):
    pretrained = tmp_path / "pretrained.safetensors"
    evarl.runs.assessments.save_evaluator(pretrained, run.evaluator_state(0), run.config)
    for source, seed, theirs in (
        (run.path / "evaluator/seed-1.safetensors", 1, run.config),
        (unfitted.path / "evaluator/seed-0.safetensors", 0, unfitted.config),
        (pretrained, "all", run.config),
    ):
        changed = copied(run, tmp_path / f"{seed}")
        file = changed.path / "evaluator" / "seed-0.safetensors"
        shutil.copy(source, file)
        line = refused(capsys, command, changed.path)
        assert f"{file}: is the evaluator of seed {seed} of a run with the configuration {theirs.hash()}" in line


def test_a_file_that_does_not_say_whose_it_is_is_refused(run, tmp_path):
    old = copied(run, tmp_path / "old")
    for kind, load in (("evaluator", old.evaluator_state), ("policy", old.policy_state)):
        file = old.path / kind / "seed-0.safetensors"
        arrays, about = load_arrays(file)
        save_tree(file, arrays, {name: said for name, said in about.items() if name not in ("seed", "hash")})
        with pytest.raises(FileError, match=f"is the {kind} of seed unknown of a run with the configuration unknown"):
            load(0)
    shutil.copy(run.path / "evaluator" / "seed-0.safetensors", old.path / "policy" / "seed-0.safetensors")
    with pytest.raises(FileError, match="is of kind evaluator; must be the policy of seed 0"):
        old.policy_state(0)


# --- Base policies of another world


def test_a_base_run_of_another_world_is_refused(run, tmp_path):
    base = dataclasses.replace(run.config.assessment, base_run=str(run.path))
    chain = dataclasses.replace(run.config, world="tabular/chain", assessment=base)
    with pytest.raises(InputError, match=r"base-run: .* was trained in navigation, not in tabular/chain"):
        evarl.train(chain, out=tmp_path / "run", quiet=True)
    host = dataclasses.replace(chain, world="gymnasium/CartPole-v1")
    with pytest.raises(InputError, match=r"base-run: .* was trained in navigation, not in gymnasium/CartPole-v1"):
        evarl.train(host, out=tmp_path / "run", quiet=True)
    field = dataclasses.replace(run.config, assessment=base)
    with pytest.raises(InputError, match=r"base-run: .* would have no effect, since start states in navigation do not"):
        evarl.train(field, out=tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())
