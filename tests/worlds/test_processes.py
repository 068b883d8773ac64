"""Environments in several processes: the same results as in one, errors of one line, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from evarl.errors import InputError, WorldError
from evarl.worlds import make_world
from evarl.worlds.names import name_of
from evarl.worlds.processes import ProcessEnvironments, open_vectorised


class Slow(gymnasium.Env):
    """Takes a millisecond for a step, and fails where it is told to; shows the seed's number and the last action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([self.np_random.uniform(), -1.0]), {}

    def step(self, action):
        time.sleep(1e-3)
        if action == 2:
            raise ValueError("it is told to fail")
        return np.array([self.np_random.uniform(), action]), self.np_random.normal(), action == 1, False, {}


@pytest.fixture(scope="module")
def world():
    return make_world(name_of(Slow), horizon=6)


@pytest.fixture(scope="module")
def opened(world):
    environments = ProcessEnvironments(world, 3, workers=2)
    yield environments
    workers = environments._workers
    environments.close()
    assert [worker.process.returncode for worker in workers] == [0, 0], "they end by themselves"


def test_the_same_bits_as_in_one_process(world, opened):
    """Environments 0 and 1 or 2 are in different processes; each is reset when its episode ends."""
    alone, generator = world.open(3), np.random.default_rng(0)
    for index in range(3):
        np.testing.assert_array_equal(opened.reset(index, index), alone.reset(index, index))
    for number in range(12):
        action = generator.integers(2, size=3)
        found, wanted = opened.step(action), alone.step(action)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        for index in np.flatnonzero(wanted.done):
            np.testing.assert_array_equal(opened.reset(index, number), alone.reset(index, number))


def test_errors_name_the_environment(opened):
    for index in range(3):
        opened.reset(index, 0)
    with pytest.raises(WorldError, match=r"failed \(environment 2, step 1 of its episode\): ValueError: it is told to"):
        opened.step(np.array([0, 0, 2]))
    with pytest.raises(InputError, match="cannot begin at a state of 4 numbers"):
        opened.begin(0, np.zeros(4))


def test_a_process_that_is_killed_is_one_line(world):
    environments = ProcessEnvironments(world, 2, workers=1)
    os.kill(environments._workers[0].process.pid, signal.SIGKILL)
    with pytest.raises(WorldError, match=r"failed: the process of its environments ended \(code -9\)$"):
        environments.reset(0, 0)
    environments.close()


def test_processes_end_with_the_one_that_started_them(tmp_path):
    """Even where it is killed."""
    script = (
        "import os, signal\nfrom evarl.worlds import make_world\nfrom evarl.worlds.processes import ProcessEnvironments\n"
        "opened = ProcessEnvironments(make_world('gymnasium/CartPole-v1'), 2, workers=1)\n"
        "print(opened._workers[0].process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    worker = int(done.stdout)
    for _ in range(100):
        try:
            state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":  # it has ended, and nobody has asked how
            return
        time.sleep(0.1)
    pytest.fail("it is still there")


def test_auto_measures_a_step(world, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(
        "evarl.worlds.processes.ProcessEnvironments", lambda world, count, workers: asked.append(workers)
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    told: list[str] = []
    open_vectorised(world, 8, "auto", told.append)
    assert asked == [2]
    assert told[0].endswith("environments run in 2 processes")
    open_vectorised(make_world("gymnasium/CartPole-v1"), 8, "auto", told.append).close()
    open_vectorised(world, 8, "sync", told.append).close()
    assert len(asked) == len(told) == 1
