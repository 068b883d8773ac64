"""One update, against gradients worked out another way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.agents.agent import make_agent
from evarl.agents.configuration import AgentConfig, PPOConfig
from evarl.agents.losses import clipped_terms
from evarl.agents.trajectory import Trajectory
from evarl.worlds.spaces import Box, Discrete

STEPS, ENVIRONMENTS = 6, 2
PLAIN = AgentConfig(hidden_sizes=(8,), normalise_advantages=False, entropy_coefficient=0.0)


def batch(space) -> Trajectory:
    rng = np.random.default_rng(0)
    shape = (STEPS, ENVIRONMENTS)
    discrete = isinstance(space, Discrete)
    action = rng.integers(0, 3, shape).astype(np.int32) if discrete else rng.normal(size=(*shape, 2)).astype(np.float32)
    kind = rng.choice(3, size=shape, p=[0.7, 0.15, 0.15])
    arrays = Trajectory(
        observation=rng.normal(size=(*shape, 3)).astype(np.float32),
        action=action,
        log_prob=np.full(shape, -1.0, np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=kind == 1,
        truncated=kind == 2,
        start_label=np.full(shape, -1, np.int32),
        final_observation=rng.normal(size=(STEPS, ENVIRONMENTS, 3)).astype(np.float32),
        last_observation=rng.normal(size=(ENVIRONMENTS, 3)).astype(np.float32),
    )
    return jax.tree.map(jnp.asarray, arrays)


def setup(config, space, key):
    agent = make_agent(config, Box((3,)), space, discount=0.9, updates=10)
    state = jax.jit(agent.init, static_argnums=1)(key, ENVIRONMENTS)
    trajectory = batch(space)
    log_prob = agent.distribution(state.policy, trajectory.observation).log_prob(trajectory.action)
    return agent, state, trajectory.replace(log_prob=log_prob)


@pytest.mark.parametrize("space", [pytest.param(Discrete(3), marks=pytest.mark.slow), Box((2,), -1.0, 1.0)], ids=str)
@pytest.mark.slow
def test_ppo_with_one_pass_and_one_minibatch_is_a2c(space, key):
    """At ratio 1 the clipped surrogate and the policy gradient have one gradient, so the updates agree."""
    once = dataclasses.replace(PLAIN, algorithm="ppo", ppo=PPOConfig(epochs=1, minibatches=1))
    a2c, state, trajectory = setup(PLAIN, space, key)
    ppo, _, _ = setup(once, space, key)
    one, _ = jax.jit(a2c.improve)(state, key, trajectory)
    other, _ = jax.jit(ppo.improve)(state, key, trajectory)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), one.policy, other.policy)
    moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), one.policy.actor, state.policy.actor)
    assert min(jax.tree.leaves(moved)) > 1e-5, "every layer of the actor must have moved"


@pytest.mark.parametrize("space", [pytest.param(Discrete(3), marks=pytest.mark.slow), Box((2,), -1.0, 1.0)], ids=str)
@pytest.mark.slow
def test_what_acting_computed_already_changes_no_update(space, key):
    """With the product of the actor's first layer handed over by the rollout, the update is the one without it."""
    config = dataclasses.replace(PLAIN, normalise_observations=True, entropy_coefficient=0.1, hidden_sizes=(8, 5))
    agent, state, trajectory = setup(config, space, key)
    noise = jnp.zeros((STEPS, ENVIRONMENTS, 3 if isinstance(space, Discrete) else 2))
    _, _, product = agent.explore(state.policy, noise, trajectory.observation)
    improve = jax.jit(agent.improve)
    plain, expected = improve(state, key, trajectory)
    reused, metrics = improve(state, key, trajectory.replace(reusable=product))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), (plain, expected), (reused, metrics))
    wrong, _ = improve(state, key, trajectory.replace(reusable=product + 1.0))
    moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), wrong.policy.actor, plain.policy.actor)
    assert max(jax.tree.leaves(moved)) > 1e-5, "the product is used"


