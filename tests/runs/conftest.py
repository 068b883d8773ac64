"""A run small enough to be made many times."""

import pytest

from evarl import AgentConfig, TrainConfig


@pytest.fixture
def small() -> TrainConfig:
    return TrainConfig(environments=2, steps=16, updates=12, seeds=2, agent=AgentConfig(hidden_sizes=(8,)))
