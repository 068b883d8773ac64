"""Networks that predict values V̂(s | Ξ) from a policy's behaviour at k start states.

All have one signature and see one policy; callers vmap over policies. With F features of a state, B numbers of behaviour for
each of k start states (one, if the behaviour is the returns) and Q queries:

    (scenarios [k, F], standardised behaviour [k, B], queries [Q, F]) → values [Q]

A behaviour that is told step by step is encoded first, to `width` numbers for each start state (`WithSteps`).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from evarl.evaluators.configuration import NETWORKS, NetworkConfig
from evarl.worlds.world import Key

SIMILARITY_FLOOR = 1e-6
"""Added to softplus, which can round to 0, so that the similarities of `Linear` never sum to 0."""


class Transformer(nn.Module):
    """Pre-LayerNorm blocks: x ← x + Attention(LN x), then x ← x + Dense(relu(Dense(LN x))), without a final norm."""

    config: NetworkConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "*batch n h"], attended: Float[Array, "k h"] | None = None
    ) -> Float[Array, "*batch n h"]:
        """Let the tokens attend to the tokens `attended`, or to one another when there are none."""
        normalise = partial(nn.LayerNorm, param_dtype=self.dtype, force_float32_reductions=False)
        dense = partial(nn.Dense, self.config.width, param_dtype=self.dtype)
        for _ in range(self.config.layers):
            attention = nn.MultiHeadDotProductAttention(self.config.heads, param_dtype=self.dtype)
            x = x + attention(normalise()(x), attended)
            hidden = nn.relu(dense()(normalise()(x)))
            x = x + dense()(hidden)
        return x


class Pairs(nn.Module):
    """One token per pair, A sⁱ + b Gⁱ + c. Apart, so that b starts at unit scale however many features a state has."""

    config: NetworkConfig
    dtype: Any

    @nn.compact
    def __call__(self, scenarios: Float[Array, "k F"], behaviour: Float[Array, "k B"]) -> Float[Array, "k h"]:
        """Embed the pairs; no positions, so their order cannot matter."""
        dense = partial(nn.Dense, self.config.width, param_dtype=self.dtype)
        return dense(name="state")(scenarios) + dense(use_bias=False, name="return")(behaviour)


class ValueNetwork(nn.Module):
    """What the four kinds share; each adds `_values`. `dtype` is that of the parameters, and must be that of the inputs."""

    config: NetworkConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, scenarios: Float[Array, "k F"], behaviour: Float[Array, "k B"], queries: Float[Array, "Q F"]
    ) -> Float[Array, " Q"]:
        """The predicted values."""
        return self._values(scenarios, behaviour, queries)

    def query_alone(self, tokens: Float[Array, "n h"], queries: Float[Array, "Q h"]) -> Float[Array, "Q h"]:
        """Give each query a sequence of its own, tokens and query, and return what becomes of the query there."""
        shared = jnp.broadcast_to(tokens, (len(queries), *tokens.shape))
        sequences = jnp.concatenate([shared, queries[:, None]], axis=1)
        return Transformer(self.config, self.dtype)(sequences)[:, -1]

    def value(self, queries: Float[Array, "Q h"]) -> Float[Array, " Q"]:
        """The linear read-out."""
        return nn.Dense(1, param_dtype=self.dtype, name="value")(queries)[:, 0]


class Listing(ValueNetwork):
    """The paper's appendix to the letter: states, returns and query are 2k + 1 tokens of one sequence.

    State i has position i; every return, and the query, has position k. The returns are therefore a set without order:
    the output stays the same when they are permuted among the states.
    """

    def _values(self, scenarios: Array, behaviour: Array, queries: Array) -> Array:
        dense = partial(nn.Dense, self.config.width, param_dtype=self.dtype)
        k = len(behaviour)
        positions = nn.Embed(k + 1, self.config.width, param_dtype=self.dtype)(jnp.arange(k + 1))
        states = dense(name="state")(scenarios) + positions[:k]
        outcomes = dense(name="return")(behaviour) + positions[k:]
        asked = dense(name="query")(queries) + positions[k:]
        return self.value(self.query_alone(jnp.concatenate([states, outcomes]), asked))


class PairTokens(ValueNetwork):
    """A state and its return are one token: k + 1 tokens for each query, without positions."""

    def _values(self, scenarios: Array, behaviour: Array, queries: Array) -> Array:
        asked = nn.Dense(self.config.width, param_dtype=self.dtype, name="query")(queries)
        return self.value(self.query_alone(Pairs(self.config, self.dtype)(scenarios, behaviour), asked))


class Factored(ValueNetwork):
    """The k pairs are encoded once, and each query attends to them: Q + k tokens, not Q·(k + 1).

    Queries do not attend to one another, so they are one sequence with k keys and values for all, and the gradient with
    respect to the returns goes through those k tokens alone. There is one block, x ← x + relu(A x + Σ_heads
    Attention(x → pairs)), and a second one lowered no error. Keys and values are as wide as x in every head: the
    projections of the queries, and of what they learn, are folded into those of the k pairs, because on a CPU the time
    goes to products with Q rows.
    """

    def _values(self, scenarios: Array, behaviour: Array, queries: Array) -> Array:
        width, heads = self.config.width, self.config.heads
        dense = partial(nn.Dense, param_dtype=self.dtype)
        pairs = nn.relu(Pairs(self.config, self.dtype)(scenarios, behaviour))
        x = nn.relu(dense(width, name="query")(queries))
        both = dense(2 * heads * width, name="pairs")(pairs).reshape(-1, heads, 2 * width)
        keys, values = jnp.split(both, 2, axis=-1)  # [k, heads, width]
        scores = jnp.einsum("qd,khd->qhk", x, keys) / width**0.5
        seen = jnp.einsum("qhk,khd->qd", nn.softmax(scores), values)
        x = x + nn.relu(dense(width, name="keep")(x) + seen)
        return self.value(x)


class Linear(ValueNetwork):
    """The similarity-weighted mean of the paper's theory, V̂(s) = Σᵢ f(s, sⁱ) Gⁱ / Σᵢ f(s, sⁱ), f(s, s′) = φ(s)ᵀφ(s′).

    φ is positive, so V̂ is a convex combination of the returns, and linear in them. The sums over i come first.
    """

    def _values(self, scenarios: Array, behaviour: Array, queries: Array) -> Array:
        dense = partial(nn.Dense, self.config.width, param_dtype=self.dtype)
        phi = nn.Sequential([dense(), nn.relu, dense(), nn.softplus])
        known, asked = phi(scenarios) + SIMILARITY_FLOOR, phi(queries) + SIMILARITY_FLOOR
        return (asked @ (behaviour[:, 0] @ known)) / (asked @ known.sum(axis=0))


class StepEncoder(nn.Module):
    """The h steps of each rollout as one token: a layer that all steps share, and attention over the steps.

    With x_t the token of step t and p_t its place, z_t = relu(A x_t + p_t), and every head has the mean of its part of B z_t
    with the weights softmax_t(c·z_t). c is 0 at first, so that all steps count alike.
    """

    config: NetworkConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, steps: Float[Array, "k h W"]) -> Float[Array, "k d"]:
        """The encoded rollouts."""
        (count, horizon, _), width, heads = steps.shape, self.config.width, self.config.heads
        dense = partial(nn.Dense, param_dtype=self.dtype)
        places = nn.Embed(horizon, width, param_dtype=self.dtype, name="place")(jnp.arange(horizon))[None]
        hidden = nn.relu(dense(width, name="step")(steps) + places)
        scores = dense(heads, use_bias=False, kernel_init=nn.initializers.zeros, name="attention")(hidden)
        values = dense(width, name="told")(hidden).reshape(count, horizon, heads, width // heads)
        return jnp.einsum("ktn,ktnd->knd", nn.softmax(scores, axis=1), values).reshape(count, width)


class StepwiseBehaviour(NamedTuple):
    """A standardised behaviour of which a part is told step by step."""

    numbers: Float[Array, "k B"]
    steps: Float[Array, "k h W"]


@dataclass(frozen=True)
class WithSteps:
    """A network of any kind that is given, beside the other numbers, what a `StepEncoder` makes of the steps."""

    network: Any
    encoder: StepEncoder

    def init(self, key: Key, scenarios: Array, behaviour: StepwiseBehaviour, queries: Array) -> dict[str, Any]:
        """Parameters of both."""
        own, rest = jax.random.split(key)
        encoder = self.encoder.init(own, behaviour.steps)
        told = self._told(encoder, behaviour)
        return {"encoder": encoder, "network": self.network.init(rest, scenarios, told, queries)}

    def apply(
        self, parameters: dict[str, Any], scenarios: Array, behaviour: StepwiseBehaviour, queries: Array
    ) -> Float[Array, " Q"]:
        """The predicted values."""
        told = self._told(parameters["encoder"], behaviour)
        return self.network.apply(parameters["network"], scenarios, told, queries)

    def _told(self, encoder: Any, behaviour: StepwiseBehaviour) -> Float[Array, "k B"]:
        encoded = cast(Array, self.encoder.apply(encoder, behaviour.steps))
        return jnp.concatenate([behaviour.numbers, encoded], axis=1)


def make_network(config: NetworkConfig, dtype: Any = jnp.float32) -> nn.Module:
    """The network a configuration asks for, with parameters of the given type."""
    return NETWORKS.get(config.kind)(config, dtype)
