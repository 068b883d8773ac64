"""The log of the whole training: whole episodes of its windows, whatever happens to the run."""

import dataclasses
import json

import numpy as np
import pytest

import evarl
from evarl.errors import FileError, InputError
from evarl.learning.learner import make_learner
from evarl.runs.log_plan import plan_log
from evarl.storage.tensors import load_arrays
from tests.evaluation.tiny import train_once
from tests.runs.test_log import evarl_bytes, same_data
from tests.runs.test_runs import RESULTS, same_files

SIZE = 0.02
"""Megabytes for some windows with all environments."""


@pytest.fixture
def episodic(small):
    """Episodes of at most 7 steps in batches of 16, and windows of 5 updates in strata of 16."""
    return dataclasses.replace(small, horizon=7, updates=60, steps=16, seeds=2)


def rows(data) -> set[bytes]:
    """Trajectories that can be told apart by what was seen and done."""
    keep = np.asarray(data.mask)
    columns = data.observation, data.action, data.reward, data.log_prob, data.final_observation
    return {
        b"".join(np.asarray(x[i][keep[i]] if x.shape[:2] == keep.shape else x[i]).tobytes() for x in columns)
        for i in range(data.trajectories)
    }


def test_everything_is_logged_where_it_fits_and_training_is_the_same(episodic, tmp_path):
    run = train_once(dataclasses.replace(episodic, updates=12), tmp_path / "run", log_megabytes=10, log_from="both")
    assert run.log_parts == ("recent", "all")
    for seed in run.seeds:
        assert same_data(run.logged_data(seed, part="all"), run.logged_data(seed, part="recent"))
    plain = train_once(dataclasses.replace(episodic, updates=12), tmp_path / "plain")
    assert same_files(plain.path, run.path, RESULTS)
    assert json.loads((run.path / "config.json").read_text())["log_from"] == "both"


