"""Gymnasium's worlds: names, spaces, clocks. The environments below are made to show one thing each."""

import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from evarl.errors import InputError, WorldError
from evarl.worlds import Box, Discrete, make_world
from evarl.worlds.gymnasium import names

PREFIX = "EvarlTest"


class Recorder(gymnasium.Env[Any, Any]):
    """Shows what it is told to, remembers the actions it was given, and stops itself after `limit` steps."""

    def __init__(self, observation_space: Any = None, action_space: Any = None, limit: int | None = None) -> None:
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(2)
        self.limit = limit
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.actions.clear()
        self.shown = (options or {}).get("shown", self._draw())
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        if isinstance(self.shown, np.ndarray):
            self.shown[...] = self._draw()  # the same memory again
        else:
            self.shown = self._draw()
        return self.shown, 0.5, False, self.limit is not None and len(self.actions) >= self.limit, {}

    def _draw(self) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            return int(space.start + self.np_random.integers(space.n))
        if isinstance(space, spaces.Dict):
            return space.sample()
        return self.np_random.uniform(space.low, space.high).astype(space.dtype)


def missing(**_: Any) -> gymnasium.Env[Any, Any]:
    """What Gymnasium's Box2D worlds do where Box2D is not installed."""
    raise gymnasium.error.DependencyNotInstalled("Box2D is not installed,\nrun `pip install box2d`")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The environments of this file, in Gymnasium's registry while a test runs."""
    entries: dict[str, dict[str, Any]] = {
        "Plain": {},
        "Unlimited": {"max_episode_steps": None},
        "Stops": {"limit": 2},
        "Missing": {"entry_point": missing},
        "Parts": {"observation_space": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(-1, 1, (2,))})},
        "ImageInDict": {"observation_space": spaces.Dict({"eye": spaces.Box(0, 255, (4, 4, 3), np.uint8)})},
        "MultiAction": {"action_space": spaces.MultiDiscrete([2, 3])},
        "Offset": {"observation_space": spaces.Discrete(3, start=10), "action_space": spaces.Discrete(4, start=-2)},
        "Huge": {"observation_space": spaces.Box(*np.array([-1, 1]) * np.finfo(np.float64).max, (2,), np.float64)},
        "Pixels": {"observation_space": spaces.Box(0, 255, (2, 2), np.uint8)},
        "Flags": {"observation_space": spaces.Box(0, 1, (3,), np.bool_)},
        "Continuous": {"action_space": spaces.Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 2.0]]), dtype=np.float64)},
    }
    for name, entry in entries.items():
        options = {key: entry.pop(key) for key in ("entry_point", "max_episode_steps") if key in entry}
        gymnasium.register(
            f"{PREFIX}{name}-v0",
            **({"entry_point": Recorder, "max_episode_steps": 3, "disable_env_checker": True} | options),
            kwargs=entry,
        )
    yield
    for name in entries:
        del gymnasium.registry[f"{PREFIX}{name}-v0"]


def world(name: str, horizon: int | None = None) -> Any:
    """One of the environments above."""
    return make_world(f"gymnasium/{PREFIX}{name}-v0", horizon=horizon)


def inside(environments: Any, index: int = 0) -> Recorder:
    """The environment behind Gymnasium's wrappers."""
    return environments._environments[index].unwrapped


@pytest.mark.parametrize("name", names())
def test_every_listed_world_can_be_played(name: str) -> None:
    world = make_world(name)
    environments = world.open(1)
    assert environments.reset(0, 0).shape == world.observation_space.shape
    action = 0 if isinstance(world.action_space, Discrete) else np.zeros(world.action_space.shape, np.float32)
    assert environments.step(np.array([action])).observation.shape == (1, *world.observation_space.shape)
    environments.close()


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("CartPole-v9", "CartPole-v1"),
        ("Cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("Taxi-v3", "Taxi-v4"),
    ],
)
def test_unknown_ids_suggest_the_nearest_of_the_registry(wrong: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"unknown 'gymnasium/{wrong}'; did you mean 'gymnasium/{nearest}'"):
        make_world(f"gymnasium/{wrong}", horizon=5)


def test_an_id_that_is_like_no_other_may_be_in_a_module() -> None:
    with pytest.raises(
        InputError, match=r"unknown 'gymnasium/Inventory-v0'; .* its module: gymnasium/MODULE:Inventory-v0$"
    ):
        make_world("gymnasium/Inventory-v0")


def test_ids_outside_the_list_are_suggested_too() -> None:
    with pytest.raises(InputError, match="did you mean 'gymnasium/LunarLander-v3'"):
        make_world("gymnasium/LunarLander-v2")


def test_a_module_can_be_named_before_the_id() -> None:
    assert make_world("gymnasium/gymnasium.envs:CartPole-v1").horizon == 500
    with pytest.raises(InputError, match=r"^world: 'gymnasium/nowhere:CartPole-v1' cannot be made here: No module"):
        make_world("gymnasium/nowhere:CartPole-v1")


def test_a_missing_dependency_is_told_on_one_line() -> None:
    with pytest.raises(InputError) as caught:
        world("Missing")
    wanted = (
        f"world: 'gymnasium/{PREFIX}Missing-v0' cannot be made here: Box2D is not installed, run `pip install box2d`"
    )
    assert str(caught.value) == wanted