def test_constant_shift_of_rewards_with_bandit_episodes_moves_only_the_critic(key):
    """With one-step episodes, adding a constant to rewards and values leaves the normalised advantages alone."""
    config = dataclasses.replace(PLAIN, normalise_advantages=True)
    agent, state, trajectory = setup(config, Discrete(3), key)
    trajectory = trajectory.replace(
        terminated=jnp.ones_like(trajectory.terminated), truncated=jnp.zeros_like(trajectory.truncated)
    )
    improve = jax.jit(agent.improve)
    one, _ = improve(state, key, trajectory)
    other, _ = improve(state, key, trajectory.replace(reward=trajectory.reward + 5.0))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), one.policy.actor, other.policy.actor)
    differs = jax.tree.map(lambda x, y: bool((x != y).any()), one.policy.critic, other.policy.critic)
    assert any(jax.tree.leaves(differs))


def test_truncation_as_termination_changes_the_update(key):
    agent, state, trajectory = setup(PLAIN, Discrete(3), key)
    folded, _, _ = setup(dataclasses.replace(PLAIN, truncation="as-termination"), Discrete(3), key)
    improve = jax.jit(agent.improve)
    _, one = improve(state, key, trajectory)
    _, other = jax.jit(folded.improve)(state, key, trajectory)
    assert float(one["value_loss"]) != float(other["value_loss"])
    ended = trajectory.replace(terminated=trajectory.done, truncated=jnp.zeros_like(trajectory.truncated))
    _, by_hand = improve(state, key, ended)
    np.testing.assert_allclose(other["value_loss"], by_hand["value_loss"], rtol=1e-5)


def test_clipped_loss_by_hand():
    """Ratios 2 and 0.5 with ε = 0.2: gains are clipped at 1.2, losses are not."""
    log_ratio = jnp.log(jnp.array([2.0, 2.0, 0.5, 0.5]))
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0])
    terms = clipped_terms(log_ratio, jnp.zeros(4), advantage, 0.2)
    np.testing.assert_allclose(terms, [1.2, -2.0, 0.5, -0.8], rtol=1e-5)


def test_scaled_rewards_leave_values_in_units_of_reward(key):
    """A critic trained on scaled rewards reports values times the scale."""
    config = dataclasses.replace(PLAIN, scale_rewards=True, normalise_observations=True)
    agent, state, trajectory = setup(config, Discrete(3), key)
    state, _ = jax.jit(agent.improve)(state, key, trajectory.replace(reward=100.0 * trajectory.reward))
    raw = agent.apply_critic(state.policy.critic, agent.features(state.policy, trajectory.last_observation))
    assert float(state.policy.value_scale) > 50.0
    value = agent.value(state.policy, trajectory.last_observation)
    np.testing.assert_allclose(value, raw * state.policy.value_scale, rtol=1e-5)
    np.testing.assert_allclose(
        state.policy.observation_statistics.mean, trajectory.observation.mean(axis=(0, 1)), atol=1e-5
    )


@pytest.mark.slow
def test_further_steps_of_the_critic_are_those_of_as_many_updates(key):
    """Three steps on one batch are three updates with an actor that does not move, and the actor moves by the first alone."""
    once = dataclasses.replace(PLAIN, critic_learning_rate=1e-2)
    still = dataclasses.replace(once, actor_learning_rate=1e-30)
    thrice = dataclasses.replace(once, critic_steps=3)
    (one, state, trajectory), (unmoved, _, _), (three, _, _) = (
        setup(c, Discrete(3), key) for c in (once, still, thrice)
    )
    expected, improve = state, jax.jit(unmoved.improve)
    for _ in range(3):
        expected, _ = improve(expected, key, trajectory)
    found, _ = three.improve(state, key, trajectory)
    single, _ = one.improve(state, key, trajectory)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), found.policy.critic, expected.policy.critic)
    jax.tree.map(np.testing.assert_array_equal, found.policy.actor, single.policy.actor)
    moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), found.policy.critic, single.policy.critic)
    assert max(jax.tree.leaves(moved)) > 1e-3


def test_rates_of_a_critic_with_several_steps_fall_to_zero_with_the_run(key):
    config = dataclasses.replace(PLAIN, critic_steps=3, anneal_learning_rates=True)
    agent, state, trajectory = setup(config, Discrete(3), key)  # for 10 updates
    improve = jax.jit(agent.improve)
    for _ in range(9):
        state, _ = improve(state, key, trajectory)
    last, _ = improve(state, key, trajectory)
    after, _ = improve(last, key, trajectory)
    moved = [
        max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
        for a, b in ((last.policy.critic, state.policy.critic), (after.policy.critic, last.policy.critic))
    ]
    assert moved[0] > 0.0
    assert moved[1] == 0.0