def test_the_sample_holds_the_episodes_that_begin_in_its_blocks(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=10)
    run = train_once(episodic, tmp_path / "run", log_megabytes=SIZE, log_from="all")
    assert run.log_parts == ("all",)
    files = sorted((run.path / "log-all").rglob("*.safetensors"))
    assert 0 < sum(len(evarl_bytes(path)) for path in files) <= SIZE * 2**20
    assert not (run.path / "log").exists()
    plan = plan_log("all", make_learner(episodic), SIZE, [60])
    assert 4 <= plan.counted.sum() < 60
    files = {path.stem: load_arrays(path)[0] for path in (whole.path / "log").rglob("*.safetensors")}
    (batches,) = files.values()
    for seed in run.seeds:
        stream = {
            name: batches[name][:, seed].reshape(60 * 16, 2, *batches[name].shape[4:])
            for name in ("reward", "terminated", "truncated", "start_label", "log_prob")
        }
        expected = []
        for n in sorted(plan.environments):
            for begin in np.flatnonzero(stream["start_label"][:, n] >= 0):
                ends = np.flatnonzero((stream["terminated"] | stream["truncated"])[begin:, n])
                if plan.counted[begin // 16] and ends.size:
                    expected.append(stream["log_prob"][begin : begin + ends[0] + 1, n].tolist())
        data = run.logged_data(seed)
        assert sorted(row[mask].tolist() for row, mask in zip(data.log_prob, data.mask, strict=True)) == sorted(
            expected
        )
        assert rows(data) < rows(whole.logged_data(seed))


def test_each_group_of_seeds_has_the_same_windows(episodic, tmp_path):
    one = train_once(episodic, tmp_path / "one", log_megabytes=SIZE, log_from="all")
    two = evarl.train(
        episodic, out=tmp_path / "two", quiet=True, log_megabytes=SIZE, log_from="all", seeds_per_program=1
    )
    for seed in one.seeds:
        assert one.logged_data(seed).trajectories == two.logged_data(seed).trajectories > 20


def test_a_resumed_run_has_the_same_sample(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=SIZE, log_from="all")
    out = tmp_path / "resumed"
    evarl.train(episodic, out=out, quiet=True, log_megabytes=SIZE, log_from="all", checkpoint_seconds=1e-3)
    (out / "summary.json").unlink()
    for newest in sorted((out / "checkpoints" / "seeds-0-1").iterdir())[-2:]:
        newest.unlink()  # the log now reaches further than the newest checkpoint
    again = evarl.train(episodic, out=out, quiet=True, resume=True)
    for seed in again.seeds:
        assert same_data(again.logged_data(seed), whole.logged_data(seed))


def test_a_longer_run_has_the_sample_of_its_length(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=SIZE, log_from="all")
    shorter = dataclasses.replace(episodic, updates=30)
    run = train_once(shorter, tmp_path / "run", log_megabytes=SIZE, log_from="all")
    before = run.logged_data(1).trajectories
    run = evarl.train(shorter, updates=60, out=run.path, resume=True, quiet=True)
    assert run.logged_data(1).trajectories != before
    assert rows(run.logged_data(1)) == rows(whole.logged_data(1))
    assert evarl.load(run.path).logged_data(1).trajectories == whole.logged_data(1).trajectories


def test_a_run_that_was_stopped_early_has_what_was_logged(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=SIZE, log_from="all")
    stop = [lambda chunk: bool(chunk.updates[-1] >= 35)]
    run = evarl.train(episodic, out=tmp_path / "run", quiet=True, log_megabytes=SIZE, log_from="all", callbacks=stop)
    assert 36 <= run.config.updates < 60
    assert rows(run.logged_data(0)) < rows(whole.logged_data(0))
    again = evarl.train(episodic, out=run.path, quiet=True, resume=True)
    assert same_data(again.logged_data(0), whole.logged_data(0))


@pytest.mark.slow
def test_worlds_on_the_host_are_logged_throughout(tmp_path):
    """Their batches are at hand, so all updates are logged, of as many environments as fit."""
    small = {"world": "gymnasium/CartPole-v1", "horizon": 10, "updates": 9, "environments": 3, "steps": 24}
    config = dataclasses.replace(evarl.preset("navigation"), **small)
    run = evarl.train(config, out=tmp_path / "run", quiet=True, log_megabytes=0.03, log_from="both")
    plan = plan_log("all", run.learner, 0.03, [9])
    assert plan.counted.all()
    assert len(plan.environments) in (1, 2)
    data = run.logged_data(part="all")
    assert data.trajectories >= 9 * 24 // 10 * len(plan.environments)
    assert data.length == 10
    assert run.logged_data(part="recent").trajectories > 0


def test_contexts_are_those_of_training(tmp_path):
    """Environments begin anew, and have the label 0, in every second update and in no other; episodes go on in between."""
    small = {"updates": 8, "environments": 8, "contexts": 2, "rollouts_per_start": 2, "steps": 20, "context_updates": 2}
    config = evarl.with_settings(
        evarl.preset("crossing"), {**small, "seeds": 2, "beta": 0.0, "agent.hidden_sizes": [8]}
    )
    config = evarl.with_settings(config, {"evaluator_mode": "none", "evaluator.states": "visited"})
    run = evarl.train(config, out=tmp_path / "run", quiet=True, log_megabytes=10, log_from="both")
    for folder in ("log", "log-all"):
        for path in (run.path / folder).rglob("*.safetensors"):
            label = load_arrays(path)[0]["start_label"]
            assert (label[::2, :, 0] == 0).all()
            assert (label[1::2] != 0).all()
    assert run.logged_data(1).mask.sum(axis=1).max() > 20


def test_a_log_that_lacks_a_part_is_refused(episodic, tmp_path):
    run = train_once(episodic, tmp_path / "run", log_megabytes=SIZE, log_from="all")
    file = sorted((run.path / "log-all" / "seeds-0-1").iterdir())[1]
    file.unlink()
    with pytest.raises(FileError, match=rf"update {int(file.stem.split('-')[1])} is missing; the log must have all"):
        run.logged_data()


def test_errors(episodic, tmp_path):
    with pytest.raises(InputError, match=r"log.from: 'none' is not allowed"):
        evarl.train(episodic, out=tmp_path / "bad", log_megabytes=1, log_from="none")
    with pytest.raises(InputError, match="log-from: all has no effect without log-megabytes"):
        evarl.train(episodic, out=tmp_path / "bad", log_from="all")
    assert not (tmp_path / "bad").exists()
    run = train_once(episodic, tmp_path / "run", log_megabytes=SIZE, log_from="all")
    with pytest.raises(InputError, match="has no log of this part, recent; train with --log-from recent or both"):
        run.logged_data(part="recent")
    with pytest.raises(InputError, match="updates: 3 is not allowed for a log of the whole training"):
        run.logged_data(updates=3)
