"""Contexts of every family of worlds: what is refused, that they act and are hidden, and that nothing changes without them."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import evarl
from evarl.cli.main import call
from evarl.errors import InputError, WorldError
from evarl.worlds import Context, Discrete, World, classic, make_world, navigation
from evarl.worlds.brax import BraxWorld
from evarl.worlds.contexts import draw_contexts, parse_site, site_values, standardised
from evarl.worlds.navigation import Navigation
from evarl.worlds.tabular import Tabular

pytestmark = pytest.mark.filterwarnings("ignore:Accessing `.*` directly from `Data`:DeprecationWarning")  # Brax does

COMPILE_FAST = {"xla_backend_optimization_level": 0}
RIGHT, UP, LEFT, DOWN = range(4)


@pytest.mark.parametrize(
    ("world", "given", "message"),
    [
        (
            "crossing",
            ["brige=0,1"],
            "context: unknown 'brige'; did you mean 'bridge'? Known: bridge",
        ),
        (
            "crossing",
            ["bridge=0.1:1.5"],
            "context: bridge=1.5 is not allowed; crossing takes 0 to 1 (default 0.5)",
        ),
        ("crossing", ["bridge"], "context: 'bridge' is not allowed; must be NAME=LOW:HIGH or NAME=A,B,C"),
        (
            "crossing",
            ["bridge=0:0.5:1"],
            "context: 'bridge=0:0.5:1' is not allowed; must be NAME=LOW:HIGH or NAME=A,B,C",
        ),
        ("crossing", ["bridge=often"], "context: 'bridge=often' is not allowed; must be NAME= and finite numbers"),
        ("crossing", ["bridge=nan"], "context: 'bridge=nan' is not allowed; must be NAME= and finite numbers"),
        ("crossing", ["bridge=0.9:0.1"], "context: 'bridge=0.9:0.1' is not allowed; LOW must be below HIGH"),
        (
            "crossing",
            ["bridge=0,1", "bridge=0:1"],
            "context: bridge is given twice; one range or list is allowed",
        ),
        (
            "navigation",
            ["slip=0:1"],
            "context: slip=1 is not allowed; navigation takes 0 to 0.9 (default 0)",
        ),
        (
            "navigation",
            ["obstacle-1=0:1"],
            "context: 'obstacle-1=0:1' is not allowed; must be whole numbers, as in obstacle-1=0,1",
        ),
        (
            "navigation/open-field",
            ["obstacle-1=0,1"],
            "context: unknown 'obstacle-1'; did you mean 'step-size'? Known: slip, wind, step-size",
        ),
        (
            "tabular/chain",
            ["context=0,1"],
            "context: tabular/chain has nothing that can vary; `evarl worlds NAME` lists what a world has",
        ),
        (
            "gymnax/CartPole-v1",
            ["lenght=0.3:0.6"],
            "context: unknown 'lenght'; did you mean 'length'? Known: length, masspole, masscart, force_mag, gravity",
        ),
        (
            "gymnasium/Pendulum-v1",
            ["max_torque=3:4"],
            "context: max_torque=3 is not allowed; gymnasium/Pendulum-v1 takes 0.5 to 2 (default 2)",
        ),
        (
            "gymnasium/Taxi-v4",
            ["fickle_probability=0:1"],
            "context: gymnasium/Taxi-v4 has nothing that can vary; `evarl worlds NAME` lists what a world has",
        ),
        (
            "brax/inverted_pendulum",
            ["friction=0.5:1"],
            "context: unknown 'friction'; Known: mass, gain, weak-actuator",
        ),
        (
            "gymnax/Asterix-MinAtar",
            ["init_move_interval=3:8"],
            "context: 'init_move_interval=3:8' is not allowed; must be whole numbers, as in init_move_interval=2,10",
        ),
        (
            "gymnax/Asterix-MinAtar",
            ["init_move_interval=1,5"],
            "context: init_move_interval=1 is not allowed; gymnax/Asterix-MinAtar takes 2 to 10 (default 5)",
        ),
        (
            "gymnax/Asterix-MinAtar",
            ["shot_cool_down=3,5"],  # is not read there
            "context: unknown 'shot_cool_down'; Known: ramp_interval, init_spawn_speed, init_move_interval",
        ),
        (
            "gymnax/Breakout-MinAtar",
            ["max_steps_in_episode=500,1000"],
            "context: gymnax/Breakout-MinAtar has nothing that can vary; `evarl worlds NAME` lists what a world has",
        ),
    ],
)
def test_what_is_refused(world: str, given: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_world(world, context=given)
    assert str(caught.value) == message


def test_a_site_needs_every_context() -> None:
    world = make_world("navigation", context=["slip=0:0.5", "wind=0,0.1"])
    assert parse_site([], world.contexts, world.name) is None
    site = parse_site(["wind=0.1", "slip=0.25"], world.contexts, world.name)
    assert site is not None
    np.testing.assert_allclose(site, [0.25, 0.1], rtol=1e-6)
    with pytest.raises(InputError, match=r"^context: wind is missing; give NAME=VALUE for each of slip, wind$"):
        parse_site(["slip=0.2"], world.contexts, world.name)
    with pytest.raises(InputError, match=r"^context: unknown 'wnd'; did you mean 'wind'\?"):
        parse_site(["wnd=0.2"], world.contexts, world.name)
    with pytest.raises(InputError, match=r"^context: crossing was trained without contexts; none can be given$"):
        parse_site(["bridge=0.2"], (), "crossing")


def test_contexts_are_drawn_as_written(key: jax.Array) -> None:
    world = make_world("navigation", context=["slip=0.1:0.5", "obstacle-2=0,1"])
    drawn = np.asarray(draw_contexts(world.contexts, key, 4000))
    assert drawn.shape == (4000, 2)
    assert drawn[:, 0].min() >= 0.1
    assert drawn[:, 0].max() <= 0.5
    assert drawn[:, 0].mean() == pytest.approx(0.3, abs=0.01)
    assert set(drawn[:, 1]) == {0.0, 1.0}
    assert drawn[:, 1].mean() == pytest.approx(0.5, abs=0.04)
    scaled = np.asarray(standardised(world.contexts, jnp.asarray(drawn)))
    assert np.abs(scaled).max() <= 1.0 + 1e-6
    values = site_values(world.parameters, world.contexts, jnp.asarray([0.2, 0.0]))
    assert {name: float(value) for name, value in values.items()} == pytest.approx(
        {"slip": 0.2, "wind": 0.0, "step-size": 0.2, "obstacle-1": 1.0, "obstacle-2": 0.0}
    )


FAMILIES = {
    "crossing": ("bridge=0:1",),
    "navigation": ("slip=0:0.9", "wind=-0.1:0.1", "step-size=0.05:0.5", "obstacle-1=0,1", "obstacle-2=0,1"),
    "gymnax/CartPole-v1": ("length=0.1:2", "masspole=0.01:1", "masscart=0.2:5", "force_mag=2:20", "gravity=1:20"),
    "gymnax/Pendulum-v1": ("g=1:20", "m=0.2:2", "l=0.5:2", "max_torque=0.5:2"),
    "gymnax/Acrobot-v1": ("link_length_1=0.5:2", "link_mass_1=0.5:2", "link_mass_2=0.5:2"),
    "gymnax/MountainCar-v0": ("force=0.0005:0.002", "gravity=0.0015:0.0035"),
    "gymnax/MountainCarContinuous-v0": ("power=0.0005:0.003", "gravity=0.0015:0.0035"),
    "gymnax/FourRooms-misc": ("fail_prob=0.2:0.6",),
    "gymnax/Asterix-MinAtar": ("ramp_interval=50,200", "init_spawn_speed=5,20", "init_move_interval=2,10"),
    "gymnax/SpaceInvaders-MinAtar": ("shot_cool_down=2,10", "enemy_move_interval=6,24", "enemy_shot_interval=5,20"),
    "gymnax/Freeway-MinAtar": ("player_speed=1,6",),
    "gymnax/Seaquest-MinAtar": (
        *("init_spawn_speed=10,40", "init_move_interval=2,10", "diver_spawn_speed=15,60", "shot_cool_down=2,10"),
        *("enemy_shot_interval=5,20", "diver_move_interval=2,10"),
    ),
    "gymnax/Pong-misc": ("ball_max_y_speed=1,6", "paddle_y_speed=1,2", "ball_x_speed=1,2"),
    "brax/halfcheetah": ("friction=0.1:3", "mass=1:3", "gain=0.1:2", "weak-actuator=0:1"),
    "brax/inverted_pendulum:mjx": ("mass=1:3", "gain=0.1:2", "weak-actuator=0:1"),
    "brax/inverted_pendulum:positional": ("mass=1:3", "gain=0.1:2", "weak-actuator=0:1"),
    "brax/inverted_pendulum": ("mass=1:3", "gain=0.1:2", "weak-actuator=0:1"),
}
"""Worlds, and contexts each of which changes a rollout."""

STEPS = {"gymnax/Asterix-MinAtar": 80, "gymnax/Seaquest-MinAtar": 40, "gymnax/Pong-misc": 180}
"""Length of the rollouts in which every context shows, if it is not 12."""


def walks(world: World) -> Callable[..., list[np.ndarray]]:
    """A function of the context that returns [lane, step] observations, rewards and ends of eight random walks."""

    def walk(key: jax.Array, context: jax.Array | None) -> Any:
        def body(state: Any, key: jax.Array) -> Any:
            act, move = jax.random.split(key)
            step = world.step(move, state, random_action(act))
            return step.state, (step.observation, step.reward, step.terminated)

        state, first = world.reset(key, context)
        shown, reward, ended = jax.lax.scan(body, state, jax.random.split(key, STEPS.get(world.name, 12)))[1]
        return jnp.concatenate([first[None], shown]).astype(jnp.float32), reward, ended

    def random_action(key: jax.Array) -> jax.Array:
        space = world.action_space
        if isinstance(space, Discrete):
            return jax.random.randint(key, (), 0, space.n)
        low, high = space.bounds()
        return jax.random.uniform(key, space.shape, minval=low, maxval=high)

    program = jax.jit(jax.vmap(walk, (0, None)), compiler_options=COMPILE_FAST)
    keys = jax.random.split(jax.random.PRNGKey(2), 8)
    return lambda context=None: [np.asarray(one) for one in program(keys, context)]


SLOW = [
    "gymnax/Asterix-MinAtar",
    "gymnax/Freeway-MinAtar",
    "gymnax/Seaquest-MinAtar",
    "gymnax/SpaceInvaders-MinAtar",
    "gymnax/Pong-misc",
    "gymnax/FourRooms-misc",
    "gymnax/Acrobot-v1",
    "brax/halfcheetah",
    "brax/inverted_pendulum",
    "brax/inverted_pendulum:mjx",
    "brax/inverted_pendulum:positional",
]


@pytest.mark.parametrize(
    "name", [name if name not in SLOW else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_every_context_acts_and_the_defaults_are_the_plain_world(name: str) -> None:
    plain, world = make_world(name), make_world(name, context=FAMILIES[name])
    if isinstance(world, BraxWorld):
        plain, world = (dataclasses.replace(one, pool_size=4) for one in (plain, world))
    known = {one.name: one.default for one in plain.parameters}
    default = np.asarray([known[one.name] for one in world.contexts], np.float32)
    expected, walked = walks(plain)(), walks(world)
    for one, other in zip(walked(jnp.asarray(default)), expected, strict=True):
        np.testing.assert_allclose(one[:, :3], other[:, :3], rtol=1e-5, atol=1e-5)  # contacts amplify what is rounded
    least = 0.05 if isinstance(world, BraxWorld) else 1e-4
    for index, context in enumerate(world.contexts):
        value = context.low if abs(context.low - default[index]) > 1e-6 else context.high
        changed = walked(jnp.asarray(default).at[index].set(value))
        assert all(np.isfinite(one).all() for one in changed)
        assert any(np.abs(one - other).max() > least for one, other in zip(changed[:2], expected[:2], strict=True)), (
            context
        )
        np.testing.assert_array_equal(changed[0][:, 0], expected[0][:, 0])  # nothing is to be seen at the start
    assert world.observation_space == plain.observation_space
    assert world.action_space == plain.action_space


@pytest.mark.parametrize(
    "game",
    ["Asterix", "SpaceInvaders", *(pytest.param(game, marks=pytest.mark.slow) for game in ("Freeway", "Seaquest"))],
)
def test_all_whole_numbers_of_games_are_tried_and_stay_whole(game: str) -> None:
    name = f"gymnax/{game}-MinAtar"
    world = make_world(name, context=FAMILIES[name])
    assert [one.name for one in world.parameters] == [one.name for one in world.contexts]
    assert all(one.whole and one.low >= 1 for one in world.parameters)
    site = jnp.asarray([one.high for one in world.contexts], jnp.float32)
    plain = jax.eval_shape(make_world(name).reset, jax.random.PRNGKey(0))[0].physics
    assert jax.eval_shape(world.reset, jax.random.PRNGKey(0), site)[0].physics == plain


def test_an_episode_at_a_given_state_has_the_speed_of_its_site() -> None:
    """Asterix keeps its speeds in the state, where a reset puts them; what else is there stays as given."""
    world = make_world("gymnax/Asterix-MinAtar", context=["init_move_interval=3,8"])
    physics = world.reset(jax.random.PRNGKey(0), jnp.asarray([3.0]))[0].physics.replace(player_x=jnp.int32(7))
    begun = jax.jit(world.begin)(physics, jnp.asarray([8.0]))[0].physics
    assert (int(begun.move_speed), int(begun.move_timer), int(begun.player_x)) == (8, 8, 7)
    assert int(begun.spawn_speed) == int(physics.spawn_speed) == 10
    assert int(world.begin(physics)[0].physics.move_speed) == 3  # without a context nothing is changed
    shots = make_world("gymnax/SpaceInvaders-MinAtar", context=["shot_cool_down=2,5"])
    again = shots.reset(jax.random.PRNGKey(0), jnp.asarray([2.0]))[0].physics.replace(alien_move_timer=jnp.int32(2))
    assert int(shots.begin(again, jnp.asarray([5.0]))[0].physics.alien_move_timer) == 2  # does not depend on it


def test_the_highest_return_of_space_invaders_follows_the_pace_of_shots() -> None:
    plain = make_world("gymnax/SpaceInvaders-MinAtar", 10, 1.0).return_range()
    faster = make_world("gymnax/SpaceInvaders-MinAtar", 10, 1.0, ["shot_cool_down=2,5"]).return_range()
    assert (plain[1], faster[1]) == (pytest.approx(20.0, rel=1e-4), pytest.approx(50.0, rel=1e-4))


def test_worlds_with_the_same_contexts_are_the_same_world() -> None:
    """They are static arguments of compiled programs."""
    for name in ("crossing", "navigation"):
        one, other = (make_world(name, context=FAMILIES[name]) for _ in range(2))
        assert one == other
        assert hash(one) == hash(other)
        assert one != make_world(name)


def test_without_contexts_navigation_is_what_it_was() -> None:
    """Bit for bit: the formula of the world before it could vary."""
    corners = np.asarray(navigation.OBSTACLES, np.float32)

    def before(physics: jax.Array, action: jax.Array) -> jax.Array:
        target = jnp.clip(physics + 0.2 * jnp.asarray(navigation.DIRECTIONS, jnp.float32)[action], 0.0, 1.0)
        low, high = jnp.minimum(physics, target), jnp.maximum(physics, target)
        overlap = (low[None] <= corners[:, 1] + 1e-5) & (high[None] >= corners[:, 0] - 1e-5)
        return jnp.where(overlap.all(axis=1).any(), physics, target)

    world, key = make_world("navigation"), jax.random.PRNGKey(0)
    places = jax.random.uniform(key, (4000, 2))
    actions = jax.random.randint(key, (4000,), 0, 4)
    now = jax.vmap(lambda physics, action: world.transition(key, physics, action)[0])(places, actions)
    np.testing.assert_array_equal(now, jax.vmap(before)(places, actions))


def blown(begin: tuple[float, float], action: int, *given: str) -> list[float]:
    """Where a step of navigation ends at the site of these contexts."""
    world = make_world("navigation", context=given)
    site = jnp.asarray([one.low for one in world.contexts], jnp.float32)
    physics = jnp.asarray(begin, jnp.float32)
    return world.transition(jax.random.PRNGKey(0), physics, jnp.int32(action), site)[0].tolist()


@pytest.mark.parametrize(
    ("begin", "action", "given", "end"),
    [
        ((0.5, 0.2), UP, ["wind=0.1"], (0.6, 0.4)),
        ((0.55, 0.2), LEFT, ["wind=-0.05", "step-size=0.05"], (0.45, 0.2)),
        ((0.95, 0.2), UP, ["wind=0.1"], (1.0, 0.4)),  # the square ends there
        ((0.25, 0.6), DOWN, ["wind=0.1"], (0.25, 0.6)),  # into the first obstacle
        ((0.2, 0.5), UP, ["wind=0.1"], (0.3, 0.7)),  # past its corner, though it is within the step's bounding box
        ((0.25, 0.25), RIGHT, ["step-size=0.2"], (0.25, 0.25)),
        ((0.25, 0.25), RIGHT, ["obstacle-1=0"], (0.45, 0.25)),
        ((0.25, 0.25), RIGHT, ["obstacle-2=0"], (0.25, 0.25)),
    ],
)
def test_navigation_by_hand(
    begin: tuple[float, float], action: int, given: list[str], end: tuple[float, float]
) -> None:
    assert blown(begin, action, *given) == pytest.approx(end, abs=1e-6)


def test_oblique_steps_touch_what_their_points_touch() -> None:
    world, corners = Navigation(), np.asarray(navigation.OBSTACLES)
    generator = np.random.default_rng(0)
    begin, end = generator.random((2, 1000, 2)).astype(np.float32)
    hits = jax.vmap(lambda one, other: world._touched(one, other) & world._meets_line(one, other))(begin, end)
    points = begin[:, None] + np.linspace(0, 1, 2001)[None, :, None] * (end - begin)[:, None]
    for grown, compare in ((-2e-3, np.greater_equal), (2e-3, np.less_equal)):  # the points are up to 1e-3 apart
        low, high = corners[:, 0] - grown, corners[:, 1] + grown
        inside = ((points[:, :, None] >= low) & (points[:, :, None] <= high)).all(-1).any(1)
        assert compare(np.asarray(hits), inside).all()


def test_slipping_steps_go_in_all_directions() -> None:
    world = make_world("navigation/open-field", context=["slip=0.4"])
    keys, begin, slip = jax.random.split(jax.random.PRNGKey(0), 4000), jnp.asarray([0.5, 0.5]), jnp.asarray([0.4])
    ends = jax.vmap(lambda key: world.transition(key, begin, jnp.int32(RIGHT), slip)[0])(keys)
    right = np.mean(np.asarray(ends)[:, 0] > 0.6)
    assert right == pytest.approx(0.7, abs=0.03)  # 0.6 that do not slip, and a quarter of those that do
    assert np.mean(np.asarray(ends)[:, 1] < 0.4) == pytest.approx(0.1, abs=0.02)


def two_tables(**changed: Any) -> Tabular:
    """Two tables with two states and two actions; in the second, every action is the other one."""
    moves = np.stack([np.eye(2), np.eye(2)[::-1]], axis=1)
    arrays = {"transitions": np.stack([moves, moves[:, ::-1]]), "rewards": np.array([[[0.0] * 2, [1.0] * 2]] * 2)}
    return Tabular(**(arrays | {"start": np.array([1.0, 0.0])} | changed))


def test_a_family_of_tables(key: jax.Array, tmp_path: Any) -> None:
    family = two_tables()
    np.savez(tmp_path / "two.npz", transitions=family.transitions, rewards=family.rewards, start=family.start)
    world = make_world(f"tabular/{tmp_path}/two.npz", context=["context=0,1"])
    assert [(one.name, one.default, one.low, one.high) for one in world.parameters] == [("context", 0.0, 0.0, 1.0)]
    assert (world.state_count, world.observation_space.shape, world.action_space.n) == (2, (2,), 2)
    for number in range(2):
        plain, site = world.at(number), jnp.asarray([number], jnp.float32)
        assert plain.parameters == ()
        np.testing.assert_array_equal(plain.transitions, family.transitions[number])
        for state in range(2):
            for action in range(2):
                given = key, jnp.int32(state), jnp.int32(action)
                assert [x.tolist() for x in world.transition(*given, site)] == [
                    x.tolist() for x in plain.transition(*given)
                ]
    assert int(family.transition(key, jnp.int32(0), jnp.int32(1))[0]) == 1  # without contexts, the first table
    with pytest.raises(InputError, match=r"^context: 2 is not allowed; tabular has no such table$"):
        family.at(2)


def test_a_family_of_tables_may_begin_in_other_states(key: jax.Array) -> None:
    family = two_tables(start=np.eye(2))
    assert [int(family.initial(key, jnp.asarray([number], jnp.float32))) for number in range(2)] == [0, 1]
    assert family.at(1).start.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"transitions": np.ones((2, 2, 2)) / 2},
            "tabular: transitions has shape (2, 2, 2); must be (2, 2, 2, 2), as rewards are [C, S, A]",
        ),
        (
            {"start": np.ones((3, 2)) / 2},
            "tabular: start has shape (3, 2); must be (2, 2), as rewards are [C, S, A]",
        ),
    ],
)
def test_shapes_of_families_are_checked(changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError) as caught:
        two_tables(**changed)
    assert str(caught.value) == message


def test_tables_are_chosen_by_whole_numbers(tmp_path: Any) -> None:
    family = two_tables()
    np.savez(tmp_path / "two.npz", transitions=family.transitions, rewards=family.rewards, start=family.start)
    for wrong in ("context=0:1", "context=0,0.5"):
        message = f"^context: '{wrong}' is not allowed; must be whole numbers, as in context=0,1$"
        with pytest.raises(InputError, match=message):
            make_world(f"tabular/{tmp_path}/two.npz", context=[wrong])


@pytest.mark.parametrize("identifier", sorted(classic.PARAMETERS))
def test_defaults_of_classic_control_are_those_of_both_packages(identifier: str) -> None:
    world = make_world(f"gymnax/{identifier}")
    listed = {one.name: one.default for one in world.parameters}
    assert {name: getattr(world.defaults, name) for name in listed} == listed
    derived = classic.with_derived(identifier, listed)
    assert {name: getattr(world.defaults, name) for name in derived} == pytest.approx(derived)
    inner = gymnasium.make(identifier).unwrapped
    found = {one.name: one.default for one in make_world(f"gymnasium/{identifier}").parameters}
    assert found.items() <= listed.items()
    for name, value in found.items():
        assert getattr(inner, name if hasattr(inner, name) else name.upper()) == value


def falling(world: Any, *contexts: list[float]) -> list[np.ndarray]:
    """Observations of three steps in environments that are placed at these sites, all with the same seed."""
    environments = world.open(len(contexts))
    for index, context in enumerate(contexts):
        environments.place(index, np.asarray(context, np.float32))
        environments.reset(index, 3)
    zero = 0 if isinstance(world.action_space, Discrete) else np.zeros(world.action_space.shape, np.float32)
    shown = [environments.step(np.stack([zero] * len(contexts))).observation for _ in range(3)]
    environments.close()
    return list(np.stack(shown, axis=1))


@pytest.mark.parametrize(
    ("identifier", "context", "values"),
    [
        ("CartPole-v1", "length", (0.5, 1.0)),
        ("CartPole-v1", "masspole", (0.1, 0.9)),
        ("Pendulum-v1", "g", (10.0, 5.0)),
        ("Acrobot-v1", "link_length_1", (1.0, 2.0)),
        ("MountainCar-v0", "force", (0.001, 0.002)),
    ],
)
def test_attributes_of_gymnasium_act(identifier: str, context: str, values: tuple[float, float]) -> None:
    default, changed = values
    plain = make_world(f"gymnasium/{identifier}")
    world = make_world(f"gymnasium/{identifier}", context=[f"{context}={default},{changed}"])
    first, second, third = falling(world, [default], [changed], [default])
    np.testing.assert_array_equal(first, third)
    assert np.abs(first - second).max() > 1e-6
    (untouched,) = falling(plain, [])
    np.testing.assert_allclose(untouched, first, rtol=1e-6)


def test_cartpole_keeps_its_derived_numbers() -> None:
    world = make_world("gymnasium/CartPole-v1", context=["masspole=0.5,1", "length=0.25:2"])
    environments = world.open(1)
    environments.place(0, np.asarray([0.5, 2.0]))
    inner = environments._environments[0].unwrapped
    assert inner.masspole == 0.1  # from the next reset on
    environments.reset(0, 0)
    assert (inner.masspole, inner.length, inner.total_mass, inner.polemass_length) == (0.5, 2.0, 1.5, 1.0)
    with pytest.raises(InputError, match=r"^context: 1 numbers are not allowed; gymnasium/CartPole-v1 has 2$"):
        environments.place(0, np.asarray([0.5]))


class Stubborn(gymnasium.Env[Any, Any]):
    """Has numbers of its own, and sets one of them at every reset."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    drag = -0.5
    nothing, flag, _hidden, count = 0.0, True, 3.0, 4

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.pull = 2.0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), self.pull, False, False, {}

    pull = 2.0


