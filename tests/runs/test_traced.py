"""Traced programs are kept for the next run that needs the same, and give the same bits."""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.learner import Learner, make_learner
from evarl.registry import Registry
from evarl.runs import traced
from evarl.runs.groups import engines
from evarl.runs.train import starting_point
from evarl.worlds.navigation import Navigation
from evarl.worlds.registry import register_world

CONFIG = with_settings(
    TrainConfig(environments=2, steps=4, beta=0.05),
    {
        "agent.hidden_sizes": (4,),
        "evaluator.warmup": 1,
        "assessment.scenarios": 1,
        "assessment.start_states": "0.2,0.8",
    },
)


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(traced, "WORTH", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "evarl" / "programs"


def learner_of(config: TrainConfig) -> Learner:
    config = config.resolved()
    return make_learner(config, starting_point(config, None, print)[0])


def trained(config: TrainConfig, monkeypatch: pytest.MonkeyPatch, seeds: int = 1) -> tuple[list[np.ndarray], int]:
    """The state after three updates, and how often an update was traced for it."""
    count, update = 0, Learner.update

    def counted(*arguments):
        nonlocal count
        count += 1
        return update(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", counted)
        engine = engines(learner_of(config))(seeds)
        state, _ = engine.advance(engine.init(list(range(seeds))), 0, 3)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], count


def test_the_second_run_traces_nothing_and_has_the_same_bits(kept, monkeypatch):
    first, count = trained(CONFIG, monkeypatch)
    assert count == 1
    assert len(list(kept.iterdir())) == 2  # initialisation and update
    again, count = trained(dataclasses.replace(CONFIG, seed=7, seeds=3), monkeypatch)
    assert count == 0
    assert all(map(np.array_equal, first, again))


def test_a_damaged_file_is_replaced(kept, monkeypatch):
    first, _ = trained(CONFIG, monkeypatch)
    for file in kept.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    again, count = trained(CONFIG, monkeypatch)
    assert count == 1
    assert all(map(np.array_equal, first, again))
    assert trained(CONFIG, monkeypatch)[1] == 0


@pytest.mark.parametrize("change", [{"beta": 0.1}, {"assessment.horizon": 2}, {"assessment.start_states": "0.5,0.5"}])
def test_what_a_program_depends_on_belongs_to_the_key(kept, monkeypatch, change):
    trained(CONFIG, monkeypatch)
    assert trained(with_settings(CONFIG, change), monkeypatch)[1] == 1


def test_another_number_of_seeds_is_another_program(kept, monkeypatch):
    trained(CONFIG, monkeypatch)
    assert trained(CONFIG, monkeypatch, seeds=2)[1] == 1


def test_code_that_is_not_of_the_package_is_traced_each_time(kept, monkeypatch):
    monkeypatch.setattr("evarl.worlds.registry._own", Registry("world", {}))  # other tests do not know of it
    register_world("traced-own", partial(Navigation, "traced-own"))
    config = dataclasses.replace(CONFIG, world="traced-own")
    assert trained(config, monkeypatch)[1] == 1
    assert trained(config, monkeypatch)[1] == 1
    assert not kept.exists()


def test_a_folder_that_cannot_be_made_is_no_reason_not_to_train(kept, monkeypatch):
    kept.parent.write_text("a file is in its place")
    assert trained(CONFIG, monkeypatch)[1] == 1
