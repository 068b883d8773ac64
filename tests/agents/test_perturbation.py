"""Perturbed policies do what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.agents.agent import make_agent
from evarl.agents.configuration import AgentConfig
from evarl.agents.perturbation import (
    LEAST_DEVIATION,
    Acted,
    Perturbation,
    draw_perturbations,
    perturbed_action,
    perturbed_distribution,
    random_actions,
    with_noise,
)
from evarl.worlds.spaces import Box, Discrete

SPACE = Box((2,), 0.0, 1.0)
AGENT = make_agent(AgentConfig(hidden_sizes=(8,)), SPACE, Discrete(4), 0.99, 10)
POLICY = AGENT.init(jax.random.PRNGKey(0), 1).policy
SEEN = jnp.asarray(np.random.default_rng(0).random((4000, 2)), jnp.float32)


def how(noise=0.0, random=0.0, favoured=0.0, delayed=0.0, sticky=0.0, favourite=(0.6,)):
    return Perturbation(*(jnp.float32(x) for x in (noise, random, favoured, delayed, sticky)), jnp.asarray(favourite))


def acted(perturbation, policy=POLICY, last=None, first=None, key=5):
    return perturbed_action(AGENT, policy, perturbation, jax.random.PRNGKey(key), SEEN, last, first).taken


def test_no_noise_leaves_every_bit_and_noise_has_its_size():
    same = with_noise(POLICY, jnp.float32(0.0), jax.random.PRNGKey(1))
    for one, other in zip(jax.tree.leaves(same), jax.tree.leaves(POLICY), strict=True):
        np.testing.assert_array_equal(one, other)
    other = with_noise(POLICY, jnp.float32(0.5), jax.random.PRNGKey(1))
    np.testing.assert_array_equal(*(jax.tree.leaves(p.critic)[-1] for p in (other, POLICY)))
    moved = [np.asarray(b - a) for a, b in zip(*map(jax.tree.leaves, (POLICY.actor, other.actor)), strict=True)]
    sizes = [np.sqrt(np.mean(np.asarray(x) ** 2)) for x in jax.tree.leaves(POLICY.actor)]
    relative = np.concatenate([(x / size).ravel() for x, size in zip(moved, sizes, strict=True) if size])
    assert relative.size > 40
    np.testing.assert_allclose(relative.std(), 0.5, rtol=0.25)


def test_an_unperturbed_policy_acts_as_it_would():
    own = jax.random.split(jax.random.PRNGKey(5), 3)[0]
    np.testing.assert_array_equal(acted(how()), AGENT.act(POLICY, own, SEEN)[0])


def test_a_share_of_one_is_uniform_whatever_the_policy_does():
    leaning = POLICY.replace(actor=jax.tree.map(lambda x: 100.0 * x + 1.0, POLICY.actor))
    counts = np.bincount(np.asarray(acted(how(random=1.0), leaning)), minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.3  # chi-square with 3 degrees of freedom, exceeded in 0.1 %
    np.testing.assert_array_equal(acted(how(random=1.0), leaning), acted(how(random=1.0)))


def test_a_share_in_between_is_the_share_of_random_actions():
    own = jax.random.split(jax.random.PRNGKey(5), 3)[0]
    differs = np.asarray(acted(how(random=0.4)) != AGENT.act(POLICY, own, SEEN)[0]).mean()
    np.testing.assert_allclose(differs, 0.4 * 3 / 4, atol=0.03)  # one random action in four is that of the policy


def test_sticky_actions_are_repeated_except_at_the_first_step():
    taken = jnp.full(len(SEEN), 3)
    last = Acted(taken, jnp.zeros_like(taken))
    np.testing.assert_array_equal(acted(how(sticky=1.0), last=last, first=jnp.bool_(False)), taken)
    fresh = acted(how(sticky=1.0), last=last, first=jnp.bool_(True))
    np.testing.assert_array_equal(fresh, acted(how()))
    before = np.asarray(acted(how()) == 3).mean()
    half = np.asarray(acted(how(sticky=0.5), last=last, first=jnp.bool_(False)) == 3).mean()
    np.testing.assert_allclose(half, 0.5 + 0.5 * before, atol=0.03)


def test_a_favoured_action_is_always_the_same():
    np.testing.assert_array_equal(acted(how(favoured=1.0)), np.full(len(SEEN), 2))  # 0.6 of four actions
    before = np.asarray(acted(how()) == 2).mean()
    half = np.asarray(acted(how(favoured=0.5)) == 2).mean()
    np.testing.assert_allclose(half, 0.5 + 0.5 * before, atol=0.03)
    space = Box((2,), -5.0, 5.0)
    gaussian = make_agent(AgentConfig(hidden_sizes=(8,)), SPACE, space, 0.99, 10)
    policy, stuck = gaussian.init(jax.random.PRNGKey(0), 1).policy, how(favoured=1.0, favourite=(0.25, 1.0))
    found = perturbed_action(gaussian, policy, stuck, jax.random.PRNGKey(1), SEEN[:3], None, None)
    np.testing.assert_allclose(found.taken, [[-0.5, 1.0]] * 3)


@pytest.mark.parametrize(
    ("random", "favoured"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.7), (0.25, 0.4), (0.5, 1.0), (1.0, 0.0)]
)
def test_the_distribution_at_the_first_step_is_the_mixture(random, favoured):
    """For discrete actions, by enumeration of what can happen, and against many actions; the favourite of 0.6 is action 2."""
    leaning = POLICY.replace(actor=jax.tree.map(lambda x: 20.0 * x, POLICY.actor))
    shown, mixture = (
        jnp.broadcast_to(SEEN[:1], SEEN.shape),
        how(random=random, favoured=favoured, delayed=0.9, sticky=0.9),
    )
    found = jax.nn.softmax(perturbed_distribution(AGENT, leaning, mixture, shown[:2]).logits)
    own = np.asarray(jax.nn.softmax(AGENT.distribution(leaning, shown[:1]).logits), np.float64)[0]
    assert np.ptp(own) > 0.1
    wanted = (1 - favoured) * ((1 - random) * own + random / 4) + favoured * np.eye(4)[2]
    np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-6, atol=1e-30)
    last = Acted(*2 * (jnp.ones(len(shown), int),))
    drawn = perturbed_action(AGENT, leaning, mixture, jax.random.PRNGKey(3), shown, last, jnp.bool_(True))
    np.testing.assert_allclose(np.bincount(np.asarray(drawn.taken), minlength=4) / len(shown), wanted, atol=0.03)


@pytest.mark.parametrize(("random", "favoured"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.4), (1.0, 0.0), (0.5, 1.0)])
def test_continuous_actions_have_the_moments_of_the_mixture(random, favoured):
    """(mean, second moment) of the policy are (μ, σ² + μ²), of random actions (0, ⅓), of the favourite (c, c²)."""
    agent = make_agent(AgentConfig(hidden_sizes=(8,)), SPACE, Box((2,), -5.0, 5.0), 0.99, 10)
    policy = agent.init(jax.random.PRNGKey(0), 1).policy
    policy = policy.replace(actor=jax.tree.map(lambda x: 20.0 * x - 0.3, policy.actor))
    shown, mixture = jnp.broadcast_to(SEEN[:1], SEEN.shape), how(0.0, random, favoured, 0.9, 0.9, (0.25, 1.0))
    found, own = perturbed_distribution(agent, policy, mixture, shown[:3]), agent.distribution(policy, shown[:1])
    mu, sigma, c = np.float64(own.mean)[0], np.exp(np.float64(own.log_deviation))[0], np.array([-0.5, 1.0])
    mean = (1 - favoured) * (1 - random) * mu + favoured * c
    square = (1 - favoured) * ((1 - random) * (sigma**2 + mu**2) + random / 3) + favoured * c**2
    deviation = np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), LEAST_DEVIATION)
    np.testing.assert_allclose(found.mean, [mean] * 3, rtol=1e-5)
    np.testing.assert_allclose(np.exp(found.log_deviation), [deviation] * 3, rtol=1e-4)
    if favoured == random == 0:
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x[:1], y, rtol=1e-6), found, own)
    drawn = np.asarray(perturbed_action(agent, policy, mixture, jax.random.PRNGKey(3), shown, None, None).taken)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4 * deviation.max() / len(shown) ** 0.5)
    np.testing.assert_allclose(np.sqrt(drawn.var(axis=0) + 1e-4 * (favoured == 1)), deviation, rtol=0.08)


def test_continuous_random_actions_fill_the_units_of_the_policy():
    drawn = np.asarray(random_actions(Box((3,), -5.0, 5.0), jax.random.PRNGKey(0), jnp.zeros((4000, 3))))
    assert (drawn.min(), drawn.max()) == pytest.approx((-1.0, 1.0), abs=0.01)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=0.05)


def test_a_delayed_policy_takes_each_action_one_step_late():
    """Whole episodes in navigation: what is decided at one step is taken at the next, and the first step is not delayed."""
    from evarl.simulation.compiled import CompiledSimulator
    from evarl.worlds import make_world

    def act(key, seen, last, first):  # decides on 0, 1, 2, … in turn
        number = 0 if last is None else jnp.where(first, 0, last.decided[0] + 1)
        decided = jnp.full(seen.shape[0], number % 4, jnp.int32)
        return Acted(decided if last is None else jnp.where(first, decided, last.decided), decided)

    played = jax.jit(lambda key: CompiledSimulator(make_world("navigation", 6)).episodes(act, 2, key))
    np.testing.assert_array_equal(played(jax.random.PRNGKey(0)).action[:, 0, 0], [0, 0, 1, 2, 3, 0])
    decided = jnp.full(len(SEEN), 2)
    last = Acted(jnp.zeros_like(decided), decided)
    np.testing.assert_array_equal(acted(how(delayed=1.0), last=last, first=jnp.bool_(False)), decided)
    np.testing.assert_array_equal(acted(how(delayed=1.0), last=last, first=jnp.bool_(True)), acted(how()))
    before = np.asarray(acted(how()) == 2).mean()
    half = np.asarray(acted(how(delayed=0.5), last=last, first=jnp.bool_(False)) == 2).mean()
    np.testing.assert_allclose(half, 0.5 + 0.5 * before, atol=0.03)


def test_one_policy_in_eight_is_left_as_it_is():
    found = draw_perturbations(Discrete(4), jax.random.PRNGKey(0), 8000)
    table = np.stack([found.noise, found.random, found.favoured, found.delayed, found.sticky])
    np.testing.assert_allclose((table == 0).all(axis=0).mean(), (2 / 3) ** 5, atol=0.02)
    np.testing.assert_allclose((table == 0).mean(axis=1), 2 / 3, atol=0.02)
    assert (table[1:] <= 1).all()
    np.testing.assert_allclose((table[1:] == 1).mean(axis=1), 0.2 / 3, atol=0.01)


def test_a_sticky_policy_goes_on_in_one_direction_in_every_episode():
    """Whole episodes in navigation: the action of the first step is the action of all."""
    from evarl.simulation.compiled import CompiledSimulator
    from evarl.worlds import make_world

    agent = make_agent(AgentConfig(hidden_sizes=(8,)), SPACE, Discrete(4), 0.99, 10)
    act = lambda key, seen, last, first: perturbed_action(agent, POLICY, how(sticky=1.0), key, seen, last, first)  # noqa: E731
    world = make_world("navigation", 12)
    played = jax.jit(lambda key: CompiledSimulator(world).episodes(act, 6, key))(jax.random.PRNGKey(2))
    actions = np.asarray(played.action[:, :, 0])
    assert actions.shape == (12, 6)
    assert (actions == actions[:1]).all()
    assert len(set(actions[0].tolist())) > 1
    assert bool(played.alive[0].all())
    np.testing.assert_allclose(played.observation[0, :, 0], [[0.05, 0.05]] * 6)
    assert evarl.preset("navigation").evaluator.memory == "recent"