def test_any_environment_of_gymnasium_offers_its_floats() -> None:
    gymnasium.register("EvarlTestStubborn-v0", entry_point=Stubborn, max_episode_steps=3, disable_env_checker=True)
    try:
        world = make_world("gymnasium/EvarlTestStubborn-v0", context=["pull=1:4"])
        listed = {one.name: (one.default, one.low, one.high) for one in world.parameters}
        assert listed == {"drag": (-0.5, -1.0, -0.25), "pull": (2.0, 1.0, 4.0)}
        environments = world.open(1)
        environments.place(0, np.asarray([3.5]))
        environments.reset(0, 0)
        assert environments.step(np.array([0])).reward.tolist() == [3.5]
    finally:
        del gymnasium.registry["EvarlTestStubborn-v0"]


class Built(gymnasium.Env[Any, Any]):
    """Pays what its constructor computes from an argument; shows as many numbers as another one says."""

    action_space = spaces.Discrete(2)
    closed: ClassVar[list[float]] = []

    def __init__(self, pay: float = 2.0, width: int = 2, tilt: float = 0.5, flag: bool = True, name: str = "x") -> None:
        if pay > 3.9:
            raise RuntimeError("too much")
        self.observation_space = spaces.Box(-1.0, 1.0, (width,), np.float32)
        self.pay, self._total, self.drag = pay, 10 * pay + tilt, 1.5

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(self.observation_space.shape, np.float32), self._total + 100 * self.drag, False, False, {}

    def close(self) -> None:
        self.closed.append(self.pay)


