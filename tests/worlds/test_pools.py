"""Training in EnvPool's environments: a stand-in seeds Gymnasium's once, as EnvPool does; EnvPool itself if it is installed."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from evarl.worlds import make_world
from evarl.worlds.pools import SEEDS, PoolEnvironments

SMALL = {"world": "gymnasium/CartPole-v1", "updates": 3, "environments": 2, "steps": 16, "rollouts_per_start": 1}


class Pool:
    """Environments that are seeded at their first reset and never again."""

    def __init__(self, name, num_envs, seed, max_episode_steps):
        self._environments = [gymnasium.make(name, max_episode_steps=max_episode_steps) for _ in range(num_envs)]
        self._seeds = list(seed)
        self.observation_space = self._environments[0].observation_space
        self.action_space = self._environments[0].action_space

    def reset(self, env_id):
        rows = []
        for i in env_id.tolist():
            rows.append(self._environments[i].reset(seed=self._seeds[i])[0])
            self._seeds[i] = None
        return np.stack(rows), {}

    def step(self, action):
        steps = [one.step(int(a)) for one, a in zip(self._environments, action, strict=True)]
        *columns, _ = zip(*steps, strict=True)
        return *map(np.asarray, columns), {}


@pytest.fixture
def stand_in(monkeypatch):
    known = SimpleNamespace(list_all_envs=lambda: ["CartPole-v1", "FrozenLake-v1"], make_gymnasium=Pool)
    monkeypatch.setitem(sys.modules, "envpool", known)


def test_episodes_go_on_from_seeds_that_are_given_once(stand_in):
    world = make_world("gymnasium/CartPole-v1", 5)
    environments, single = PoolEnvironments(world, 2), gymnasium.make("CartPole-v1")
    seeds = np.random.SeedSequence(7).generate_state(2) % SEEDS
    for i in (0, 1):
        np.testing.assert_array_equal(environments.reset(i, 7 + i), single.reset(seed=int(seeds[i]))[0])
    for number in range(5):
        step = environments.step(np.array([0, 1], np.int32))
        assert step.reward.tolist() == [1.0, 1.0]
        assert step.truncated.tolist() == [number == 4] * 2
        np.testing.assert_array_equal(step.observation[1], single.step(1)[0])
    np.testing.assert_array_equal(environments.reset(1, 0), single.reset()[0])
    environments.close()


def test_discrete_observations_are_one_hot(stand_in):
    environments = PoolEnvironments(make_world("gymnasium/FrozenLake-v1"), 2)
    assert environments.reset(0, 0).tolist() == [1.0] + [0.0] * 15


@pytest.mark.slow
def test_training_is_the_same_again_and_says_what_it_was(stand_in, tmp_path):
    first, second = (
        evarl.train("gymnasium", vectorise="envpool", out=tmp_path / name, quiet=True, **SMALL) for name in "ab"
    )
    files = [(run.path / "policy/seed-0.safetensors").read_bytes() for run in (first, second)]
    assert files[0] == files[1]
    assert "environments were those of EnvPool" in first.summary["warnings"][-1]
    other = evarl.train("gymnasium", out=tmp_path / "c", quiet=True, **SMALL)
    assert (other.path / "policy/seed-0.safetensors").read_bytes() != files[0]
    assert not [one for one in other.summary["warnings"] if "EnvPool" in one]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gymnasium/Acrobot-v1"], "vectorise: EnvPool does not have Acrobot-v1; must be sync or processes"),
        (
            ["navigation"],
            "vectorise: envpool is not allowed for navigation; must be an id of Gymnasium without arguments",
        ),
        (["gymnasium/CartPole-v1", "--rollouts-per-start", "2"], "since EnvPool draws start states itself"),
        (["gymnasium/CartPole-v1", "--context", "gravity=9:11"], "envpool is not allowed in a family of worlds"),
        (["gymnasium/FrozenLake-v1", "--make", "is_slippery=false"], "must be an id of Gymnasium without arguments"),
    ],
)
def test_what_it_cannot_do_is_refused_beforehand(stand_in, arguments, message, tmp_path, capsys):
    assert call(["train", *arguments, "--vectorise", "envpool", "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "run").exists()


def test_without_envpool(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert call(["train", "gymnasium/CartPole-v1", "--vectorise", "envpool", "--out", str(tmp_path / "run")]) == 2
    assert "envpool is not installed; must be, with pip install evarl[envpool]" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("identifier", ["CartPole-v1", "Pendulum-v1"])
def test_envpool_itself(identifier, tmp_path):
    """Rows are in the order of the environments, also after some were reset, and runs are the same again."""
    pytest.importorskip("envpool")
    world = make_world(f"gymnasium/{identifier}", 20)
    environments, again = (PoolEnvironments(world, 3) for _ in range(2))
    shown = [np.stack([one.reset(i, 5) for i in range(3)]) for one in (environments, again)]
    np.testing.assert_array_equal(*shown)
    for number in range(60):
        action = np.asarray([0, 1, number % 2]) if identifier == "CartPole-v1" else np.zeros((3, 1), np.float32)
        step, other = environments.step(action), again.step(action)
        for mine, theirs in zip(step, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        moved = np.abs(step.observation - shown[0]).max(axis=1)
        assert moved.max() < 2.5, "no row is that of another environment"
        shown[0] = step.observation.copy()
        for i in np.flatnonzero(step.done).tolist():
            shown[0][i] = environments.reset(i, 0)
            np.testing.assert_array_equal(shown[0][i], again.reset(i, 1))
    run = evarl.train(
        "gymnasium",
        vectorise="envpool",
        out=tmp_path / "run",
        quiet=True,
        **SMALL | {"world": f"gymnasium/{identifier}"},
    )
    assert np.isfinite(run.metrics["entropy"].to_numpy()).all()
