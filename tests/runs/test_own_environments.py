"""Training in environments and assessments of the user, and opening such runs again."""

import dataclasses

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Assessment
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.worlds import make_world, names, registry
from evarl.worlds.navigation import Navigation

TINY = {"environments": 2, "steps": 16, "updates": 2, "quiet": True}


class Chase(gymnasium.Env):
    """Follow a number with a continuous action; ends itself after `length` steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, length=8):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.target = 0, self.np_random.uniform(-1, 1, 1)
        return self.target, {}

    def step(self, action):
        paid, self.steps = -abs(float(action[0] - self.target[0])), self.steps + 1
        self.target = self.np_random.uniform(-1, 1, 1)
        return self.target, paid, self.steps >= self.length, False, {}


@pytest.fixture(scope="module")
def chase(tmp_path_factory):
    def make_chase(length=8):
        return Chase(length)

    out = tmp_path_factory.mktemp("chase") / "run"
    return evarl.train(env=make_chase, env_kwargs={"length": 4}, out=out, **TINY), make_chase


def test_a_function_is_enough(chase):
    run, _ = chase
    assert run.config.world == "gymnasium/__main__:chase.make_chase?length=4"
    assert run.config.agent.algorithm == "ppo"
    assert run.world.horizon == 1000
    assert run.metrics["episodes"].to_pylist() == [8, 8], "2 environments of 16 steps, 4 to each episode"


def test_a_run_whose_function_is_gone_asks_for_it(chase, monkeypatch):
    run, make_chase = chase
    monkeypatch.setattr(names, "_offered", {})
    with pytest.raises(InputError, match=r"was made by a function that cannot be imported; give it again, with env="):
        _ = evarl.Run.load(run.path).world
    again = evarl.Run.load(run.path, env=make_chase)
    assert again.world.open(1).reset(0, 0).shape == (1,)
    observation = jnp.array([0.5])
    np.testing.assert_array_equal(again.value(observation), run.value(observation))


def test_settings_that_do_not_go_together():
    with pytest.raises(InputError, match="env: does not go with world 'navigation'"):
        evarl.train(env=Chase, world="navigation")
    with pytest.raises(InputError, match="preset or world: unknown 'gymnasim/CartPole-v1'"):
        evarl.train("gymnasim/CartPole-v1")


@pytest.mark.slow
def test_a_world_in_place_of_a_preset(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "train gymnasium/FrozenLake-v1 --make is_slippery=false --updates 1 --environments 2 --steps 8"
    assert call([*command.split(), "--agent.ppo.minibatches", "2"]) == 0
    shown = capfd.readouterr()
    name = "gymnasium/FrozenLake-v1?is_slippery=false"
    assert shown.err.splitlines()[0] == f"{name}: compiling"
    (path,) = (tmp_path / "runs").iterdir()
    assert path.name.startswith("gymnasium-FrozenLake-v1-")
    assert evarl.Run.load(path).config.world == name
    assert call(["train", "gymnasium/FrozenLake-v1", "--make", "slippery"]) == 2
    assert "make: 'slippery' is not allowed; must be NAME=VALUE" in capfd.readouterr().err


@pytest.mark.slow
def test_an_assessment_in_another_world_with_mappings(tmp_path, monkeypatch):
    """The test is taken in a world whose observations are twice as long and whose actions are numbered backwards."""
    monkeypatch.setattr(registry._own, "_entries", {})
    small = Navigation("small-navigation", step_size=0.1)
    evarl.register_world("small-navigation", lambda **given: dataclasses.replace(small, **given))
    assessment = Assessment(
        small,
        np.array([[0.2, 0.2], [0.8, 0.2]], np.float32),
        horizon=3,
        map_observation=lambda shown: 1.0 - shown,
        map_action=lambda action: make_world("navigation").action_space.n - 1 - action,
    )
    changes = {
        "evaluator_mode": "colearned",
        "evaluator": dataclasses.replace(evarl.preset("navigation").evaluator, warmup=1),
    }
    run = evarl.train(
        "navigation", assessment=assessment, out=tmp_path / "run", rollouts_per_start=1, **changes, **TINY
    )
    np.testing.assert_allclose(run.assessment.observations(), [[0.8, 0.8], [0.2, 0.8]], rtol=1e-6)
    assert len(evarl.assess(run, interval=False).returns) == 2
    with pytest.raises(InputError, match="was saved with mappings between two worlds"):
        _ = evarl.Run.load(run.path).assessment
    assert evarl.Run.load(run.path, assessment=assessment).assessment is assessment
    with pytest.raises(InputError, match="2 start states and 4 steps in small-navigation are not what"):
        _ = evarl.Run.load(run.path, assessment=dataclasses.replace(assessment, horizon=4)).assessment
    with pytest.raises(InputError, match="assessment: has no effect without beta above 0"):
        evarl.train("navigation", assessment=assessment, out=tmp_path / "other", **TINY)
