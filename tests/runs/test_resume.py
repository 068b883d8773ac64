"""Interruptions of every kind, and that what comes out is what would have come out without them."""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import evarl
from evarl.errors import DivergedError, FileError, InputError, WorldError
from tests.evaluation.tiny import train_once
from tests.runs.test_runs import RESULTS, same_files

LONG = ["navigation", "--environments", "2", "--steps", "16", "--updates", "2000", "--seeds", "2"]
LONG += ["--agent.hidden-sizes", "8", "--checkpoint-seconds", "0.2", "--quiet"]


def evarl_train(out: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-c", "from evarl.cli.main import main; main()", "train", *LONG, "--out", str(out)]
    return subprocess.Popen([*command, *more], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


def assert_kills_change_nothing(folder: Path, times: int, *more: str, files: Sequence[str] = RESULTS) -> None:
    """Killed at a random moment after some checkpoints, `times` times, and resumed, it ends with the same bits."""
    code, _, err = finish(evarl_train(folder / "whole", *more))
    assert code == 0, err
    randomness, killed = random.Random(0), 0
    for _ in range(times):
        seen, wanted = set(folder.glob("killed/checkpoints/*/*")), randomness.choice([1, 2])
        process = evarl_train(folder / "killed", *more, "--resume")
        while process.poll() is None and len(set(folder.glob("killed/checkpoints/*/*")) - seen) < wanted:
            time.sleep(0.02)
        time.sleep(randomness.uniform(0.0, 0.2))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
    code, _, err = finish(evarl_train(folder / "killed", *more, "--resume"))
    assert code == 0, err
    assert killed >= 1
    newest = max((folder / "whole" / "checkpoints" / "seeds-0-1").iterdir()).relative_to(folder / "whole")
    assert same_files(folder / "whole", folder / "killed", [*files, str(newest)])


@pytest.mark.slow
def test_killed_ten_times_and_resumed_is_bit_identical(tmp_path):
    assert_kills_change_nothing(tmp_path, 10)


@pytest.mark.slow
def test_a_diverse_memory_goes_on_from_a_checkpoint_as_if_nothing_had_been(small, tmp_path):
    """Continued from the checkpoint before the last, while the reservoirs are being replaced: the same bits."""
    kept = {"memory": "diverse", "reservoir": 5, "perturbed": 2, "perturbed_environments": 1}
    evaluator = dataclasses.replace(small.evaluator, **kept, warmup=2, initial_steps=3, policies=2)
    assessment = dataclasses.replace(small.assessment, scenarios=4)
    config = dataclasses.replace(small, evaluator_mode="colearned", evaluator=evaluator, assessment=assessment)
    whole = evarl.train(config, out=tmp_path / "whole", quiet=True, checkpoint_seconds=1e-6)
    shutil.copytree(whole.path, tmp_path / "again")
    (tmp_path / "again" / "summary.json").unlink()
    *_, before, newest = sorted((tmp_path / "again" / "checkpoints" / "seeds-0-1").iterdir())
    assert before.name > "update-000000002"
    newest.unlink()
    evarl.train(config, out=tmp_path / "again", resume=True, quiet=True)
    names = [str(newest.relative_to(tmp_path / "again")), *(f"evaluator/seed-{seed}.safetensors" for seed in (0, 1))]
    assert same_files(whole.path, tmp_path / "again", [*RESULTS, *names])


@pytest.mark.slow
def test_what_training_decides_by_itself_survives_kills(tmp_path):
    """Start states that were chosen, a warm-up that ends by itself and a β that follows a target."""
    more = ["--beta", "0.5", "--target-error", "0.3", "--ramp", "50", "--assessment.select", "greedy"]
    more += [
        "--assessment.base-updates",
        "100",
        "--agent.actor-learning-rate",
        "0.02",
        "--assessment.horizon",
        "20",
        "--rollouts-per-start",
        "2",
        "--evaluator.warmup-ends",
        "auto",
    ]
    more += ["--evaluator.network.width", "8", "--evaluator.batch-size", "16", "--evaluator.initial-steps", "20"]
    files = [*RESULTS, "evaluator/seed-0.safetensors", "evaluator/seed-1.safetensors", "assessment.safetensors"]
    assert_kills_change_nothing(tmp_path, 4, *more, files=files)


@pytest.mark.slow  # `test_faults.py` has both signals too
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_exits_cleanly(tmp_path, number):
    process = evarl_train(tmp_path / "run", "--updates", "1000000")  # it cannot end before the signal
    while not list(tmp_path.glob("run/checkpoints/*/update-00000[1-9]*")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + number
    assert "stopped after update" in err
    assert "--resume" in err
    assert "Traceback" not in err
    assert not list((tmp_path / "run").rglob(".*"))


@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(one, marks=pytest.mark.slow) for one in ("truncated", "emptied"))]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(damage, small, tmp_path, capfd):
    whole = train_once(small, tmp_path / "whole")
    out = tmp_path / damage
    shutil.copytree(whole.path, out)
    (out / "summary.json").unlink()
    newest = max((out / "checkpoints" / "seeds-0-1").iterdir())
    data = bytearray(newest.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    newest.write_bytes({"truncated": data[:-100], "flipped": data, "emptied": b""}[damage])
    evarl.train(small, out=out, resume=True)
    said = capfd.readouterr().err
    assert f"{newest.name}: corrupt" in said
    assert "falling back to the checkpoint before it" in said
    assert same_files(whole.path, out, RESULTS)


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    """A limit on the size of files stands in for a full disk: writing fails half-way with an error from the system."""
    process = evarl_train(tmp_path / "run")
    while not list(tmp_path.glob("run/checkpoints/*/update-00000[1-9]*")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    finish(process)
    good = {p: p.read_bytes() for p in tmp_path.glob("run/checkpoints/*/*")}
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "from evarl.cli.main import main; main()"
    )
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", limited, "train", *LONG, "--out", str(tmp_path / "run"), "--resume"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 2
    assert "cannot write" in result.stderr
    assert "what was there before is intact" in result.stderr
    assert {p: p.read_bytes() for p in tmp_path.glob("run/checkpoints/*/*")} == good
    code, _, err = finish(evarl_train(tmp_path / "run", "--resume"))
    assert code == 0, err


def test_resume_with_another_configuration_lists_the_differences(small, tmp_path):
    train_once(small, tmp_path / "run")
    other = dataclasses.replace(small, updates=99, agent=dataclasses.replace(small.agent, gae_lambda=0.5))
    with pytest.raises(InputError) as error:
        evarl.train(other, out=tmp_path / "run", resume=True, quiet=True)
    assert "agent.gae_lambda: 0.95 ≠ 0.5; updates: 12 ≠ 99" in str(error.value)


def test_a_second_process_in_the_same_directory_is_refused(small, tmp_path):
    from evarl.runs.directory import create, open_run

    kept = create(tmp_path / "run", small, [[0, 1]])
    with kept.locked(), pytest.raises(InputError, match="another process is training"), open_run(kept.path).locked():
        raise AssertionError("the lock did not hold")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"layout": 2}', '{"layout": 2, "seed_groups": 3}'])
def test_a_damaged_configuration_is_one_clear_error(small, tmp_path, text):
    run = train_once(small, tmp_path / "run")
    (run.path / "config.json").write_text(text)
    with pytest.raises(FileError, match=r"config\.json"):
        evarl.Run.load(run.path)


def test_nan_stops_training_at_once_and_says_what_and_where(small, tmp_path):
    """Rewards near the end of float32 overflow in the first sum."""
    arrays = {"transitions": np.ones((1, 1, 1)), "rewards": np.full((1, 1), 3e38), "start": np.ones(1)}
    np.savez(tmp_path / "mdp.npz", **arrays)
    config = dataclasses.replace(small, world=f"tabular/{tmp_path}/mdp.npz")
    with pytest.raises(DivergedError) as error:
        evarl.train(config, out=tmp_path / "run", quiet=True)
    assert "actor parameters became NaN or infinite in update 0, seed 0" in str(error.value)
    assert "the last good checkpoint is" in str(error.value)
    assert (tmp_path / "run" / "checkpoints" / "seeds-0-1" / "update-000000000.safetensors").exists()
    assert not (tmp_path / "run" / "summary.json").exists()


class RewardTurnsNaN(gymnasium.Env):
    """Gives NaN from its hundredth step on."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float("nan") if self.steps > 100 else 1.0, False, False, {}


def test_nan_rewards_keep_the_rows_before_them(small, tmp_path):
    gymnasium.register("RewardTurnsNaN-v0", RewardTurnsNaN, max_episode_steps=10)
    config = dataclasses.replace(small, world="gymnasium/RewardTurnsNaN-v0", seeds=1)
    failed = r"RewardTurnsNaN-v0 failed \(environment 0, step 1 of its episode\): ValueError: the reward is nan"
    with pytest.raises(WorldError, match=f"{failed}.*; the run is kept up to update 6"):
        evarl.train(config, out=tmp_path / "run", quiet=True)
    assert evarl.Run.load(tmp_path / "run").metrics["update"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_summary_is_json(small, tmp_path):
    run = train_once(small, tmp_path / "run")
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["updates"] == 12
    assert summary["return_per_seed"].keys() == {"0", "1"}
