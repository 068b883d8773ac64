"""The memory of recent policies, the running scales, and that an evaluator learns what an assessment tells of a policy."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.assessment.behaviour import Behaviour
from evarl.evaluators.configuration import NETWORKS, EvaluatorConfig, NetworkConfig
from evarl.evaluators.evaluator import RunningScale, make_evaluator
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.learning.control import SLOWEST, running_rate
from evarl.worlds.spaces import Box

SPACE = Box((2,), 0.0, 1.0)
SHAPES = Behaviour(jnp.zeros(3))


def policy(number, transitions=4, k=3):
    """Everything remembered of a policy says which one it is."""
    return PolicyRecord(
        observation=jnp.full((transitions, 2), float(number)),
        target=number + 0.1 * jnp.arange(transitions, dtype=jnp.float32),
        behaviour=Behaviour(jnp.full(k, float(number))),
    )


def stacked(record):
    """A record as it is stored, with an axis of contexts."""
    return jax.tree.map(lambda x: x[None], record)


def filled_with(numbers, slots=3):
    memory = Memory.create(slots, 4, SPACE, SHAPES)
    for index, number in enumerate(numbers):
        memory = memory.store(jnp.int32(index), stacked(policy(number)))
    return memory


@pytest.mark.parametrize(("count", "kept"), [(1, [10, 0, 0]), (3, [10, 11, 12]), (4, [13, 11, 12]), (7, [16, 14, 15])])
def test_the_newest_policy_takes_the_place_of_the_oldest(count, kept):
    memory = filled_with(range(10, 10 + count))
    np.testing.assert_array_equal(memory.slots.behaviour.rolled_out[:, 0], kept)
    np.testing.assert_array_equal(memory.slots.observation[:, 0, 0], kept)
    np.testing.assert_allclose(memory.slots.target[0], kept[0] + 0.1 * np.arange(4), rtol=1e-6)
    assert memory.policies == 3


@pytest.mark.parametrize("filled", [1, 2, 3])
def test_batches_are_grouped_by_policy_and_leave_empty_slots_alone(filled):
    memory = filled_with(range(10, 10 + filled))
    batch = memory.sample(jax.random.PRNGKey(0), jnp.int32(filled), 50)
    assert batch.target.shape == (3, 17)  # 50 rows, rounded up to equally many from each of the 3
    assert batch.observation.shape == (3, 17, 2)
    assert batch.behaviour.rolled_out.shape == (3, 3)
    shown = np.asarray(batch.behaviour.rolled_out[:, 0])
    assert set(shown) == set(range(10, 10 + filled))
    np.testing.assert_array_equal(batch.observation, np.broadcast_to(shown[:, None, None], (3, 17, 2)))
    rows = np.asarray(batch.target) - shown[:, None]
    assert np.unique(np.round(rows, 1)).tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_other_keys_draw_other_rows():
    memory = filled_with(range(3))
    one, other, again = (memory.sample(jax.random.PRNGKey(key), jnp.int32(3), 30).target for key in (0, 1, 0))
    assert not np.array_equal(one, other)
    assert np.array_equal(one, again)


def test_a_memory_keeps_flags_as_flags():
    memory = Memory.create(2, 5, Box((10, 10, 4), 0.0, 1.0, "bool"), SHAPES)
    assert memory.slots.observation.dtype == bool
    assert memory.slots.observation.shape == (2, 5, 10, 10, 4)


def test_scales_by_hand():
    scale = RunningScale.create(())
    assert (float(scale.mean), float(scale.square)) == (0.0, 1.0)
    scale = scale.update(jnp.array([1.0, 3.0]), jnp.float32(1.0))
    assert (float(scale.mean), float(scale.square)) == (2.0, 5.0)
    np.testing.assert_allclose(scale.deviation(), 1.0, rtol=1e-5)
    scale = scale.update(jnp.array([6.0, 6.0]), jnp.float32(0.25))
    np.testing.assert_allclose([scale.mean, scale.square], [3.0, 12.75], rtol=1e-6)
    np.testing.assert_allclose(scale.deviation(), np.sqrt(3.75), rtol=1e-5)
    assert 0 < float(scale.update(jnp.array([7.0, 7.0]), jnp.float32(1.0)).deviation()) < 0.01


@pytest.mark.parametrize("constant", [0.0, 3.0, -1234.5678])
def test_returns_that_never_varied_have_no_slope(constant):
    """Divided by the floor of the deviation, one unit of return would move a prediction by a thousand deviations."""
    evaluator = make_evaluator(
        EvaluatorConfig(network=NetworkConfig(width=8, layers=1)), SPACE, jnp.zeros((3, 2)), SHAPES
    )
    rescale, state = jax.jit(evaluator.rescale), evaluator.init(jax.random.PRNGKey(0))
    queries = jnp.asarray(np.random.default_rng(0).random((5, 2)), jnp.float32)
    for index in range(50):
        shown = policy(index).replace(behaviour=Behaviour(jnp.full(3, constant)))
        state = rescale(state, shown, running_rate(jnp.int32(index)))
    assert not state.behaviour.rolled_out.varies()
    slope = jax.jit(jax.jacobian(evaluator.predict, argnums=1))
    assert not np.asarray(slope(state, Behaviour(jnp.full(3, constant)), queries).rolled_out).any()
    other = Behaviour(jnp.array([constant, constant, constant + 0.1 * max(1.0, abs(constant))]))
    moved = policy(50).replace(behaviour=other)
    state = rescale(state, moved, running_rate(jnp.int32(50)))
    assert state.behaviour.rolled_out.varies(), "one policy that differs is enough"
    assert np.asarray(slope(state, moved.behaviour, queries).rolled_out).any()


def test_scales_of_vectors_by_hand():
    scale = RunningScale.create((2,)).update(jnp.array([[1.0, 10.0], [3.0, 30.0]]), jnp.float32(1.0))
    np.testing.assert_allclose(scale.mean, [2.0, 20.0], rtol=1e-6)
    np.testing.assert_allclose(scale.deviation(), [1.0, 10.0], rtol=1e-5)


@pytest.mark.slow
def test_all_policies_count_alike_until_there_are_enough():
    """Weights 1, 1/2, 1/3 … make a plain mean; from the 20th policy on the weight stays at 1/20."""
    evaluator = make_evaluator(EvaluatorConfig(), SPACE, jnp.zeros((3, 2)), SHAPES)
    rescale, state = jax.jit(evaluator.rescale), evaluator.init(jax.random.PRNGKey(0))
    for index in range(20):
        state = rescale(state, policy(index), running_rate(jnp.int32(index)))
    np.testing.assert_allclose(state.behaviour.rolled_out.mean, np.mean(range(20)), rtol=1e-5)
    np.testing.assert_allclose(state.behaviour.rolled_out.deviation(), np.std(range(20)), rtol=1e-4)
    np.testing.assert_allclose(state.target.mean, np.mean(range(20)) + 0.15, rtol=1e-5)
    np.testing.assert_allclose(state.observation.mean, [9.5, 9.5], rtol=1e-5)
    later = rescale(state, policy(29.5), running_rate(jnp.int32(500)))
    np.testing.assert_allclose(later.behaviour.rolled_out.mean, 9.5 + SLOWEST * 20, rtol=1e-5)


# --- Learning


M, HELD_OUT, QUERIES, K = 24, 40, 64, 3
SCENARIOS = np.array([[0.1, 0.1], [0.9, 0.2], [0.4, 0.9]], np.float32)


def policies(rng, count):
    """Policies that differ in one number, the level of all their returns: it is shown in each scenario with a little of the
    scenario's own, and the value of every state is 3 × the level − 10."""
    level = rng.normal(size=count)
    noise = 0.05 * rng.normal(size=(count, K))
    return PolicyRecord(
        observation=rng.random((count, QUERIES, 2)).astype(np.float32),
        target=np.broadcast_to(3.0 * level[:, None] - 10.0, (count, QUERIES)).astype(np.float32),
        behaviour=Behaviour((3.0 * level[:, None] - 10.0 + noise).astype(np.float32)),
    )


