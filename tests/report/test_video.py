"""Videos of policies. What they look like is judged by eye; here is checked what they contain."""

import io
import re
import sys
from dataclasses import dataclass

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import evarl
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.recording import Episode
from evarl.report.classic_drawings import CLASSIC
from evarl.report.drawings import board, drawing_of
from evarl.report.moving import gif
from evarl.worlds import Box, Discrete, World, make_world, registry
from tests.evaluation.tiny import train_tiny

TINY = {"environments": 2, "steps": 8, "updates": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("video") / "run")


def frames(path) -> list[Image.Image]:
    with Image.open(path) as picture:
        found = []
        for index in range(picture.n_frames):
            picture.seek(index)
            found.append(picture.convert("RGB"))
        return found


def test_an_episode_is_recorded_as_it_is_played(run, tmp_path):
    made = evarl.video(run, tmp_path / "a.gif", episodes=2, random=True, fps=10, steps=6)
    assert (len(made.episodes), len(made.random)) == (2, 2)
    for episode in [*made.episodes, *made.random]:
        assert episode.observations.shape == (episode.steps + 1, 2)
        assert episode.observations[0] == pytest.approx([0.05, 0.05])
        assert episode.end == "cut"
        assert episode.steps == 6
        for index, after in enumerate(episode.observations[1:]):  # the reward of navigation is minus the distance
            assert episode.rewards[index] == pytest.approx(-np.hypot(*(after - 0.9)), abs=1e-5)
        weights = 0.99 ** np.arange(6)
        assert episode.returns(0.99)[-1] == pytest.approx((weights * episode.rewards).sum())
    assert all(np.isfinite(one.predicted) for one in made.episodes)
    assert all(one.predicted is None for one in made.random)
    pictures = frames(made.path)
    assert len(pictures) == 2 * 7
    with Image.open(made.path) as picture:
        assert picture.info["duration"] == 100


def test_the_agent_is_drawn_where_it_is(run):
    drawing = drawing_of(run.world)
    way = np.array([[0.05, 0.05], [0.25, 0.05], [0.25, 0.25]])
    episode = Episode(way, [None] * 3, np.zeros(2), "cut", None, None)
    for step, (x, y) in enumerate(way):
        pixels = drawing.draw(episode, step)
        at = [round((1.03 - y) / 1.06 * pixels.shape[0]), round((x + 0.03) / 1.06 * pixels.shape[1])]
        assert tuple(pixels[at[0], at[1]]) == (0x00, 0x72, 0xB2)


@pytest.mark.slow
def test_deterministic_episodes_are_all_the_same(run, tmp_path):
    made = evarl.video(run, tmp_path / "a.gif", episodes=2, deterministic=True)
    first, second = made.episodes
    assert first.end == "truncated"
    assert first.steps == 50
    assert np.array_equal(first.observations, second.observations)