@pytest.fixture
def built() -> Iterator[str]:
    """An environment whose registry entry gives one of the arguments."""
    name = "EvarlTestBuilt-v0"
    Built.closed.clear()
    gymnasium.register(name, entry_point=Built, max_episode_steps=9, disable_env_checker=True, kwargs={"tilt": 0.25})
    yield f"gymnasium/{name}"
    del gymnasium.registry[name]


def paid(environments: Any, *site: float) -> float:
    """Reward of a step at one site, whose context holds from the next reset on."""
    environments.place(0, np.asarray(site, np.float32))
    environments.reset(0, 0)
    return float(environments.step(np.array([0])).reward[0])


def test_arguments_of_make_vary_beside_attributes(built: str) -> None:
    world = make_world(built, context=["pay=1:4", "drag=1:3"])
    listed = {one.name: (one.default, one.low, one.high, one.whole) for one in world.parameters}
    assert listed == {
        "pay": (2.0, 1.0, 4.0, False),
        "width": (2, 1, 4, True),
        "tilt": (0.25, 0.125, 0.5, False),
        "drag": (1.5, 0.75, 3.0, False),
    }
    assert world.arguments == ("pay", "width", "tilt")
    environments = world.open(1)
    environments.reset(0, 0)
    environments.place(0, np.asarray([3.0, 2.0], np.float32))
    assert environments.step(np.array([0])).reward.tolist() == [170.25]  # the episode under way goes on
    assert paid(environments, 3.0, 2.0) == 230.25
    assert paid(environments, 3.0, 1.0) == 130.25
    environments.close()


