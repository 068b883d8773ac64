"""Brax's own PPO on one of its robots, with the settings of evarl's `brax` preset; see `protocol` for what it says.

`ppo.train` is one call, which alternates between epochs of training and calls of `progress_fn`. Evaluation is switched off,
an epoch is made one repetition long, and `progress_fn` waits for the next line of input: the clock runs from there to its
next call, so that it sees what Brax's own clock (`training/sps`, shown on standard error) sees, and a few keys being split.
"""

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import jax
import mujoco
import protocol
from flax import linen

with contextlib.redirect_stdout(sys.stderr):  # Brax tells what it could not import
    from brax import envs
    from brax.training.agents.ppo import networks, train

ENDLESS = 10**6  # more epochs than anybody asks for


def replicate(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """Put `tree` on each device, as `jax.device_put_replicated` did, which Brax calls once and JAX no longer has."""
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, "i"), jax.sharding.PartitionSpec("i"))
    return jax.tree.map(lambda leaf: jax.device_put(jax.numpy.stack([leaf] * len(devices)), sharding), tree)


def between_epochs(answers: TextIO, steps: int) -> Iterator[Any]:
    """What to do at each call of `progress_fn`. The first epoch is compiled, the second tells how long it takes by itself."""
    began = time.perf_counter()
    yield
    first = time.perf_counter()
    yield
    second = time.perf_counter()
    protocol.answer(answers, compile_seconds=(first - began) - (second - first), steps=steps)
    yield from protocol.repetitions(answers)


def run(options: argparse.Namespace) -> None:
    """Train until the input ends."""
    mujoco.set_mju_user_warning(lambda text: print(text, file=sys.stderr))  # else it writes a file
    steps = options.updates * options.environments * options.steps
    sizes = {f"{network}_hidden_layer_sizes": (256, 256) for network in ("policy", "value")}
    epochs = between_epochs(protocol.take_stdout(), steps)
    next(epochs)  # the clock starts

    def progress(_: int, metrics: dict[str, Any]) -> None:
        print(f"Brax counts {metrics['training/sps']:.0f} steps per second", file=sys.stderr)
        next(epochs)

    with contextlib.suppress(StopIteration):
        train.train(
            envs.get_environment(options.world, backend=options.backend),
            num_timesteps=steps * ENDLESS,
            num_evals=ENDLESS + 1,
            run_evals=False,
            progress_fn=progress,
            num_envs=options.environments,
            unroll_length=options.steps,
            num_minibatches=options.minibatches,
            batch_size=options.environments // options.minibatches,
            num_updates_per_batch=options.epochs,
            episode_length=options.horizon,
            learning_rate=3e-4,
            entropy_cost=0.0,
            discounting=0.99,
            gae_lambda=0.95,
            clipping_epsilon=0.2,
            max_grad_norm=0.5,
            normalize_observations=True,
            network_factory=functools.partial(networks.make_ppo_networks, **sizes, activation=linen.tanh),
        )


def main() -> None:
    shape = {"environments": 2048, "steps": 10, "epochs": 4, "minibatches": 32, "updates": 3}
    options = protocol.parse("Brax's own PPO", world="reacher", backend="spring", horizon=1000, **shape, cache="")
    protocol.keep_compiled(jax.config, options.cache)
    jax.device_put_replicated = replicate
    run(options)


if __name__ == "__main__":
    main()
