"""Agents learn: stated returns within a small budget, at fixed seeds."""

import dataclasses

import numpy as np
import pytest

import evarl
from evarl import AgentConfig, TrainConfig

CARTPOLE_A2C = TrainConfig(
    world="gymnax/CartPole-v1",
    environments=16,
    steps=32,
    updates=300,
    agent=AgentConfig(actor_learning_rate=3e-3, critic_learning_rate=3e-3),
)
CARTPOLE_PPO = TrainConfig(
    world="gymnax/CartPole-v1",
    environments=8,
    steps=128,
    updates=60,
    agent=AgentConfig(algorithm="ppo", actor_learning_rate=1e-3, critic_learning_rate=1e-3),
)


def learnt_return(config: TrainConfig, tmp_path, last: int = 30, **changes) -> float:
    run = evarl.train(config, out=tmp_path / "run", quiet=True, **changes)
    table = run.metrics
    late = table["update"].to_numpy() >= run.config.updates - last
    return float(np.nanmean(table["return"].to_numpy()[late]))


@pytest.mark.slow  # the next test has the same agent, and others have both algorithms in worlds that are compiled
@pytest.mark.parametrize(
    ("config", "reached"),
    [pytest.param(CARTPOLE_A2C, 150.0, id="a2c"), pytest.param(CARTPOLE_PPO, 250.0, id="ppo")],
)
def test_cartpole(config, reached, tmp_path):
    """A random policy stays up for about 20 steps."""
    assert learnt_return(config, tmp_path, seeds=3) > reached


@pytest.mark.slow
def test_cartpole_on_the_host(tmp_path):
    """The same agent and the same update serve a Gymnasium environment."""
    config = dataclasses.replace(CARTPOLE_PPO, world="gymnasium/CartPole-v1", updates=30)
    assert learnt_return(config, tmp_path, last=5) > 120.0


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "updates"), [("a2c", 700), ("ppo", 100)])
def test_navigation(algorithm, updates, tmp_path):
    """The best possible return is −3.752; a random policy gets about −30."""
    config = evarl.preset("navigation")
    agent = dataclasses.replace(config.agent, algorithm=algorithm)
    assert learnt_return(config, tmp_path, agent=agent, updates=updates) > -4.6


@pytest.mark.slow
def test_continuous_actions_learn(tmp_path):
    """Pendulum swings up: a random policy gets about −1 200 in 200 steps."""
    config = TrainConfig(
        world="gymnax/Pendulum-v1",
        environments=16,
        steps=200,
        updates=100,
        agent=AgentConfig(
            algorithm="ppo",
            actor_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            entropy_coefficient=0.0,
            normalise_observations=True,
            scale_rewards=True,
        ),
    )
    assert learnt_return(config, tmp_path, last=10) > -700.0


def test_what_is_learnt_in_a_tabular_world_is_optimal(tmp_path):
    """In the chain, the best policy switches to the second state and stays: 0 + γ/(1 − γ) = 9 in the limit."""
    config = TrainConfig(
        world="tabular/chain",
        horizon=20,
        discount=0.9,
        environments=8,
        steps=20,
        updates=300,
        agent=AgentConfig(actor_learning_rate=1e-2, critic_learning_rate=1e-2, entropy_coefficient=0.0),
    )
    assert learnt_return(config, tmp_path) == pytest.approx(19.0, abs=0.3)
