"""Rejax's PPO on a Gymnax world, with the settings of evarl's `minatar` preset; see `protocol` for what it says.

With one epoch of one minibatch PPO makes one gradient step per batch, as A2C does. Rejax's own `train` evaluates the policy
every so often; here its `train_iteration` is looped over as `train` does, without the evaluation.
"""

import argparse
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import protocol
from gymnax.wrappers import LegacyStepAPIWrapper
from rejax import PPO


class FiveValues(LegacyStepAPIWrapper):
    """Steps return the five values of Gymnax before 1.0, as Rejax expects; and Rejax's copy of its settings keeps it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "FiveValues":
        """Gymnax's adapter cannot be copied, and need not be: nothing in it changes."""
        return self


def build(options: argparse.Namespace) -> tuple[Callable[[], None], int]:
    """The compiled program; its state lives on from one repetition to the next."""
    environment, parameters = gymnax.make(options.world)
    algorithm = PPO.create(
        env=FiveValues(environment),
        env_params=parameters.replace(max_steps_in_episode=options.horizon),
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": options.activation},
        num_envs=options.environments,
        num_steps=options.steps,
        num_epochs=options.epochs,
        num_minibatches=options.minibatches,
        learning_rate=options.learning_rate,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        ent_coef=0.01,
        max_grad_norm=0.5,
    )

    def advance(state: Any) -> Any:
        return jax.lax.fori_loop(0, options.updates, lambda _, state: algorithm.train_iteration(state), state)

    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(0))
    compiled = jax.jit(advance, donate_argnums=0).lower(state).compile()

    def repeat() -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(state))

    return repeat, options.updates * options.environments * options.steps


def main() -> None:
    options = protocol.parse(
        "Rejax's PPO on a Gymnax world",
        world="Asterix-MinAtar",
        horizon=200,
        environments=64,
        steps=100,
        epochs=1,
        minibatches=1,
        activation="relu",
        learning_rate=5e-3,
        updates=20,
        cache="",
    )
    protocol.keep_compiled(jax.config, options.cache)
    protocol.serve(lambda: build(options))


if __name__ == "__main__":
    main()