def test_environments_are_kept_by_their_arguments_and_closed_when_dropped(built: str) -> None:
    environments = make_world(built, context=["pay=1:4"]).open(1)
    Built.closed.clear()  # of the one that was looked at
    seen = []
    for pay in (1.0, 1.5, 1.0, 1.5):
        paid(environments, pay)
        seen.append(environments._environments[0])
    assert seen[0] is seen[2]
    assert seen[1] is seen[3]
    assert Built.closed == []
    for pay in (2.5, 3.0, 3.5):  # the first one, made without a site, is dropped, and then the least recent
        paid(environments, pay)
    assert Built.closed == [2.0, 1.0]
    environments.close()
    assert sorted(Built.closed) == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]


def test_arguments_that_cannot_be_used_are_one_clear_line(built: str) -> None:
    environments = make_world(built, context=["width=1,2,4"]).open(1)
    assert paid(environments, 2.0) == 170.25
    with pytest.raises(InputError) as caught:
        paid(environments, 4.0)
    assert str(caught.value) == (
        f"context: pay=2, tilt=0.25, width=4 gives {built} the spaces Box(4, -1.0 to 1.0, float32) and Discrete(2); what "
        "varies must leave them as they are, Box(2, -1.0 to 1.0, float32) and Discrete(2)"
    )
    environments = make_world(built, context=["pay=1:4"]).open(1)
    with pytest.raises(WorldError) as failed:
        paid(environments, 4.0)
    assert str(failed.value) == (
        f"world: {built} failed (while it was made with pay=4, tilt=0.25, width=2): RuntimeError: too much"
    )


