"""Runs that go on past their planned end, and runs that callbacks stop early."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import evarl
from evarl.errors import InputError
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.runs.checkpoints import load_newest
from tests.evaluation.tiny import train_once, train_tiny
from tests.runs.test_runs import RESULTS, same_files

EVALUATORS = ["evaluator/seed-0.safetensors", "evaluator/seed-1.safetensors"]


def about(run: evarl.Run) -> dict:
    return json.loads((run.path / "config.json").read_text())


def longer(run: evarl.Run, updates: int, **options) -> evarl.Run:
    return evarl.train(run.config, updates=updates, out=run.path, resume=True, quiet=True, **options)


def test_a_finished_run_goes_on_and_is_as_if_it_had_been_longer_from_the_start(small, tmp_path):
    whole = evarl.train(small, updates=20, out=tmp_path / "whole", quiet=True, log_megabytes=0.012)
    run = longer(train_once(small, tmp_path / "run", log_megabytes=0.012), 20)
    assert same_files(whole.path, run.path, [*RESULTS, "checkpoints/seeds-0-1/update-000000020.safetensors"])
    assert run.config == whole.config
    assert run.summary["updates"] == 20
    assert about(run)["planned"] == [[0, 12], [12, 20]]
    assert "planned" not in about(whole)
    assert evarl.load(run.path).logged_data().reward.tolist() == whole.logged_data().reward.tolist()
    assert repr(run).startswith(f"<Run {run.path}: navigation, a2c, seeds 0 to 1, 20 updates, return ")


def test_fewer_updates_and_other_settings_are_refused(small, tmp_path):
    run = train_once(small, tmp_path / "run")
    with pytest.raises(
        InputError, match="updates: 12 ≠ 11; only the number of updates can be changed, to a greater one"
    ):
        longer(run, 11)
    with pytest.raises(InputError, match=r"discount: 0\.99 ≠ 0\.9; updates: 12 ≠ 20"):
        evarl.train(run.config, updates=20, discount=0.9, out=run.path, resume=True, quiet=True)
    assert run.summary["updates"] == 12


@pytest.mark.slow
def test_annealed_learning_rates_are_those_of_the_new_total_from_there_on(small, tmp_path):
    """The step size of update 12 of 20 is 8/20 of the first; in the run of 12 it had come down to 1/12 before."""
    config = evarl.with_settings(small, {"agent.anneal_learning_rates": True, "agent.max_gradient_norm": 1e9})
    run = train_once(config, tmp_path / "run")
    engine = CompiledEngine(make_learner(dataclasses.replace(config, updates=20)), 2)
    _, state = load_newest(run.path / "checkpoints" / "seeds-0-1", engine.template, print)
    counts = [leaf[0] for leaf in jax.tree.leaves(state.agent.actor_optimizer) if leaf.dtype == np.int32]
    assert counts == [12] * len(counts)
    expected, _ = engine.advance(jax.tree.map(jax.numpy.asarray, state), 12, 8)
    found = longer(run, 20).policy_state(1)
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(lambda x: np.asarray(x)[1], expected.agent.policy))


@pytest.mark.slow
def test_a_run_that_was_killed_while_it_became_longer_is_unfinished(small, tmp_path, monkeypatch):
    run = train_once(small, tmp_path / "run")
    before = (run.path / "config.json").read_bytes()

    def killed(*given):
        raise SystemExit

    with monkeypatch.context() as context:
        context.setattr("evarl.runs.directory.write_bytes", killed)
        with pytest.raises(SystemExit):
            longer(run, 20)
    assert (run.path / "config.json").read_bytes() == before
    whole = train_once(small, tmp_path / "whole")
    again = evarl.train(small, out=run.path, resume=True, quiet=True)  # the run of 12 updates can still be had
    assert same_files(whole.path, again.path, RESULTS)


def test_a_callback_is_given_every_update_once(small, tmp_path):
    seen = []
    run = evarl.train(small, out=tmp_path / "run", quiet=True, callbacks=[seen.append])
    assert np.concatenate([chunk.updates for chunk in seen]).tolist() == list(range(12))
    assert np.concatenate([chunk.steps for chunk in seen]).tolist() == [32 * (update + 1) for update in range(12)]
    entropy = np.concatenate([chunk["entropy"] for chunk in seen])
    assert entropy.reshape(-1).tolist() == run.metrics["entropy"].to_pylist()
    first = seen[0]
    assert (first.seeds, first.path, first.config) == ((0, 1), run.path, run.config)
    assert set(first) == set(run.metrics.column_names) - {"update", "steps", "seed"}


def stop_from(update: int):
    return lambda chunk: bool(chunk.updates[-1] >= update)


@pytest.mark.slow
def test_a_stopped_run_is_whole_and_goes_on_as_if_nothing_had_been(tmp_path):
    """Of an evaluation-aware run: its evaluators too are those of the updates that were made."""
    whole = train_tiny(tmp_path / "whole", updates=14)
    run = evarl.train(whole.config, out=tmp_path / "run", quiet=True, callbacks=[stop_from(5)])
    done = run.config.updates
    assert 6 <= done < 14
    assert run.summary["updates"] == done
    assert about(run)["planned"] == [[0, 14]]
    assert evarl.load(run.path).predict(np.zeros(2)).shape == ()
    assert np.isfinite(evarl.assess(run, interval=False).mean)
    again = evarl.train(whole.config, out=run.path, resume=True, quiet=True)
    assert again.config == whole.config
    assert same_files(whole.path, again.path, [*RESULTS, *EVALUATORS])


@pytest.mark.slow
def test_a_stop_is_for_all_groups_of_seeds(small, tmp_path):
    groups = []
    callbacks = [lambda chunk: groups.append(chunk.seeds), stop_from(4)]
    run = evarl.train(small, out=tmp_path / "run", quiet=True, seeds_per_program=1, callbacks=callbacks)
    assert set(groups) == {(0,), (1,)}
    assert run.metrics.num_rows == 2 * run.config.updates < 24
    assert run.policy_state(1) is not None


@pytest.mark.slow
def test_an_exception_in_a_callback_leaves_a_run_that_can_be_resumed(small, tmp_path):
    def fails(chunk):
        if chunk.first > 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as error:
        evarl.train(small, out=tmp_path / "run", quiet=True, callbacks=[fails])
    run = evarl.load(tmp_path / "run")
    assert f"kept up to update {run.metrics.num_rows // 2} and can be resumed" in error.value.__notes__[0]
    assert "not finished" in repr(run)
    again = evarl.train(small, out=run.path, resume=True, quiet=True)
    assert same_files(again.path, train_once(small, tmp_path / "whole").path, RESULTS)


def test_what_a_callback_returns_is_checked(small, tmp_path):
    with pytest.raises(
        InputError, match="callbacks: what one returns: 'stop' is not allowed; must be True or False or None"
    ):
        evarl.train(small, out=tmp_path / "run", quiet=True, callbacks=[lambda chunk: "stop"])
    with pytest.raises(InputError, match=r"callbacks: .* is not allowed; must be a list of functions"):
        evarl.train(small, out=tmp_path / "other", callbacks=stop_from(3))
