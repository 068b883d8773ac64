"""What each evaluator can and cannot tell apart, and the paper's listing worked out again in numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.evaluators.configuration import NetworkConfig
from evarl.evaluators.networks import make_network

KINDS = ["listing", "pairs", "factored", "linear"]
F, K, Q = 2, 4, 6
SEEDS = range(3)


def inputs(seed, dtype=np.float32, features=F, k=K, queries=Q):
    rng = np.random.default_rng(seed)
    shapes = ((k, features), (k, 1), (queries, features))
    return tuple(jnp.asarray(rng.normal(size=shape).astype(dtype)) for shape in shapes)


@functools.cache
def compiled(kind, dtype):
    network = make_network(NetworkConfig(kind), dtype)
    return jax.jit(network.init), jax.jit(network.apply)


def build(kind, seed, dtype=np.float32):
    """The function, and parameters that are all random: initial biases of 0 and scales of 1 would hide mistakes."""
    init, apply = compiled(kind, dtype)
    variables = init(jax.random.key(seed), *inputs(seed, dtype))
    rng = np.random.default_rng(100 + seed)
    return apply, jax.tree.map(lambda p: jnp.asarray(p + 0.1 * rng.normal(size=p.shape).astype(dtype)), variables)


def shapes(network, *arguments):
    return jax.tree.map(lambda p: p.shape, jax.eval_shape(network.init, jax.random.key(0), *arguments)["params"])


def parameter_count(network, *arguments):
    parameters = jax.eval_shape(network.init, jax.random.key(0), *arguments)
    return sum(p.size for p in jax.tree.leaves(parameters))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["pairs", "factored", "linear"])
def test_the_order_of_pairs_does_not_matter(kind, seed):
    apply, variables = build(kind, seed)
    scenarios, returns, queries = inputs(seed)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(
        apply(variables, scenarios[order], returns[order], queries),
        apply(variables, scenarios, returns, queries),
        atol=1e-5,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "pairs"), [("listing", False), ("pairs", True), ("factored", True), ("linear", True)])
def test_listing_alone_cannot_tell_which_state_a_return_is_of(kind, pairs, seed):
    apply, variables = build(kind, seed)
    scenarios, returns, queries = inputs(seed)
    before = apply(variables, scenarios, returns, queries)
    after = apply(variables, scenarios, returns[np.array([2, 0, 3, 1])], queries)
    if pairs:
        assert np.abs(after - before).max() > 1e-3
    else:
        np.testing.assert_allclose(after, before, atol=1e-5)


def test_listing_has_the_parameters_of_the_appendix():
    norm = {"scale": (32,), "bias": (32,)}
    square = {"kernel": (32, 32), "bias": (32,)}
    heads_in, heads_out = {"kernel": (32, 2, 16), "bias": (2, 16)}, {"kernel": (2, 16, 32), "bias": (32,)}
    attention = {"query": heads_in, "key": heads_in, "value": heads_in, "out": heads_out}
    expected = {
        "state": {"kernel": (2, 32), "bias": (32,)},
        "return": {"kernel": (1, 32), "bias": (32,)},
        "query": {"kernel": (2, 32), "bias": (32,)},
        "Embed_0": {"embedding": (5, 32)},
        "Transformer_0": {
            **{f"LayerNorm_{i}": norm for i in range(4)},
            **{f"MultiHeadDotProductAttention_{i}": attention for i in range(2)},
            **{f"Dense_{i}": square for i in range(4)},
        },
        "value": {"kernel": (32, 1), "bias": (1,)},
    }
    assert shapes(make_network(NetworkConfig("listing")), *inputs(0)) == expected


def test_listing_has_the_size_of_the_paper_on_minatar():
    # states and queries 2 · (400·16 + 16) = 12 832, returns 16 + 16 = 32, positions (5 + 1)·16 = 96,
    # each block: norms 2 · 2·16 = 64, attention 4 · (16·16 + 16) = 1 088, feed-forward 2 · (16·16 + 16) = 544,
    # four blocks 4 · 1 696 = 6 784, read-out 16 + 1 = 17.
    network = make_network(NetworkConfig("listing", width=16, heads=4, layers=4))
    assert parameter_count(network, *inputs(0, features=400, k=5)) == 12_832 + 32 + 96 + 6_784 + 17 == 19_761


def appendix(parameters, scenarios, returns, queries, layers):
    """The paper's listing for one policy, a query at a time, in plain numpy."""

    def dense(name, x, within=parameters):
        return x @ within[name]["kernel"] + within[name]["bias"]

    def normalise(scale_and_bias, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
        return centred / deviation * scale_and_bias["scale"] + scale_and_bias["bias"]

    def attend(weights, x):
        mixed = np.zeros_like(x)
        head_count, head_size = weights["query"]["bias"].shape
        for head in range(head_count):
            query, key, value = (
                x @ weights[name]["kernel"][:, head] + weights[name]["bias"][head] for name in ("query", "key", "value")
            )
            scores = np.exp(query @ key.T / np.sqrt(head_size))
            mixed += scores / scores.sum(axis=1, keepdims=True) @ value @ weights["out"]["kernel"][head]
        return mixed + weights["out"]["bias"]

    positions, blocks = parameters["Embed_0"]["embedding"], parameters["Transformer_0"]
    values = []
    for query in queries:
        states = dense("state", scenarios) + positions[:-1]
        outcomes = dense("return", returns) + positions[-1]
        x = np.concatenate([states, outcomes, (dense("query", query) + positions[-1])[None]])
        for i in range(layers):
            x = x + attend(blocks[f"MultiHeadDotProductAttention_{i}"], normalise(blocks[f"LayerNorm_{2 * i}"], x))
            hidden = dense(f"Dense_{2 * i}", normalise(blocks[f"LayerNorm_{2 * i + 1}"], x), blocks)
            x = x + dense(f"Dense_{2 * i + 1}", np.maximum(hidden, 0), blocks)
        values.append(dense("value", x[-1])[0])
    return np.array(values)


def test_listing_agrees_with_the_appendix_worked_out_in_numpy():
    with jax.enable_x64(True):
        apply, variables = build("listing", 0, np.float64)
        arguments = inputs(1, np.float64)
        got = apply(variables, *arguments)
        wanted = appendix(jax.tree.map(np.asarray, variables["params"]), *map(np.asarray, arguments), layers=2)
    assert got.dtype == np.float64
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(got, wanted, rtol=1e-10)


def test_linear_with_equal_similarities_is_the_mean():
    apply, variables = build("linear", 0)
    scenarios, returns, queries = inputs(0)
    same = jnp.broadcast_to(scenarios[:1], scenarios.shape)
    np.testing.assert_allclose(apply(variables, same, returns, queries), np.full(Q, returns.mean()), rtol=1e-5)


def test_linear_is_a_convex_combination_of_the_returns():
    with jax.enable_x64(True):
        apply, variables = build("linear", 0, np.float64)
        scenarios, returns, queries = inputs(0, np.float64)
        other = inputs(1, np.float64)[1]

        def values(returns):
            return apply(variables, scenarios, returns, queries)

        weights = jax.vmap(values, out_axes=1)(jnp.eye(K)[:, :, None])
        assert (weights > 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), np.ones(Q), rtol=1e-12)
        np.testing.assert_allclose(values(returns), weights @ returns[:, 0], rtol=1e-12)
        combined = 2.0 * values(returns) - 3.0 * values(other)
        np.testing.assert_allclose(values(2.0 * returns - 3.0 * other), combined, rtol=1e-12, atol=1e-12)


