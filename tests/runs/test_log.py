"""The log of deployment trajectories: what was done, with which probability, within the budget, whatever happens."""

import dataclasses

import jax
import numpy as np
import pytest

import evarl
from evarl.errors import InputError
from evarl.learning.learner import make_learner
from evarl.ope.dataset import LoggedData
from tests.evaluation.tiny import train_once
from tests.runs.test_runs import RESULTS, same_files


def same_data(one: LoggedData, other: LoggedData) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.fixture
def episodic(small):
    """Episodes of at most 7 steps in batches of 16, so that they reach from one batch into the next."""
    return dataclasses.replace(small, horizon=7, updates=12, steps=16, seeds=2)


def test_a_log_changes_nothing(episodic, tmp_path):
    evarl.train(episodic, out=tmp_path / "without", quiet=True)
    train_once(episodic, tmp_path / "with", log_megabytes=10)
    assert same_files(tmp_path / "without", tmp_path / "with", RESULTS)


def test_the_log_holds_whole_trajectories_with_their_probabilities(episodic, tmp_path):
    run = train_once(episodic, tmp_path / "run", log_megabytes=10)
    learner = make_learner(episodic)
    for seed in run.seeds:
        data = run.logged_data(seed)
        rows, batches = [], []
        state = jax.jit(learner.init)(jax.random.PRNGKey(seed))
        gather, update = jax.jit(learner.gather), jax.jit(learner.update)
        for index in range(episodic.updates):
            batch = gather(state, state.worlds, np.int32(index))[1].trajectory
            # probabilities are those of the policy that acted, not of the final one
            log_prob = learner.agent.distribution(state.agent.policy, batch.observation).log_prob(batch.action)
            assert np.allclose(log_prob, batch.log_prob, atol=1e-5)
            batches.append(jax.device_get(batch))
            state, _ = update(state, np.int32(index))
        for n in range(episodic.environments):
            names = ("observation", "action", "reward", "log_prob", "terminated", "truncated")
            stream = {name: np.concatenate([getattr(b, name)[:, n] for b in batches]) for name in names}
            ends = np.flatnonzero(stream["terminated"] | stream["truncated"])
            begins = [0, *(ends[:-1] + 1)]
            for begin, end in zip(begins, ends, strict=True):
                rows.append({name: x[begin : end + 1] for name, x in stream.items()})
        assert data.trajectories == len(rows)
        for i, row in enumerate(rows):
            length = len(row["reward"])
            assert data.mask[i].sum() == length
            for name in ("observation", "action", "reward", "terminated", "truncated"):
                assert np.array_equal(getattr(data, name)[i, :length], row[name])
            assert np.allclose(data.log_prob[i, :length], row["log_prob"], atol=1e-5)
        # a time limit is not an end, so what was seen there matters: the next position is one step away
        out_of_time = data.truncated.any(axis=1)
        last = data.observation[np.arange(len(rows)), data.mask.sum(axis=1) - 1]
        step = np.abs(data.final_observation - last)[out_of_time]
        assert out_of_time.sum() > 10
        assert (step.max(axis=1) < 0.25).all()
        assert (step.sum(axis=1) > 0.01).mean() > 0.5


def test_the_last_updates_that_fit(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=10)
    small = evarl.train(episodic, out=tmp_path / "small", quiet=True, log_megabytes=0.01)
    files = list((tmp_path / "small" / "log").rglob("*.safetensors"))
    assert 0 < sum(len(evarl_bytes(path)) for path in files) <= 0.01 * 2**20
    first = int(files[0].stem.split("-")[1])
    assert 0 < first < episodic.updates
    assert same_data(small.logged_data(1), whole.logged_data(1, updates=episodic.updates - first))


def evarl_bytes(path) -> bytes:
    """What a file holds, without the header."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


@pytest.mark.slow
def test_a_resumed_run_has_the_same_log(episodic, tmp_path):
    whole = train_once(episodic, tmp_path / "whole", log_megabytes=10)
    out = tmp_path / "resumed"
    evarl.train(episodic, out=out, quiet=True, log_megabytes=10, checkpoint_seconds=1e-3)
    (out / "summary.json").unlink()
    for newest in sorted((out / "checkpoints" / "seeds-0-1").iterdir())[-2:]:
        newest.unlink()  # the log now reaches further than the newest checkpoint
    again = evarl.train(episodic, out=out, quiet=True, resume=True)
    for seed in again.seeds:
        assert same_data(again.logged_data(seed), whole.logged_data(seed))


@pytest.mark.slow
def test_worlds_on_the_host_are_logged(tmp_path):
    config = evarl.preset("navigation")
    small = {"world": "gymnasium/CartPole-v1", "horizon": 10, "updates": 3, "environments": 2, "steps": 24}
    run = evarl.train(dataclasses.replace(config, **small), out=tmp_path / "run", quiet=True, log_megabytes=1)
    data = run.logged_data()
    assert data.length == 10
    assert data.truncated.any()
    assert (np.abs(data.final_observation - data.observation[:, -1])[data.truncated[:, -1]] < 1).all()


def test_errors(small, tmp_path):
    with pytest.raises(InputError, match="log-megabytes: -1 is not allowed"):
        evarl.train(small, out=tmp_path / "bad", log_megabytes=-1)
    assert not (tmp_path / "bad").exists()
    run = train_once(small, tmp_path / "run")
    with pytest.raises(InputError, match="has no log of trajectories; train with --log-megabytes"):
        run.logged_data()
