"""Worlds by name."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.errors import InputError
from evarl.worlds import Box, Discrete, World, make_world, register_world, registry, world_names


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("navigaton", "navigation"),
        ("tabular/chian", "tabular/chain"),
        ("gymnax/CartPol-v1", "gymnax/CartPole-v1"),
        ("gymnax/Asterix", "gymnax/Asterix-MinAtar"),
        ("gymnasium/CartPole-v9", "gymnasium/CartPole-v1"),
        ("brax/halfcheeta", "brax/halfcheetah"),
        ("brax/ant:sprng", "brax/ant:spring"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        make_world(wrong)
    message = str(caught.value)
    assert message.startswith(f"world: unknown '{wrong}'; did you mean '{nearest}'? Known: ")
    assert "\n" not in message


@pytest.mark.parametrize("settings", [{"horizon": 0}, {"horizon": -3}, {"discount": 1.01}, {"discount": -0.1}])
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    (name, value), *_ = settings.items()
    with pytest.raises(InputError, match=rf"^{name}: {value} is not allowed"):
        make_world("navigation", **settings)


def test_settings_reach_every_family() -> None:
    for name in (
        "navigation",
        "crossing",
        "tabular/chain",
        "gymnax/CartPole-v1",
        "gymnasium/CartPole-v1",
        "brax/inverted_pendulum",
    ):
        world = make_world(name, horizon=7, discount=0.0)
        assert (world.name, world.horizon, world.discount) == (name, 7, 0.0)


def test_every_family_is_listed() -> None:
    names = world_names()
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {
        "navigation",
        "crossing",
        "tabular",
        "gymnax",
        "brax",
        "gymnasium",
    }


def test_a_family_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "evarl.worlds.brax", raising=False)
    monkeypatch.setitem(sys.modules, "brax", None)
    with pytest.raises(InputError, match=r"^world: 'brax/ant' requires the package 'brax'; install evarl\[brax\]$"):
        make_world("brax/ant")
    assert {name.split("/")[0] for name in world_names()} == {
        "navigation",
        "crossing",
        "tabular",
        "gymnax",
        "gymnasium",
    }


def test_worlds_are_imported_only_when_asked_for() -> None:
    program = "import sys, evarl.worlds; print(*{'gymnax', 'brax', 'mujoco', 'gymnasium'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@dataclasses.dataclass(frozen=True)
class Line(World):
    """Five places in a row; each step costs 1 until the right end is reached."""

    name: str = "toys/line"
    horizon: int = 8
    discount: float = 0.9
    observation_space: Box = Box((1,), 0.0, 4.0)
    action_space: Discrete = Discrete(2)

    def initial(self, key):
        return jnp.zeros((), jnp.int32)

    def transition(self, key, physics, action):
        position = jnp.clip(physics + jnp.where(action == 1, 1, -1), 0, 4)
        return position, jnp.float32(-1.0), position == 4

    def observation(self, physics):
        return physics[None].astype(jnp.float32)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry._own, "_entries", {})
    register_world("toys/line", Line)
    return "toys/line"


@pytest.mark.slow
def test_a_registered_world_is_trained_in_evaluated_and_assessed(line: str, tmp_path: Path) -> None:
    assert line in world_names()
    preset = evarl.preset("navigation")
    small = {
        "world": line,
        "horizon": 6,
        "updates": 3,
        "environments": 2,
        "steps": 8,
        "seeds": 1,
        "beta": 0.05,
        "evaluator": dataclasses.replace(preset.evaluator, warmup=1, initial_steps=2),
        "assessment": dataclasses.replace(preset.assessment, start_states="0 3", horizon=2),
    }
    run = evarl.train(preset, out=tmp_path / "run", quiet=True, **small)
    again = evarl.Run.load(run.path)
    assert again.world == Line(horizon=6, discount=preset.discount)
    found = evarl.evaluate(again, rollouts=4, states=2)
    value = (1 - preset.discount**6) / (1 - preset.discount)
    assert -value - 1e-4 <= found.discounted.mean <= -(1 - preset.discount**4) / (1 - preset.discount) + 1e-4
    np.testing.assert_array_equal(evarl.assess(again, states="0 2", interval=False).observations, [[0.0], [3.0]])


def test_registered_names_are_checked(line: str) -> None:
    with pytest.raises(
        InputError, match=r"^world: 'navigation/mine' is not allowed; must be a name outside of navigation"
    ):
        register_world("navigation/mine", Line)
    register_world("toys/line", Line)
    with pytest.raises(InputError, match=r"^world: 'toys/line' is taken"):
        register_world("toys/line", dataclasses.make_dataclass("Other", []))
    register_world("toys/other", Line)
    with pytest.raises(InputError, match=r"^world: 'toys/other' was registered with"):
        make_world("toys/other")
    with pytest.raises(InputError, match=r"did you mean 'toys/line'\?"):
        make_world("toys/lin")
