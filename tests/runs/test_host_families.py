"""Returns in families of worlds on the host: which episodes count, and what is said at the end."""

import gymnasium
import numpy as np

import evarl
from evarl.cli.main import call

N = 4


class Short(gymnasium.Env):
    """Pays a wage in each of 5 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wage: float = 1.0):
        self.wage = wage
        self.taken = 0

    @property
    def length(self):
        return 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.taken += 1
        return np.zeros(1, np.float32), self.wage, self.steps >= self.length, False, {}


class Tiring(Short):
    """Episodes are long from the 40th step on that an environment takes."""

    @property
    def length(self):
        return 5 if self.taken <= 40 else 50


TINY = {"environments": N, "steps": 10, "quiet": True, "context": ("wage=1,2",)}


def test_episodes_count_that_are_certain_to_finish_in_their_context(tmp_path):
    """Contexts last for 40 steps, and episodes for at most 10: those count that begin in the first 31 steps, 7 of 8."""
    run = evarl.train(env=Short, horizon=10, context_updates=4, updates=8, out=tmp_path / "run", **TINY)
    assert run.metrics["episodes"].to_pylist() == [2 * N, 2 * N, 2 * N, N] * 2
    assert set(run.metrics["episode_length"].to_pylist()) == {5.0}


def test_where_an_episode_may_outlast_its_context_the_first_counts(tmp_path):
    run = evarl.train(env=Short, horizon=50, context_updates=4, updates=5, out=tmp_path / "run", **TINY)
    assert run.metrics["episodes"].to_pylist() == [N, 0, 0, 0, N]


def test_the_return_at_the_end_is_over_a_draw_of_contexts(tmp_path, capsys):
    """The last tenth is the last update, in which no first episode finished."""
    changed = ["--horizon", "30", "--environments", str(N), "--steps", "10", "--updates", "5", "--quiet"]
    where = ["gymnasium/tests.runs.test_host_families:Short", "--context", "wage=1,2", "--out", str(tmp_path / "run")]
    assert call(["train", *where, *changed]) == 0
    said = capsys.readouterr().out
    assert said.startswith("return ")
    assert "in the last 3 of 5 updates" in said


def test_it_is_said_if_episodes_finished_and_none_counts(tmp_path, capsys):
    changed = ["--horizon", "50", "--context-updates", "4", "--environments", str(N), "--steps", "10", "--updates", "5"]
    where = ["gymnasium/tests.runs.test_host_families:Tiring", "--context", "wage=1,2", "--out", str(tmp_path / "run")]
    assert call(["train", *where, *changed, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no return: episodes finished, but none that counts")
    assert "in the last 4 of 5 updates" in said