@pytest.mark.parametrize("kind", [pytest.param("pairs", marks=pytest.mark.slow), "factored", "linear"])
def test_an_evaluator_learns_to_read_an_assessment(kind):
    """On policies it has never seen, a tenth of the error of the best guess without Ξ, the mean over policies."""
    rng = np.random.default_rng(0)
    known, unseen = policies(rng, M), policies(rng, HELD_OUT)
    config = EvaluatorConfig(network=NetworkConfig(kind, 16, 2, 1), learning_rate=1e-2, batch_size=192)
    evaluator = make_evaluator(config, SPACE, jnp.asarray(SCENARIOS), SHAPES)
    memory, state = Memory(jax.tree.map(jnp.asarray, known)), evaluator.init(jax.random.PRNGKey(0))
    rescale = jax.jit(evaluator.rescale)
    for index in range(M):
        state = rescale(
            state, jax.tree.map(lambda x, at=index: jnp.asarray(x[at]), known), running_rate(jnp.int32(index))
        )
    predict = jax.jit(jax.vmap(evaluator.predict, (None, 0, 0)))
    state, loss = jax.jit(evaluator.fit)(state, memory, jnp.int32(M), jnp.int32(400), jax.random.PRNGKey(1))
    error = np.mean((predict(state, unseen.behaviour, unseen.observation) - unseen.target) ** 2)
    guess = np.mean((known.target.mean() - unseen.target) ** 2)
    assert error < 0.1 * guess
    assert 0 < loss < guess
    blind = predict(state, Behaviour(np.full((HELD_OUT, K), -10.0, np.float32)), unseen.observation)
    assert np.mean((blind - unseen.target) ** 2) > 0.5 * guess, "without Ξ there is nothing to know"


