"""Environments of the user: functions, classes and ids, with arguments, in names that say how to make them again."""

import re
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from evarl.errors import InputError, WorldError
from evarl.worlds import make_world
from evarl.worlds.names import name_of, offer, parse_name, with_arguments

MODULE = """
import gymnasium
import numpy as np

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, goal=3, speed=1.0):
        self.goal, self.speed = goal, speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += self.speed if action else -self.speed
        return np.array([self.place], np.float32), -1.0, self.place >= self.goal, False, {}

def make_line(goal=3):
    return gymnasium.wrappers.TimeLimit(Line(goal), 20)

gymnasium.register("EvarlLine-v0", entry_point=Line, max_episode_steps=15)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current directory, which is not on the path."""
    (tmp_path / "evarl_lines.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    yield "evarl_lines"
    sys.modules.pop("evarl_lines", None)
    gymnasium.registry.pop("EvarlLine-v0", None)


def steps_to_the_goal(world):
    environments = world.open(1)
    environments.reset(0, 0)
    return next(step for step in range(1, 100) if environments.step(np.array([1])).terminated[0])


@pytest.mark.parametrize(("name", "horizon"), [("make_line", 20), ("EvarlLine-v0", 15), ("Line", 1000)])
def test_functions_ids_and_classes_of_a_module_with_arguments(module, name, horizon):
    world = make_world(with_arguments(f"gymnasium/{module}:{name}", {"goal": 5}))
    assert world.horizon == horizon
    assert steps_to_the_goal(world) == 5
    assert steps_to_the_goal(make_world(f"gymnasium/{module}:{name}")) == 3
    assert "goal" not in {one.name for one in world.parameters}, "what is given does not vary"


def test_a_wrong_name_suggests_what_the_module_has(module):
    with pytest.raises(InputError, match="did you mean 'gymnasium/evarl_lines:make_line'"):
        make_world(f"gymnasium/{module}:make_lines")


def test_arguments_are_part_of_the_name_in_one_order():
    name = with_arguments("gymnasium/a.b:C-v0", {"z": "x&y=1?", "a": [1, 2.5], "flag": True, "number": "3"})
    assert name == with_arguments(
        "gymnasium/a.b:C-v0?a=[1, 2.5]&number=%223%22", {"flag": True, "z": "x&y=1?"}
    ).replace("%22", '"')
    assert parse_name(name).arguments == {"z": "x&y=1?", "a": [1, 2.5], "flag": True, "number": "3"}
    with pytest.raises(InputError, match=r"^make: 'goal' is not allowed; must be NAME=VALUE"):
        parse_name("gymnasium/A-v0?goal")
    with pytest.raises(InputError, match=r"^make: f=<function .* cannot be written into a configuration"):
        with_arguments("gymnasium/A-v0", {"f": name_of})
    with pytest.raises(InputError, match=r"^make: navigation takes no arguments"):
        with_arguments("navigation", {"goal": 3})


def test_a_function_of_a_script_is_kept_in_this_process():
    class Image(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (6, 5, 3), np.uint8)
        action_space = spaces.Box(-1, 1, (1,))

    name = name_of(lambda: Image())
    assert name == "gymnasium/__main__:test_a_function_of_a_script_is_kept_in_this_process.lambda"
    assert make_world(name).observation_space.shape == (6, 5, 3)
    with pytest.raises(InputError, match=re.escape("evarl.load(path, env=make_env)")):
        make_world("gymnasium/__main__:forgotten")
    offer("gymnasium/__main__:forgotten", Image)
    assert make_world("gymnasium/__main__:forgotten", horizon=7).horizon == 7


def test_what_makes_no_environment_is_refused():
    with pytest.raises(InputError, match=r"^env: 3 is not allowed; must be a function or class that returns a new"):
        name_of(3)
    offer("gymnasium/__main__:nothing", lambda: None)
    with pytest.raises(InputError, match=r"made None; must return a gymnasium.Env"):
        make_world("gymnasium/__main__:nothing")
    offer("gymnasium/__main__:broken", lambda: 1 / 0)
    with pytest.raises(WorldError, match=r"failed \(while it was made\): ZeroDivisionError: division by zero"):
        make_world("gymnasium/__main__:broken")
