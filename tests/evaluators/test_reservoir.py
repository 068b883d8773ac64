"""A diverse memory: uniform samples of a whole run, of which a part is held out."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.assessment import Behaviour
from evarl.evaluators.configuration import EvaluatorConfig, NetworkConfig
from evarl.evaluators.evaluator import Offered, make_evaluator
from evarl.evaluators.memory import HELD_OUT, Memory, PolicyRecord, Reservoir, empty_slots
from evarl.worlds.spaces import Box

SPACE, SHAPES = Box((2,), 0.0, 1.0), Behaviour(jax.ShapeDtypeStruct((3,), jnp.float32))


def records(*names: float) -> PolicyRecord:
    """Policies all of whose numbers are their name."""
    named = np.asarray(names, np.float32)
    full = lambda *shape: jnp.broadcast_to(named.reshape(-1, *(1,) * len(shape)), (len(names), *shape))  # noqa: E731
    return PolicyRecord(full(4, 2), full(4), Behaviour(full(3)))


def empty(slots: int, holds_out: bool = False) -> Reservoir:
    return Reservoir(empty_slots(slots, 4, SPACE, SHAPES), holds_out)


@jax.jit
def offer(reservoir: Reservoir, count: int, more: PolicyRecord, key: jax.Array) -> Reservoir:
    return reservoir.offer(count, more, key)


@jax.jit
def sample(reservoir: Reservoir, filled: int) -> PolicyRecord:
    return reservoir.sample(jax.random.PRNGKey(0), filled, 4000, 4)


def names(reservoir: Reservoir) -> list[float]:
    slots = reservoir.slots
    for leaf in (slots.observation, slots.behaviour.rolled_out):
        np.testing.assert_array_equal(leaf.reshape(len(leaf), -1)[:, 0], slots.target[:, 0])
    return np.asarray(slots.target[:, 0]).tolist()


def test_all_draws_together_make_every_record_equally_likely(monkeypatch):
    """Two slots, five records, one at a time and in pairs: over all draws that there are, each is kept with probability 2/5."""
    outcomes = np.asarray(list(product(*(range(place) for place in range(1, 6)))), np.int32)
    assert len(outcomes) == 120
    for offers in ([[1], [2], [3], [4], [5]], [[1, 2], [3, 4], [5]]):

        def offered(outcome, offers=offers):
            rest, reservoir, count = list(outcome), empty(2), 0
            draw = lambda key, shape, low, high: jnp.stack([rest.pop(0) for _ in range(shape[0])])  # noqa: E731
            with monkeypatch.context() as patch:
                patch.setattr(jax.random, "randint", draw)
                for one in offers:
                    reservoir = reservoir.offer(jnp.int32(count), records(*one), jax.random.PRNGKey(0))
                    count += len(one)
            assert not rest
            return reservoir

        found, kept = jax.device_get(jax.jit(jax.vmap(offered))(outcomes)), np.zeros(6)
        for index in range(len(outcomes)):
            for name in names(jax.tree.map(lambda leaf, index=index: leaf[index], found)):
                kept[int(name)] += 1
        np.testing.assert_allclose(kept[1:] / kept.sum(), 1 / 5)


def test_a_long_run_is_sampled_uniformly():
    """Chi-square over tenths of 400 records in 16 slots, 300 runs; with 9 degrees of freedom 27.9 is exceeded in 0.1 %."""

    def run(key):
        def offer(index, reservoir):
            more = records(0.0, 0.0)
            more = jax.tree.map(lambda x: x + jnp.asarray([2.0, 3.0]).reshape(2, *(1,) * (x.ndim - 1)), more)
            more = jax.tree.map(lambda x: x + 2.0 * index.astype(jnp.float32), more)
            return reservoir.offer(2 * index, more, jax.random.fold_in(key, index))

        return jax.lax.fori_loop(0, 200, offer, empty(16)).slots.target[:, 0]

    kept = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.PRNGKey(1), 300))).reshape(-1)
    counts = np.histogram(kept, bins=np.linspace(2, 402, 11))[0]
    assert counts.sum() == 300 * 16
    expected = counts.sum() / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


@pytest.mark.parametrize("filled", [1, 4, 5, 9, 12])
def test_held_out_and_empty_slots_are_never_sampled(filled):
    reservoir = empty(12, holds_out=True)
    for name in range(filled):
        reservoir = offer(reservoir, jnp.int32(name), records(name + 1.0), jax.random.PRNGKey(name))
    batch = sample(reservoir, jnp.int32(filled))
    held_out = set(np.flatnonzero(reservoir.held_out()) + 1)
    assert held_out == {HELD_OUT, 2 * HELD_OUT}
    assert set(np.asarray(batch.target).ravel().astype(int)) == set(range(1, filled + 1)) - held_out
    np.testing.assert_array_equal(batch.behaviour.rolled_out[:, 0], batch.target[:, 0])
    whole = offer(empty(12), jnp.int32(0), records(*range(1, 13)), jax.random.PRNGKey(0))
    assert set(np.asarray(sample(whole, jnp.int32(12)).target).ravel()) == set(range(1, 13))


@pytest.mark.slow
def test_fitting_and_scales_do_not_see_what_is_held_out_or_empty():
    """Garbage in the held-out and the empty slots makes no difference to a single bit."""
    config = EvaluatorConfig(network=NetworkConfig(width=8, layers=1), memory="diverse")
    evaluator = make_evaluator(config, SPACE, jnp.zeros((3, 2)), SHAPES)
    known = jax.tree.map(jnp.asarray, records(*range(1, 13)))
    unseen = (np.arange(12) % HELD_OUT == HELD_OUT - 1) | (np.arange(12) >= 11)
    spoil = lambda x: jnp.where(unseen.reshape(-1, *(1,) * (x.ndim - 1)), 1e6, x)  # noqa: E731
    offered, states = Offered(jnp.int32(11), jnp.int32(11)), []

    @jax.jit
    def fit(memory):
        state = evaluator.init(jax.random.PRNGKey(0))
        state = state.rescaled(evaluator.scales(state, memory, offered))
        return evaluator.fit(state, memory, jnp.int32(2), jnp.int32(5), jax.random.PRNGKey(3), False, offered)[0]

    for slots in (known, jax.tree.map(spoil, known)):
        earlier = Reservoir(jax.tree.map(lambda x: x[:11], known))
        states.append(fit(Memory(records(3.0, 5.0), earlier, Reservoir(slots, holds_out=True))))
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(one, other)
    fitted = np.asarray([x for x in range(1, 12) if x % HELD_OUT], np.float64)
    mean = (np.arange(1, 12).mean() + fitted.mean()) / 2
    square = ((np.arange(1, 12) ** 2).mean() + (fitted**2).mean()) / 2
    np.testing.assert_allclose(states[0].target.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(states[0].behaviour.rolled_out.deviation(), np.sqrt(square - mean**2), rtol=1e-5)


@pytest.mark.slow
def test_the_share_of_recent_policies_is_their_weight_in_the_loss():
    config = EvaluatorConfig(network=NetworkConfig(width=8, layers=1), memory="diverse", recent_share=0.75)
    evaluator = make_evaluator(config, SPACE, jnp.zeros((3, 2)), SHAPES)
    state = evaluator.init(jax.random.PRNGKey(0))
    zeros = jax.tree.map(jnp.zeros_like, state.parameters)  # predicts 0, the mean of the scales before the first policy
    batches = records(2.0), records(4.0), records(6.0)
    varied = batches[0].replace(target=jnp.asarray([[1.0, 2.0, 1.0, 2.0]]))  # mean square 2.5, variance 0.25
    together = jax.tree.map(lambda *parts: jnp.concatenate(parts), varied, *batches[1:])
    loss, recent = evaluator._weighted_loss(zeros, state, together, 1)
    np.testing.assert_allclose(recent, 2.5, rtol=1e-5)
    np.testing.assert_allclose(loss, 0.75 * 2.5 / 0.25 + 0.25 * (16 + 36) / 2, rtol=1e-5)
    alone = evaluator._weighted_loss(zeros, state, varied, None)
    np.testing.assert_allclose(alone, 2.5, rtol=1e-5)
