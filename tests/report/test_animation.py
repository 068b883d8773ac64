"""Animations are drawn without a screen; what they look like is judged by eye."""

import io

import numpy as np
import pytest
from PIL import Image

import evarl
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.scenes import PolicyScenes, Scene, Walk, policy_scenes
from evarl.report.animation import DEPLOYMENT_MOMENTS, TEST_MOMENTS, animated, moments, still
from evarl.worlds.crossing import ARRIVALS, GOAL, START, cell
from tests.evaluation.test_sites import train_family
from tests.evaluation.tiny import train_tiny

STILL = 4
"""Pictures that are not part of a step: before and after the test, before and after the deployment."""


def walked(*paths: list[int], failed: tuple[int, int] | None = None) -> Walk:
    cells = np.array(paths).T
    steps = cells[1:]
    fails, held = np.zeros(steps.shape, bool), np.zeros(steps.shape, bool)
    if failed is not None:
        fails[failed] = True
    returns = np.concatenate([np.zeros((1, len(paths))), np.cumsum(ARRIVALS[steps], axis=0)])
    return Walk(cells, fails, held, returns)


def scenes(beta: float) -> PolicyScenes:
    test = walked([21, 28, 35], [22, 22, 15], failed=(0, 1))
    found = []
    for site, steps in ((0.2, 3), (0.8, 1)):
        deployed = walked([3, 10, 17, 17][: steps + 1], failed=(2, 0) if steps == 3 else None)
        found.append(Scene(site, test, deployed, -5.0, -5.0 - site, np.array([site, 1.0])))
    return PolicyScenes("a run", beta, 0, tuple(found))


@pytest.mark.slow
def test_an_animation_has_a_picture_for_every_moment_and_loops():
    rows = [scenes(0.0), scenes(1.0)]
    with Image.open(io.BytesIO(animated(rows))) as picture:
        assert picture.format == "GIF"
        assert picture.info["loop"] == 0
        assert picture.n_frames == len(moments(rows)) == 2 * TEST_MOMENTS + 3 * DEPLOYMENT_MOMENTS + STILL
        assert 800 <= picture.width <= 900
        assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)
        both = picture.size
    with Image.open(io.BytesIO(still(rows[1:]))) as one:
        assert one.format == "PNG"
        assert one.width == both[0]
        assert both[1] // 2 < one.height < both[1]


def test_the_mean_error_is_over_all_tests():
    assert scenes(1.0).mean_error == pytest.approx((0.2 + 0.8 + 1.0 + 1.0) / 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_family(tmp_path_factory.mktemp("tiny") / "run", seeds=2)


@pytest.mark.slow
def test_scenes_are_walks_on_the_map(run):
    found = policy_scenes(run, tests=3)
    assert [scene.site for scene in found.scenes] == [0.15, 0.9]
    for scene in found.scenes:
        assert scene.test.cells.shape == (7, 4)
        assert scene.deployment.cells[0, 0] == cell(*START)
        assert scene.error == pytest.approx(abs(scene.predicted - scene.true))
        for walk in (scene.test, scene.deployment):
            stayed = walk.cells[1:] == walk.cells[:-1]
            assert stayed[walk.failed].all()
            assert not stayed[walk.held].any()
        ended = scene.deployment.cells[-1, 0] == cell(*GOAL)
        assert ended or scene.deployment.steps == run.world.horizon
        rewards = ARRIVALS[scene.deployment.cells[1:, 0]] * run.world.discount ** np.arange(scene.deployment.steps)
        assert scene.deployment.returns[-1, 0] == pytest.approx(rewards.sum(), rel=1e-5)


def test_the_command_writes_a_picture(run, tmp_path, capsys):
    file = tmp_path / "still.png"
    sites = ["--site", "bridge=0.3", "--site", "bridge=0.7"]
    assert call(["animate", str(run.path), "--passive", str(run.path), *sites, "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert "site 0.3: predicted" in out
    assert f"picture in {file}" in out
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--site", "bridge=0.3"], "1 sites are not allowed; must be 2"),
        (["--site", "bridge=0.3", "--site", "bridge=1.5"], "bridge=1.5 is not allowed"),
        (["--site", "plank=0.3", "--site", "bridge=1.5"], "plank"),
        (["--out", "picture.mp4"], "must end in .gif or .png"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(run, capsys, options, told):
    assert call(["animate", str(run.path), *options]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_worlds_without_a_map_are_refused(tmp_path):
    other = train_tiny(tmp_path / "run")
    with pytest.raises(InputError, match="navigation has no map and cannot be animated"):
        policy_scenes(other)
