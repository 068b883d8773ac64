"""Steps of Optax optimisers."""

from typing import Any

import jax
import optax


def descend(
    optimizer: optax.GradientTransformation, gradient: optax.Updates, state: optax.OptState, parameters: Any
) -> tuple[Any, optax.OptState]:
    """The parameters and the optimiser's state after one gradient step."""
    # Optax mixes dtypes, which is an error under the strict rules that evarl is tested with
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        step, state = optimizer.update(gradient, state, parameters)
    return optax.apply_updates(parameters, step), state