def test_frozen_lake_varies_by_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    world = make_world("gymnasium/FrozenLake-v1", context=["success_rate=0:1"])
    environments = world.open(3)
    for index, rate in enumerate((0.0, 0.25, 1.0)):
        environments.place(index, np.asarray([rate]))
        environments.reset(index, 0)
    chances = [one.unwrapped.P[0][1] for one in environments._environments]  # down, from the start
    assert [[chance[0] for chance in one] for one in chances] == [[0.5, 0.0, 0.5], [0.375, 0.25, 0.375], [0, 1, 0]]
    shown = environments.step(np.array([1, 1, 1])).observation.argmax(axis=1)
    assert shown[0] in (0, 1)
    assert shown[2] == 4
    environments.close()
    assert call(["worlds", "gymnasium/FrozenLake-v1"]) == 0
    assert "success_rate  0.333333  0     1   probability that a step goes" in capsys.readouterr().out


@pytest.mark.slow
def test_a_tiny_training_over_an_argument_of_make(tmp_path: Any) -> None:
    settings = {"world": "gymnasium/FrozenLake-v1", "context": ("success_rate=0.2,0.9",), "horizon": 8, "beta": 0.5}
    settings |= {"updates": 2, "steps": 8, "environments": 4, "contexts": 2, "rollouts_per_start": 2, "seeds": 1}
    settings |= {"context_updates": 1, "assessment.scenarios": 2, "assessment.horizon": 4, "evaluator.warmup": 1}
    settings |= {"evaluator.initial_steps": 2, "evaluator.steps": 1, "evaluator.final_steps": 2}
    config = evarl.with_settings(evarl.preset("crossing"), settings)
    run = evarl.train(config, out=tmp_path / "run", quiet=True)
    assert run.metrics.num_rows == 2
    assert evarl.assess(run, context={"success_rate": 0.5}, truth_episodes=2).truth.episodes == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # Box2D's and pygame's own