def test_the_extra_of_gymnasium_that_is_missing_is_named(monkeypatch) -> None:
    for name in [one for one in sys.modules if one.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "imageio", None)  # cannot be imported
    with pytest.raises(
        InputError, match=r"HalfCheetah-v5' cannot be made here: .*imageio.*; pip install 'gymnasium\[mujoco\]'$"
    ):
        make_world("gymnasium/HalfCheetah-v5")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "ImageInDict",
            "has the observation space Dict('eye': Box(0, 255, (4, 4, 3), uint8)), not supported; what is flattened must be rows "
            "of numbers: wrap it with gymnasium.wrappers.FilterObservation or TransformObservation so that one Box remains",
        ),
        (
            "MultiAction",
            "has the action space MultiDiscrete([2 3]), not supported; must be Box or Discrete: wrap it so that one Discrete "
            "number stands for each combination",
        ),
    ],
)
def test_unsupported_spaces_are_named(name: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        world(name)
    assert str(caught.value) == f"world: 'gymnasium/{PREFIX}{name}-v0' {told}"


def test_a_world_without_a_time_limit_wants_a_horizon() -> None:
    with pytest.raises(InputError) as caught:
        world("Unlimited")
    wanted = f"world: 'gymnasium/{PREFIX}Unlimited-v0' has no time limit of its own; a --horizon must be given"
    assert str(caught.value) == wanted
    assert world("Unlimited", horizon=4).horizon == 4


@pytest.mark.parametrize(
    ("name", "horizon", "steps"),
    [
        ("Plain", None, 3),  # the registered limit
        ("Plain", 2, 2),  # a shorter one
        ("Plain", 5, 5),  # a longer one: Gymnasium's own clock is off
        ("Stops", 5, 2),  # the environment stops itself
    ],
)
def test_truncation(name: str, horizon: int | None, steps: int) -> None:
    environments = world(name, horizon).open(1)
    for seed in range(2):  # the clock starts anew with every reset
        environments.reset(0, seed)
        ends = [environments.step(np.array([0])) for _ in range(steps)]
        assert [bool(end.truncated[0]) for end in ends] == [False] * (steps - 1) + [True]
        assert not any(end.terminated[0] for end in ends)


def test_each_environment_has_its_own_clock_and_a_late_step_moves_none() -> None:
    environments = world("Plain").open(2)
    environments.reset(0, 0)
    environments.reset(1, 1)
    environments.step(np.array([0, 0]))
    environments.reset(1, 2)
    environments.step(np.array([0, 0]))
    assert environments.step(np.array([0, 0])).truncated.tolist() == [True, False]
    with pytest.raises(InputError, match="environment 0 has no episode under way; it must be reset"):
        environments.step(np.array([0, 0]))
    assert len(inside(environments, 1).actions) == 2
    environments.reset(0, 3)
    assert environments.step(np.array([0, 0])).truncated.tolist() == [False, True]


def test_integers_that_do_not_begin_at_zero() -> None:
    offset = world("Offset")
    assert offset.observation_space == Box((3,), 0.0, 1.0)
    assert offset.action_space == Discrete(4)
    environments = offset.open(1)
    assert environments.reset(0, 0, {"shown": 11}).tolist() == [0.0, 1.0, 0.0]
    assert environments.step(np.array([0])).observation.sum() == 1.0
    environments.step(np.array([3]))
    assert inside(environments).actions == [-2, 1]
    assert all(offset_action in inside(environments).action_space for offset_action in inside(environments).actions)


def test_boxes_of_actions_get_their_dtype_and_shape_back() -> None:
    continuous = world("Continuous")
    assert continuous.action_space == Box((1, 2), (-1.0, 0.0), (1.0, 2.0))
    environments = continuous.open(1)
    environments.reset(0, 0)
    environments.step(np.array([[[0.5, 1.5]]], np.float32))
    (action,) = inside(environments).actions
    assert (action.dtype, action.shape, action.tolist()) == (np.float64, (1, 2), [[0.5, 1.5]])


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("Plain", Box((2,), -1.0, 1.0, "float32")),
        ("Pixels", Box((2, 2), 0.0, 255.0, "uint8")),
        ("Flags", Box((3,), 0.0, 1.0, "bool")),
    ],
)
def test_observation_dtypes(name: str, space: Box) -> None:
    described = world(name)
    assert described.observation_space == space
    environments = described.open(1)
    assert environments.reset(0, 0).dtype == space.dtype
    assert environments.step(np.array([0])).observation.dtype == space.dtype


def test_observations_of_several_parts_become_one_row() -> None:
    described = world("Parts")
    assert described.observation_space == Box((4,), (-1.0, -1.0, 0.0, 0.0), 1.0)
    environments = described.open(1)
    shown = {"a": np.array([0.5, -0.25], np.float32), "b": 1}
    assert environments.reset(0, 0, {"shown": shown}).tolist() == [0.5, -0.25, 0.0, 1.0]
    assert environments.step(np.array([0])).observation.shape == (1, 4)
    with pytest.raises(WorldError, match=r"reset with seed 0\): ValueError: the observation is .*must be one of Dict"):
        environments.reset(0, 0, {"shown": shown | {"b": 2}})


def test_the_largest_float_is_no_bound() -> None:
    assert world("Huge").observation_space == Box((2,), -np.inf, np.inf)


def test_observations_do_not_share_memory_with_the_environment() -> None:
    environments = world("Pixels").open(1)
    first = environments.reset(0, 0)
    kept = first.copy()
    environments.step(np.array([0]))
    assert np.array_equal(first, kept)
    assert not np.array_equal(inside(environments).shown, kept)


def test_reset_options_reach_the_environment() -> None:
    environments = world("Plain").open(1)
    assert environments.reset(0, 0, {"shown": np.array([0.25, -0.5])}).tolist() == [0.25, -0.5]