def test_the_command_prints_the_episodes_and_writes_into_the_run(run, capsys):
    assert call(["video", str(run.path), "--steps", "2"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"episode 1: 2 steps \(cut\), return -[\d.]+, discounted -[\d.]+, predicted value -?[\d.]+\n", out)
    assert out.endswith(f"video in {run.path / 'video.gif'}\n")
    assert len(frames(run.path / "video.gif")) == 3


def test_mp4(run, tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    made = evarl.video(run, tmp_path / "a.mp4", steps=5, fps=5)
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(made.path))
    assert count == 6 + 6  # the last picture is held for 1.2 s
    assert seconds == pytest.approx(count / 5)


def test_mp4_says_what_it_needs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"install evarl\[video\], or choose a file that ends in .gif"):
        evarl.video(run, "a.mp4")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "a.avi"}, "must end in .gif or .mp4"),
        ({"episodes": 0}, "episodes: 0 is not allowed"),
        ({"fps": -1.0}, "fps: -1.0 is not allowed"),
        ({"seed": 7}, "seed: 7 is not one of this run's seeds"),
        ({"context": {"slip": 0.5}}, "was trained without contexts"),
        ({"steps": 0}, "steps: 0 is not allowed"),
    ],
)
def test_bad_input_is_refused(run, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        evarl.video(run, **options)


def test_colours_of_flat_pictures_are_exact():
    pictures = [np.full((4, 4, 3), colour, np.uint8) for colour in (0, 77, 255)]
    for found, wanted in zip(frames(io.BytesIO(gif(pictures, [40] * 3))), pictures, strict=True):
        assert np.array_equal(np.asarray(found), wanted)


def test_boards_have_a_colour_for_each_channel():
    flags = np.zeros((10, 10, 4), bool)
    flags[0, 0, 0] = flags[9, 9, 1] = True
    pixels = board(flags, "gymnax/Asterix-MinAtar")
    assert tuple(pixels[16, 16]) == (0x00, 0x72, 0xB2)  # the player, above on the left
    assert tuple(pixels[304, 304]) == (0xD5, 0x5E, 0x00)  # an enemy, below on the right
    assert tuple(pixels[16, 304]) == (0xF4, 0xF4, 0xF1)


@pytest.mark.parametrize(("angle", "where"), [(0.0, (0, 1)), (np.pi / 2, (-1, 0)), (np.pi, (0, -1))])
def test_a_pendulum_points_where_it_does_in_gymnasium(angle, where):
    """Angles are counted from upright, counter-clockwise."""
    observation = np.array([np.cos(angle), np.sin(angle), 0.0])
    pixels = CLASSIC["Pendulum-v1"].draw(observation, {})
    row, column = np.argwhere((pixels == (0xD5, 0x5E, 0x00)).all(axis=2)).mean(axis=0)
    x, y = (column / 300 - 0.5) * 2.7, (0.5 - row / 300) * 2.7
    assert (x, y) == pytest.approx((where[0] / 2, where[1] / 2), abs=0.06)


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"])
def test_classic_control_moves(name):
    size = {"CartPole-v1": 4, "Acrobot-v1": 6}.get(name, 2)
    still, moved = np.zeros(size), np.full(size, 0.2)
    if name == "Acrobot-v1":
        still, moved = np.array([1.0, 0, 1, 0, 0, 0]), np.array([0.0, 1, 1, 0, 0, 0])
    first, second = (CLASSIC[name].draw(one, {}) for one in (still, moved))
    assert first.shape == second.shape
    assert (first != second).any()


@dataclass(frozen=True)
class Light(World):
    """A light that is on after the first step."""

    name: str = "light"
    horizon: int = 2
    discount: float = 0.9
    observation_space: Box = Box((1,), 0.0, 1.0)
    action_space: Discrete = Discrete(2)

    def initial(self, key):
        return jnp.zeros(())

    def transition(self, key, physics, action):
        return jnp.ones(()), jnp.float32(1.0), jnp.asarray(False)

    def observation(self, physics):
        return physics[None]

    def picture(self, physics):
        return jnp.full((8, 8, 3), 255 * physics, jnp.float32).astype(jnp.uint8)


@pytest.mark.slow
def test_a_world_of_ones_own_draws_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(registry._own, "_entries", {})
    evarl.register_world("light", Light)
    made = evarl.train("navigation", world="light", **TINY, out=tmp_path / "run", quiet=True)
    dark, light, _ = frames(evarl.video(made).path)
    middle = (dark.width // 2, 12 + 19 + 6 + 4)
    assert dark.getpixel(middle) == (0, 0, 0)
    assert light.getpixel(middle) == (255, 255, 255)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(
        InputError, match="tabular/chain cannot be drawn; a world of your own is drawn by a method picture"
    ):
        drawing_of(make_world("tabular/chain"))


PLAIN = """
import gymnasium


class Plain(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, False, False, {}


class Named(Plain):
    metadata = {"render_modes": ["rgb_array"]}


class Unwritten(Named):
    def __init__(self, render_mode=None):
        self.render_mode = render_mode


for kind in (Plain, Named, Unwritten):
    gymnasium.register(f"Evarl{kind.__name__}-v0", kind, max_episode_steps=3)
"""
WANTED = "give it the argument render_mode, a render() that returns uint8[height, width, 3], and rgb_array in "
WANTED += "metadata['render_modes']"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("EvarlPlain-v0", f"has no rendering as rgb_array (its metadata names []); {WANTED}"),
        ("EvarlNamed-v0", "takes no render_mode, and cannot be drawn; give its __init__ this argument"),
        ("EvarlUnwritten-v0", f"has no rendering as rgb_array (its render() is not implemented); {WANTED}"),
        (
            "Plain",
            "has no rendering as rgb_array (its render() is not implemented); the function must make one with "
            "render_mode='rgb_array', whose render() returns uint8[height, width, 3]",
        ),
    ],
)
@pytest.mark.slow
def test_an_environment_without_rendering_is_refused_in_one_line(name, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "evarl_plain.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(tmp_path)
    world, out = f"gymnasium/evarl_plain:{name}", str(tmp_path / "run")
    try:
        shape = [
            "--updates",
            "1",
            "--environments",
            "2",
            "--steps",
            "8",
            "--agent.ppo.minibatches",
            "2",
            "--horizon",
            "3",
        ]
        assert call(["train", world, *shape, "--out", out, "--quiet"]) == 0
        capsys.readouterr()
        assert call(["video", out, "--allow-module", "evarl_plain"]) == 2
        assert capsys.readouterr().err == f"evarl: world: {world} {message}\n"
    finally:
        sys.modules.pop("evarl_plain")
        for kind in ("Plain", "Named", "Unwritten"):
            gymnasium.registry.pop(f"Evarl{kind}-v0")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["brax/halfcheetah", "brax/reacher", "gymnax/Breakout-MinAtar", "gymnasium/FrozenLake-v1"]
)
def test_worlds_of_other_libraries_are_drawn(name, tmp_path):
    if name.startswith("gymnasium"):
        pytest.importorskip("pygame")
    made = evarl.train("navigation", world=name, **TINY, out=tmp_path / "run", quiet=True)
    shown = evarl.video(made, steps=3)
    first, *others = [np.asarray(one) for one in frames(shown.path)]
    assert len(others) == shown.episodes[0].steps
    assert any((first[:-80] != other[:-80]).any() for other in others)  # above the text
