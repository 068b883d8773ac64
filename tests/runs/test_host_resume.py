"""Runs in worlds on the host that are resumed: new episodes begin, and nothing is added to those that were abandoned."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import evarl

LENGTH = 30


class Thirty(gymnasium.Env):
    """Pays 1 in each of exactly 30 steps, which the observation counts."""

    observation_space = gymnasium.spaces.Box(0.0, LENGTH, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wage: float = 1.0):
        self.wage = wage

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), self.wage, self.steps == LENGTH, False, {}


def cut_and_resumed(out, **changes):
    """A run that a callback stopped in the middle of its first episodes, after one update, and that was then resumed."""
    settings = {"env": Thirty, "environments": 2, "steps": 16, "horizon": LENGTH, "quiet": True, "out": out} | changes
    stopped = evarl.train(updates=5, callbacks=[lambda chunk: True], **settings)
    assert stopped.config.updates == 1
    return evarl.train(updates=5, resume=True, **settings)


@pytest.mark.parametrize("scaled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_returns_of_two_episodes_are_not_added_together(scaled, tmp_path):
    run = cut_and_resumed(tmp_path / "run", discount=0.9, agent={"scale_rewards": scaled})
    lengths = [one for one in run.metrics["episode_length"].to_pylist() if one is not None]
    assert lengths == [LENGTH] * len(lengths)
    assert len(lengths) == 2
    returns = [one for one in run.metrics["return"].to_pylist() if one is not None]
    assert returns == [LENGTH] * 2
    discounted = [one for one in run.metrics["discounted_return"].to_pylist() if one is not None]
    np.testing.assert_allclose(discounted, (1 - 0.9**LENGTH) / 0.1, rtol=1e-5)


def test_it_is_said_that_new_episodes_begin(tmp_path, capfd):
    cut_and_resumed(tmp_path / "run", quiet=False)
    told = [line for line in capfd.readouterr().err.splitlines() if "new episodes" in line]
    assert len(told) == 1
    assert "resumed after update 1 with new episodes, since environments on the host cannot be saved" in told[0]


def test_what_rewards_are_scaled_by_begins_anew_too():
    """The discounted sum of rewards of the abandoned episodes is not carried into the next; with γ = 1 it would be 46."""
    from evarl.agents.normalisation import RewardScale

    scale = RewardScale.create(2).update(jnp.ones((16, 2)), jnp.zeros((16, 2), bool), 1.0)
    assert scale.discounted_sum.tolist() == [16.0, 16.0]
    assert scale.begun_anew().discounted_sum.tolist() == [0.0, 0.0]
    assert scale.begun_anew().deviation() == scale.deviation()


def test_the_log_does_not_join_two_episodes(tmp_path):
    """Of an episode that was abandoned nothing is in the log: all have 30 steps, and begin at their beginning."""
    data = cut_and_resumed(tmp_path / "run", log_megabytes=1).logged_data()
    assert data.mask.sum(axis=1).tolist() == [LENGTH] * data.trajectories
    assert (data.observation[:, 0] == 0).all()
    assert data.trajectories == 4
