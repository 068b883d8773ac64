"""Assessments that begin where a base policy went are kept for the next run that needs the same."""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from evarl import preset
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.registry import Registry
from evarl.runs.reuse import standard_file
from evarl.runs.train import new_assessment
from evarl.worlds.navigation import Navigation
from evarl.worlds.registry import register_world
from tools.standard_assessments import WORLDS

CONFIG = with_settings(
    TrainConfig(environments=2, steps=4, beta=0.05),
    {"agent.hidden_sizes": (4,), "assessment": {"select": "random", "scenarios": 3, "base_updates": 2}},
)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "evarl" / "assessments"


def assessed(config: TrainConfig) -> tuple[list[np.ndarray], bool]:
    """The start states of a configuration, and whether a base policy was trained for them."""
    said: list[str] = []
    states = jax.tree.leaves(new_assessment(config.resolved(), said.append).start_states)
    assert len(said) == 1
    trained = said[0].startswith("training a base policy for 2 updates")
    assert trained or said[0].startswith("the assessment starts from the states of an earlier run with these settings")
    return states, trained


def test_a_base_policy_is_trained_once_for_runs_that_share_it(cache):
    states, trained = assessed(CONFIG)
    assert trained
    others = {"seed": 7, "seeds": 2, "updates": 9, "beta": 0.5, "evaluator.policies": 3}
    again, trained = assessed(with_settings(CONFIG, others))
    assert not trained
    assert all(map(np.array_equal, states, again))
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    again, trained = assessed(CONFIG)
    assert trained, "a damaged file is not used"
    assert all(map(np.array_equal, states, again))
    assert not assessed(CONFIG)[1], "and it is replaced"


@pytest.mark.parametrize(
    "change",
    [
        {"assessment.scenarios": 4},
        pytest.param({"steps": 5}, marks=pytest.mark.slow),
        pytest.param({"agent.actor_learning_rate": 1e-2}, marks=pytest.mark.slow),
        pytest.param({"discount": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_what_the_base_policy_depends_on_belongs_to_the_key(cache, change):
    assessed(CONFIG)
    assert assessed(with_settings(CONFIG, change))[1]


def test_worlds_whose_code_may_change_are_not_kept(cache, monkeypatch):
    monkeypatch.setattr("evarl.worlds.registry._own", Registry("world", {}))  # other tests do not know of it
    register_world("reuse-own", partial(Navigation, "reuse-own"))
    config = dataclasses.replace(CONFIG, world="reuse-own")
    assert assessed(config)[1]
    assert assessed(config)[1]
    assert not cache.exists()


def test_a_folder_that_cannot_be_made_is_no_reason_not_to_train(cache):
    cache.parent.write_text("a file is in its place")
    assert assessed(CONFIG)[1]


def test_default_settings_of_games_and_robots_have_standard_start_states(cache):
    said: list[str] = []
    for world in WORLDS:
        file = standard_file(preset(world).resolved())
        assert file.exists(), f"run `make assessments`: there is none for the present default settings of {world}"
    config = preset("gymnax/Asterix-MinAtar")
    found = new_assessment(dataclasses.replace(config, beta=0.1, seed=5, updates=3).resolved(), said.append)
    assert said == [
        "the assessment starts from the standard start states of gymnax/Asterix-MinAtar, which come with evarl"
    ]
    assert (found.scenarios, found.horizon) == (config.assessment.scenarios, config.assessment.horizon)
    assert len({observation.tobytes() for observation in np.asarray(found.observations())}) == found.scenarios
    assert not cache.exists()


def test_other_settings_have_none():
    config = with_settings(preset("gymnax/Asterix-MinAtar"), {"agent.actor_learning_rate": 1e-4})
    assert not standard_file(config.resolved()).exists()