def test_no_steps_change_nothing():
    evaluator = make_evaluator(EvaluatorConfig(), SPACE, jnp.zeros((3, 2)), SHAPES)
    state, fit = evaluator.init(jax.random.PRNGKey(0)), jax.jit(evaluator.fit)
    after, loss = fit(state, filled_with([1, 2]), jnp.int32(2), jnp.int32(0), jax.random.PRNGKey(0))
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loss == 0.0


def test_empty_slots_are_never_learnt_from():
    """Garbage in the slots that are not filled yet makes no difference."""
    evaluator = make_evaluator(
        EvaluatorConfig(network=NetworkConfig(width=8, layers=1)), SPACE, jnp.zeros((3, 2)), SHAPES
    )
    state, fit = evaluator.init(jax.random.PRNGKey(0)), jax.jit(evaluator.fit)
    clean = filled_with([1, 2])
    dirty = clean.store(jnp.int32(2), jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), stacked(policy(0))))
    one, other = (fit(state, m, jnp.int32(2), jnp.int32(5), jax.random.PRNGKey(3))[0] for m in (clean, dirty))
    for a, b in zip(jax.tree.leaves(one.parameters), jax.tree.leaves(other.parameters), strict=True):
        np.testing.assert_array_equal(a, b)


def test_predictions_are_in_units_of_reward():
    """Shifting and stretching all returns and targets shifts and stretches the predictions alike."""
    evaluator = make_evaluator(
        EvaluatorConfig(network=NetworkConfig(width=8, layers=1)), SPACE, jnp.asarray(SCENARIOS), SHAPES
    )
    state, rescale = evaluator.init(jax.random.PRNGKey(0)), jax.jit(evaluator.rescale)
    rng = np.random.default_rng(0)
    one = policies(rng, 1)
    target, returns = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in (QUERIES, K))
    one = PolicyRecord(jnp.asarray(one.observation[0]), target, Behaviour(returns))
    other = one.replace(target=100.0 * target + 7.0, behaviour=Behaviour(50.0 * returns - 3.0))
    small = evaluator.predict(rescale(state, one, jnp.ones(())), one.behaviour, one.observation)
    large = evaluator.predict(rescale(state, other, jnp.ones(())), other.behaviour, other.observation)
    np.testing.assert_allclose(large, 100.0 * small + 7.0, rtol=1e-3, atol=1e-2)


# --- Lower quantiles and last steps


SURE, UNSURE = 0.0, 1.0
TOLD = {SURE: [2.0, 2.0, 2.0, 2.0], UNSURE: [-6.0, 2.0, 2.0, 2.0]}


