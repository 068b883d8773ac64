"""Worlds by name."""

import os
import subprocess
import sys

import pytest

from evarl.errors import InputError
from evarl.worlds import make_world, world_names


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
    assert {name.split("/")[0] for name in names} == {"navigation", "tabular", "gymnax", "brax", "gymnasium"}


def test_a_family_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "evarl.worlds.brax", raising=False)
    monkeypatch.setitem(sys.modules, "brax", None)
    with pytest.raises(InputError, match=r"^world: 'brax/ant' needs the package 'brax'; install evarl\[brax\]$"):
        make_world("brax/ant")
    assert {name.split("/")[0] for name in world_names()} == {"navigation", "tabular", "gymnax", "gymnasium"}


def test_worlds_are_imported_only_when_asked_for() -> None:
    program = "import sys, evarl.worlds; print(*{'gymnax', 'brax', 'mujoco', 'gymnasium'} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
