"""The evaluator's state, what it says, and how it learns from the memory of recent policies."""

from dataclasses import dataclass
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.evaluators.fitting_configuration import EvaluatorConfig
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.evaluators.networks import make_network
from evarl.worlds.spaces import Box
from evarl.worlds.third_party import lenient_promotion
from evarl.worlds.world import Key, flat_features

SLOWEST = 0.05
"""Weight of a new policy in the running scales, once there have been 1/SLOWEST; before that, all count alike."""
FLOOR = 1e-6
"""Least variance. What varies less, relative to its size, is a constant up to the rounding of float32."""


class Scale(struct.PyTreeNode):
    """A running mean and mean square, which forgets: policies change, and so does the size of their returns."""

    mean: Float[Array, "*shape"]
    square: Float[Array, "*shape"]

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> "Scale":
        """Mean 0, deviation 1."""
        return cls(jnp.zeros(shape), jnp.ones(shape))

    def update(self, batch: Float[Array, "*batch_and_shape"], rate: Float[Array, ""]) -> "Scale":
        """Move towards the statistics of a batch."""
        batch = batch.reshape(-1, *self.mean.shape)
        return Scale(
            self.mean + rate * (batch.mean(axis=0) - self.mean),
            self.square + rate * ((batch**2).mean(axis=0) - self.square),
        )

    def deviation(self) -> Float[Array, "*shape"]:
        """Standard deviation, kept away from zero."""
        return jnp.sqrt(jnp.maximum(self.square - self.mean**2, 0.0) + FLOOR)

    def varies(self) -> Bool[Array, "*shape"]:
        """Whether what was met differs by more than rounding."""
        return self.square - self.mean**2 > FLOOR * (1.0 + self.mean**2)


class EvaluatorState(struct.PyTreeNode):
    """All that the evaluator has learnt."""

    parameters: Any
    optimizer: optax.OptState
    target: Scale
    returns: Scale
    observation: Scale

    def steps(self) -> int:
        """Gradient steps taken so far, as the optimiser counts them; 0 says that it was never fitted."""
        return int(optax.tree_utils.tree_get(self.optimizer, "count"))


@dataclass(frozen=True, eq=False)
class Evaluator:
    """V̂(s | Ξ): the fixed part; its functions are pure and take the changing part as an argument."""

    config: EvaluatorConfig
    observation_space: Box
    scenarios: Array
    """[k, ...] what the policy sees at the assessment's start states."""
    network: nn.Module
    optimizer: optax.GradientTransformation

    def init(self, key: Key) -> EvaluatorState:
        """An evaluator that knows nothing."""
        k, features = self.scenarios.shape[0], self.observation_space.size
        parameters = self.network.init(key, jnp.zeros((k, features)), jnp.zeros(k), jnp.zeros((1, features)))
        return EvaluatorState(
            parameters=parameters,
            optimizer=self.optimizer.init(parameters),
            target=Scale.create(()),
            returns=Scale.create(()),
            observation=Scale.create((features,)),
        )

    def predict(self, state: EvaluatorState, returns: Float[Array, " k"], queries: Array) -> Float[Array, " Q"]:
        """V̂ at the queries [Q, ...] for the policy that got these assessment returns, in units of reward."""
        return (
            self._standardised(state, state.parameters, returns, queries) * state.target.deviation() + state.target.mean
        )

    def rescale(self, state: EvaluatorState, policy: PolicyRecord, index: Int[Array, ""]) -> EvaluatorState:
        """Let the running scales take in the newest policy."""
        rate = jnp.maximum(SLOWEST, 1.0 / (index.astype(jnp.float32) + 1.0))
        flat = flat_features(policy.observation, len(self.observation_space.shape))
        seen = state.observation if self.observation_space.dtype == "bool" else state.observation.update(flat, rate)
        return state.replace(
            target=state.target.update(policy.target, rate),
            returns=state.returns.update(policy.returns, rate),
            observation=seen,
        )

    def fit(
        self, state: EvaluatorState, memory: Memory, filled: Int[Array, ""], steps: Int[Array, ""], key: Key
    ) -> tuple[EvaluatorState, Float[Array, ""]]:
        """Some gradient steps on batches drawn over all stored policies alike; also the mean loss, in squared reward."""

        def one_step(index: Array, carry: tuple[EvaluatorState, Array]) -> tuple[EvaluatorState, Array]:
            state, total = carry
            batch = memory.sample(jax.random.fold_in(key, index), filled, self.config.batch_size)
            loss, gradient = jax.value_and_grad(self._loss)(state.parameters, state, batch)
            with lenient_promotion():
                step, optimizer = self.optimizer.update(gradient, state.optimizer, state.parameters)
            parameters = optax.apply_updates(state.parameters, step)
            return state.replace(parameters=parameters, optimizer=optimizer), total + loss

        state, total = jax.lax.fori_loop(0, steps, one_step, (state, jnp.zeros(())))
        mean = total / jnp.maximum(steps, 1).astype(jnp.float32)
        return state, mean * state.target.deviation() ** 2

    def _loss(self, parameters: Any, state: EvaluatorState, batch: PolicyRecord) -> Float[Array, ""]:
        """Mean squared error in standardised units; each stored policy is read once for all its queries."""
        predict = jax.vmap(lambda row: self._standardised(state, parameters, row.returns, row.observation))
        wanted = (batch.target - state.target.mean) / state.target.deviation()
        return jnp.mean((predict(batch) - wanted) ** 2)

    def _standardised(self, state: EvaluatorState, parameters: Any, returns: Array, queries: Array) -> Array:
        # returns that never varied have taught nothing; divided by the floor, they would be given enormous slopes
        shown = jnp.where(state.returns.varies(), (returns - state.returns.mean) / state.returns.deviation(), 0.0)
        features = self._features(state, self.scenarios), self._features(state, queries)
        return cast(Array, self.network.apply(parameters, features[0], shown, features[1]))

    def _features(self, state: EvaluatorState, observation: Array) -> Float[Array, "B F"]:
        """Flattened; standardised unless they are flags."""
        flat = flat_features(observation, len(self.observation_space.shape))
        if self.observation_space.dtype == "bool":
            return flat
        return (flat - state.observation.mean[None]) / state.observation.deviation()[None]


def make_evaluator(config: EvaluatorConfig, observation_space: Box, scenarios: Array) -> Evaluator:
    """Build the network and its optimiser."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.learning_rate, eps=1e-5))
    return Evaluator(config, observation_space, jnp.asarray(scenarios), make_network(config.network), optimizer)