@pytest.mark.parametrize(("level", "unsure"), [(0.1, -6.0), pytest.param(0.4, 2.0, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_lower_quantile_of_what_a_critic_tells_is_learnt(level, unsure):
    """One behaviour leaves nothing open, the other one a bad context in four; the noise of returns is no doubt."""
    places, noise = np.repeat([0.0, 1.0], 4), np.repeat([-3.0, 3.0], 8)  # every place has all values with all noise
    shown = np.array([SURE, UNSURE], np.float32)
    told = np.tile([TOLD[one] for one in shown], (1, 100)).astype(np.float32)
    known = PolicyRecord(
        observation=np.broadcast_to(np.tile(places, 50)[:, None], (2, 400, 2)).astype(np.float32),
        target=told + np.tile(noise, 25).astype(np.float32),
        behaviour=Behaviour(np.repeat(shown[:, None], K, axis=1)),
        told=told,
    )
    config = EvaluatorConfig(
        network=NetworkConfig(width=16, heads=2, layers=1),
        batch_size=400,
        learning_rate=1e-2,
        lower_quantile=level,
        final_steps=1,
    )
    evaluator = make_evaluator(config, SPACE, jnp.asarray(SCENARIOS), SHAPES)
    known = jax.tree.map(jnp.asarray, known)
    state = evaluator.rescale(evaluator.init(jax.random.PRNGKey(0)), known, jnp.float32(1.0))
    fit = jax.jit(evaluator.fit)
    state, _ = fit(state, Memory(known), jnp.int32(2), jnp.int32(2000), jax.random.PRNGKey(1), True)
    query = jnp.ones((1, 2))
    lower, value = (
        np.concatenate([predict(state, Behaviour(jnp.full(K, one)), query) for one in (SURE, UNSURE)])
        for predict in (evaluator.predict_lower, evaluator.predict)
    )
    np.testing.assert_allclose(lower, [2.0, unsure], atol=0.25)
    np.testing.assert_allclose(value, [2.0, 0.0], atol=0.5)


@pytest.mark.slow
def test_a_lower_quantile_leaves_the_value_as_it_is():
    """The second network is drawn and fitted beside the first, which has the same loss and the same batches."""
    memory = filled_with([1, 2, 3])
    told = Memory(memory.slots.replace(told=memory.slots.target))
    config = EvaluatorConfig(network=NetworkConfig(width=8, layers=1))
    with_quantile = dataclasses.replace(config, lower_quantile=0.1)
    one, other = (make_evaluator(c, SPACE, jnp.zeros((3, 2)), SHAPES) for c in (config, with_quantile))
    state = other.init(jax.random.PRNGKey(0))
    arguments = jnp.int32(3), jnp.int32(5), jax.random.PRNGKey(1)
    both, _ = jax.jit(other.fit)(state, told, *arguments)
    alone, _ = jax.jit(one.fit)(state.replace(lower=None), memory, *arguments)
    for a, b in zip(jax.tree.leaves(both.parameters), jax.tree.leaves(alone.parameters), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    moved = [
        np.abs(a - b).max()
        for a, b in zip(jax.tree.leaves(both.lower.parameters), jax.tree.leaves(state.lower.parameters), strict=True)
    ]
    assert max(moved) > 1e-3


class OneNumber(nn.Module):
    """A network with one parameter, which is its prediction everywhere."""

    config: object
    dtype: object = jnp.float32

    @nn.compact
    def __call__(self, scenarios, behaviour, queries):
        number = self.param("number", nn.initializers.zeros, (), self.dtype)
        return jnp.full(queries.shape[0], number)


@pytest.mark.parametrize(("decay", "sizes"), [(True, [1.0, 0.75, 0.5, 0.25]), (False, [1.0] * 4)])
def test_last_steps_fall_to_nothing(decay, sizes, monkeypatch):
    """Far from the target the clipped gradient is constant, and each step of Adam is the step size."""
    monkeypatch.setitem(NETWORKS._entries, "one-number", OneNumber)
    config = EvaluatorConfig(network=NetworkConfig("one-number"), learning_rate=0.01, final_steps=4, lower_quantile=0.5)
    evaluator = make_evaluator(config, SPACE, jnp.zeros((3, 2)), SHAPES)
    far = policy(1000)
    memory = Memory(stacked(far.replace(told=far.target)))
    state, fit = evaluator.init(jax.random.PRNGKey(0)), jax.jit(evaluator.fit)
    state, _ = fit(state, memory, jnp.int32(1), jnp.int32(4), jax.random.PRNGKey(0), decay)
    for parameters in (state.parameters, state.lower.parameters):
        np.testing.assert_allclose(parameters["params"]["number"], 0.01 * sum(sizes), rtol=1e-3)
    assert state.steps() == 4
