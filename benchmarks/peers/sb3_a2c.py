"""Stable-Baselines3's A2C or PPO on a Gymnasium world; see `protocol` for what it says.

Everything that is not a flag is Stable-Baselines3's default, RMSprop included. The environments run one after the other in
this process (`DummyVecEnv`), which for small worlds is its fastest way. The number of threads is PyTorch's own choice unless
given; for networks this small one thread is the fastest, and two lose most of their speed when another program runs.
"""

import argparse
import sys
from collections.abc import Callable

import gymnasium
import protocol
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import DummyVecEnv


def build(options: argparse.Namespace) -> tuple[Callable[[], None], int]:
    """A model that goes on learning with every repetition."""
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"PyTorch uses {torch.get_num_threads()} threads", file=sys.stderr)
    environments = DummyVecEnv([lambda: gymnasium.make(options.world)] * options.environments)
    networks = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh}
    settings = {"n_steps": options.steps, "policy_kwargs": networks, "device": "cpu", "seed": 0}
    batch = options.environments * options.steps
    if options.algorithm == "ppo":
        settings |= {"n_epochs": options.epochs, "batch_size": batch // options.minibatches}
    model = (PPO if options.algorithm == "ppo" else A2C)("MlpPolicy", environments, **settings)
    steps = options.updates * batch

    def repeat() -> None:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)

    return repeat, steps


def main() -> None:
    description = "Stable-Baselines3's A2C or PPO on a Gymnasium world"
    sizes = {"world": "CartPole-v1", "environments": 8, "steps": 5, "updates": 200, "threads": 0}
    options = protocol.parse(description, **sizes, algorithm="a2c", epochs=10, minibatches=32)
    protocol.serve(lambda: build(options))


if __name__ == "__main__":
    main()
