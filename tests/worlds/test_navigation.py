"""The paper's navigation task, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.worlds import make_world
from evarl.worlds.navigation import Navigation

RIGHT, UP, LEFT, DOWN = range(4)


def move(world: Navigation, begin: tuple[float, float], action: int) -> tuple[list[float], float, bool, bool]:
    """Where one step leads, its reward, and both ends."""
    state, _ = world.begin(jnp.asarray(begin, jnp.float32))
    step = world.step(jax.random.PRNGKey(0), state, jnp.int32(action))
    return step.observation.tolist(), float(step.reward), bool(step.terminated), bool(step.truncated)


@pytest.fixture
def world() -> Navigation:
    return make_world("navigation")


@pytest.fixture
def open_field() -> Navigation:
    return make_world("navigation/open-field")


def test_every_episode_begins_at_the_paper_s_start(world: Navigation) -> None:
    for seed in range(3):
        assert world.reset(jax.random.PRNGKey(seed))[1].tolist() == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize(
    ("action", "end"), [(RIGHT, (0.7, 0.2)), (UP, (0.5, 0.4)), (LEFT, (0.3, 0.2)), (DOWN, (0.5, 0.0))]
)
def test_four_directions(action: int, end: tuple[float, float]) -> None:
    free = Navigation(obstacles=())
    position, reward, terminated, truncated = move(free, (0.5, 0.2), action)
    assert position == pytest.approx(end)
    assert reward == pytest.approx(-np.hypot(0.9 - end[0], 0.9 - end[1]))
    assert (terminated, truncated) == (False, False)


def test_reaching_the_goal_ends_the_episode_with_a_bonus(world: Navigation) -> None:
    position, reward, terminated, _ = move(world, (0.9, 0.7), UP)
    assert position == pytest.approx([0.9, 0.9])
    assert reward == pytest.approx(1.0)
    assert terminated


@pytest.mark.parametrize(("offset", "reached"), [(0.07, True), (0.09, False)])
def test_the_goal_is_a_disc_of_radius_8_hundredths(world: Navigation, offset: float, reached: bool) -> None:
    _, reward, terminated, _ = move(world, (0.9 + offset, 0.7), UP)
    assert terminated is reached
    assert reward == pytest.approx(reached - offset, abs=1e-6)


def test_reaching_the_goal_in_the_last_step_is_no_truncation() -> None:
    assert move(Navigation(horizon=1), (0.9, 0.7), UP)[2:] == (True, False)
    assert move(Navigation(horizon=1), (0.9, 0.5), UP)[2:] == (False, True)


@pytest.mark.parametrize(
    ("begin", "action"),
    [
        ((0.25, 0.25), RIGHT),  # into the first obstacle
        ((0.45, 0.25), LEFT),  # from its other side
        ((0.35, 0.65), DOWN),  # from above
        ((0.65, 0.35), UP),  # into the second obstacle from below
        ((0.20, 0.05), UP),  # free: x is left of both obstacles
    ],
)
def test_a_step_into_an_obstacle_is_bounced_back(world: Navigation, begin: tuple[float, float], action: int) -> None:
    position, reward, terminated, _ = move(world, begin, action)
    free = begin == (0.20, 0.05)
    assert position == pytest.approx([0.20, 0.25] if free else begin)
    assert reward == pytest.approx(-np.hypot(0.9 - position[0], 0.9 - position[1]), abs=1e-6)
    assert not terminated


def test_a_long_step_does_not_jump_over_an_obstacle() -> None:
    assert move(Navigation(step_size=0.4), (0.2, 0.3), RIGHT)[0] == pytest.approx([0.2, 0.3])


@pytest.mark.parametrize(
    ("begin", "action", "end"),
    [
        ((0.05, 0.05), LEFT, (0.0, 0.05)),
        ((0.05, 0.05), DOWN, (0.05, 0.0)),
        ((0.95, 0.05), RIGHT, (1.0, 0.05)),
        ((0.05, 0.95), UP, (0.05, 1.0)),
    ],
)
def test_walls_clip(world: Navigation, begin: tuple[float, float], action: int, end: tuple[float, float]) -> None:
    assert move(world, begin, action)[0] == pytest.approx(end)


def test_open_field_has_no_obstacles_and_twice_the_step(open_field: Navigation) -> None:
    assert open_field.obstacles == ()
    assert move(open_field, (0.25, 0.25), RIGHT)[0] == pytest.approx([0.65, 0.25])
    assert move(open_field, (0.65, 0.3), UP)[0] == pytest.approx([0.65, 0.7])


def test_unknown_navigation_world() -> None:
    with pytest.raises(InputError, match="did you mean 'navigation/open-field'"):
        make_world("navigation/openfield")