def test_the_lander_has_wind_and_gravity() -> None:
    pytest.importorskip("Box2D")
    pytest.importorskip("pygame")
    world = make_world("gymnasium/LunarLander-v3", context=["gravity=-11:-2", "wind_power=0:20"])
    assert [one.name for one in world.parameters] == ["gravity", "wind_power", "turbulence_power"]
    calm, light, windy = falling(world, [-10.0, 0.0], [-2.0, 0.0], [-10.0, 20.0])
    assert light[-1, 3] > calm[-1, 3] + 0.01  # falls more slowly
    assert abs(windy[-1, 2] - calm[-1, 2]) > 1e-3  # is blown to one side
    np.testing.assert_allclose(windy[-1, 5], calm[-1, 5], atol=1e-2)  # without turbulence it does not turn


def test_the_command_lists_what_can_vary(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["worlds", "crossing"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("crossing: observations Box(56, 0.0 to 1.0, bool), actions Discrete(4), horizon 40")
    assert lines[2].split(maxsplit=4)[:4] == ["bridge", "0.5", "0", "1"]
    assert lines[-1].startswith("for example: --context bridge=0:1;")
    assert call(["worlds", "tabular/chain"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["nothing can vary"]
    assert call(["worlds", "crosing"]) == 2
    assert "world: unknown 'crosing'; did you mean 'crossing'?" in capsys.readouterr().err


def test_plain_worlds_are_not_varied() -> None:
    with pytest.raises(InputError, match=r"^context: toy cannot vary; a world with contexts is a dataclass with that"):
        Fixed().vary((Context("size", 0.0, 1.0),))


class Fixed(World):
    """A world that is no dataclass."""

    name = "toy"

    def initial(self, key: Any) -> Any: ...

    def transition(self, key: Any, physics: Any, action: Any) -> Any: ...

    def observation(self, physics: Any) -> Any: ...