def test_linear_stays_finite_where_softplus_rounds_to_zero():
    apply, variables = build("linear", 0)
    variables = jax.tree.map(lambda p: jnp.full_like(p, -1e3) if p.shape == (32,) else p, variables)
    _, returns, _ = arguments = inputs(0)
    np.testing.assert_allclose(apply(variables, *arguments), np.full(Q, returns.mean()), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_do_not_see_one_another(kind):
    apply, variables = build(kind, 0)
    scenarios, returns, queries = inputs(0)
    together = apply(variables, scenarios, returns, queries)
    alone = [apply(variables, scenarios, returns, query[None])[0] for query in queries]
    assert together.shape == (Q,)
    np.testing.assert_allclose(together, np.array(alone), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_with_respect_to_the_returns(kind):
    with jax.enable_x64(True):
        apply, variables = build(kind, 0, np.float64)
        scenarios, returns, queries = inputs(0, np.float64)

        @jax.jit
        def loss(returns):
            return (apply(variables, scenarios, returns, queries) ** 2).mean()

        step = 1e-6 * np.eye(K)
        differences = np.array([(loss(returns + d) - loss(returns - d)) / 2e-6 for d in step[:, :, None]])[:, None]
        gradient = jax.grad(loss)(returns)
    assert gradient.dtype == np.float64
    assert np.abs(gradient).min() > 1e-5
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("gradient", [False, True])
def test_factored_costs_at_most_a_fifth_of_paired(gradient):
    def flops(kind):
        network = make_network(NetworkConfig(kind))
        scenarios, returns, queries = inputs(0, queries=1600)
        variables = jax.jit(network.init)(jax.random.key(0), scenarios, returns, queries)

        def total(returns):
            return network.apply(variables, scenarios, returns, queries).sum()

        return jax.jit(jax.grad(total) if gradient else total).lower(returns).compile().cost_analysis()["flops"]

    assert flops("factored") <= flops("pairs") / 5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (NetworkConfig(heads=3), "evaluator.network.heads: 3 does not divide the width 32"),
        (NetworkConfig(width=0), "evaluator.network.width: 0 is not allowed; must be at least 1"),
        (NetworkConfig(heads=0), "evaluator.network.heads: 0 is not allowed; must be at least 1"),
        (NetworkConfig(layers=-1), "evaluator.network.layers: -1 is not allowed; must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(config, message):
    NetworkConfig().validate()
    with pytest.raises(InputError) as error:
        config.validate()
    assert str(error.value) == message
