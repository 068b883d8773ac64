"""A run directory: what is in it, that it can be read back, and that the same seed gives the same bits."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import evarl
from evarl.errors import FileError, InputError
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.runs.groups import engines, plan_groups
from tests.evaluation.tiny import train_once


def same_files(one, other, names):
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


RESULTS = ["metrics.parquet", "policy/seed-0.safetensors", "policy/seed-1.safetensors"]


def test_a_run_directory_holds_everything(small, tmp_path):
    run = train_once(small, tmp_path / "run")
    about = json.loads((run.path / "config.json").read_text())
    assert about["config"]["environments"] == 2
    assert about["versions"]["jax"] == jax.__version__
    frame = pd.read_parquet(run.path / "metrics.parquet")
    assert frame.groupby(["update", "seed"]).size().eq(1).all()
    assert len(frame) == 24
    assert frame["steps"].max() == 12 * 2 * 16
    assert list((run.path / "tensorboard").rglob("events.out.tfevents.*"))
    assert [p.name for p in sorted((run.path / "checkpoints" / "seeds-0-1").iterdir())][
        -1
    ] == "update-000000012.safetensors"
    assert not list(run.path.rglob(".*")), "no temporary file is left"
    assert not [p for p in run.path.rglob("*") if p.suffix in (".pkl", ".pickle")]


def test_the_kept_policy_acts(small, tmp_path):
    run = train_once(small, tmp_path / "run")
    assert run.config == small.resolved()
    observation = jnp.array([[0.05, 0.05], [0.5, 0.9]])
    actions = run.policy(observation, jax.random.PRNGKey(0), seed=1)
    assert actions.shape == (2,)
    assert set(np.asarray(actions).tolist()) <= {0, 1, 2, 3}
    assert run.value(observation).shape == (2,)
    with pytest.raises(InputError, match="seed: 7 is not one of this run's seeds 0 to 1"):
        run.policy(observation, jax.random.PRNGKey(0), seed=7)


def test_the_same_seed_gives_the_same_bits(small, tmp_path):
    one = train_once(small, tmp_path / "one")
    other = evarl.train(small, out=tmp_path / "other", quiet=True)
    assert same_files(one.path, other.path, RESULTS)
    third = evarl.train(small, out=tmp_path / "third", seed=5, quiet=True)
    assert not one.metrics["return"].equals(third.metrics["return"])


def test_the_size_of_a_chunk_does_not_change_the_bits(small):
    learner = make_learner(small)
    engine = CompiledEngine(learner, 2)
    at_once, _ = engine.advance(engine.init([0, 1]), 0, 6)
    by_parts = engine.init([0, 1])
    for first, count in ((0, 1), (1, 2), (3, 3)):
        by_parts, _ = engine.advance(by_parts, first, count)
    jax.tree.map(np.testing.assert_array_equal, at_once, by_parts)


@pytest.mark.slow
def test_seeds_are_split_when_memory_is_short(small, tmp_path):
    config = dataclasses.replace(small, seeds=5)
    learner = make_learner(config)
    engine_for = engines(learner)
    two, five = engine_for(2).memory(), engine_for(5).memory()
    assert two < five
    assert plan_groups(learner, engine_for, five) == [[0, 1, 2, 3, 4]]
    assert plan_groups(learner, engine_for, two) == [[0, 1], [2, 3], [4]]
    with pytest.raises(InputError, match=r"environments: one seed of 2 environments × 16 steps needs .* GiB"):
        plan_groups(learner, engine_for, engine_for(1).memory() - 1)
    run = evarl.train(config, out=tmp_path / "split", memory_gib=two / 2**30, quiet=True)
    assert run.metrics.num_rows == 12 * 5
    assert [run.policy_state(seed) is not None for seed in run.seeds] == [True] * 5
    assert evarl.train(config, out=tmp_path / "split", resume=True, quiet=True).seeds == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_the_plan_of_memory_is_about_what_is_allocated():
    """The compiler's figure must be at least the trajectory and the state, and not absurdly more."""
    config = evarl.TrainConfig(environments=64, steps=200, agent=evarl.AgentConfig(hidden_sizes=(64, 64)))
    engine = CompiledEngine(make_learner(config), 1)
    trajectory = 64 * 200 * (2 * 4 + 4 + 4 + 4 + 2)
    activations = 64 * 200 * 64 * 4
    assert trajectory < engine.memory() < trajectory + 12 * activations


def test_default_directories_do_not_collide(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = evarl.train(small, quiet=True), evarl.train(small, quiet=True)
    assert first.path.name == f"navigation-{small.resolved().hash()}"
    assert second.path.name == f"navigation-{small.resolved().hash()}-2"
    assert evarl.train(small, resume=True, quiet=True).path == first.path


def test_an_unfinished_run_says_so(small, tmp_path):
    run = train_once(small, tmp_path / "run")
    (run.path / "policy" / "seed-1.safetensors").unlink()
    (run.path / "summary.json").unlink()
    with pytest.raises(FileError, match="finish the run with --resume"):
        evarl.Run.load(run.path).policy_state(1)
    with pytest.raises(FileError, match="is not finished"):
        evarl.Run.load(run.path).summary  # noqa: B018


@pytest.mark.slow
def test_progress_counts_the_updates_of_each_group_of_seeds(tmp_path, capsys):
    seen = []
    evarl.train(
        "navigation",
        environments=2,
        steps=50,
        updates=3,
        seeds=2,
        seeds_per_program=1,
        out=tmp_path / "run",
        watch=lambda done, of: seen.append((done, of)),
    )
    told = capsys.readouterr().err
    assert "navigation, seed 0: 3/3 updates" in told
    assert "navigation, seed 1: 3/3 updates" in told
    assert seen[-1] == (6, 6)
    assert seen == sorted(seen)
