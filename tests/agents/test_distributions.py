"""Action distributions against SciPy, and the units of continuous actions."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from evarl.agents.distributions import Categorical, DiagonalGaussian, world_action
from evarl.worlds.spaces import Box, Discrete


def test_categorical_probabilities_and_entropy():
    probabilities = np.array([0.1, 0.2, 0.7])
    distribution = Categorical(jnp.log(jnp.asarray(probabilities, jnp.float32)) + 3.0)
    np.testing.assert_allclose(
        [distribution.log_prob(jnp.asarray(a)) for a in range(3)], np.log(probabilities), rtol=1e-5
    )
    np.testing.assert_allclose(distribution.entropy(), scipy.stats.entropy(probabilities), rtol=1e-5)
    assert int(distribution.mode()) == 2


def test_categorical_samples_have_the_right_frequencies(key):
    probabilities = np.array([0.1, 0.2, 0.7])
    logits = jnp.broadcast_to(jnp.log(jnp.asarray(probabilities, jnp.float32)), (20_000, 3))
    counts = np.bincount(np.asarray(Categorical(logits).sample(key)), minlength=3)
    assert scipy.stats.chisquare(counts, 20_000 * probabilities).pvalue > 1e-3


def test_gaussian_density_and_entropy():
    mean, deviation, action = np.array([0.5, -1.0]), np.array([0.3, 2.0]), np.array([0.1, 1.5])
    as_jax = [jnp.asarray(x, jnp.float32) for x in (mean, np.log(deviation), action)]
    distribution = DiagonalGaussian(as_jax[0], as_jax[1])
    reference = scipy.stats.norm(mean, deviation)
    np.testing.assert_allclose(distribution.log_prob(as_jax[2]), reference.logpdf(action).sum(), rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(), reference.entropy().sum(), rtol=1e-5)


def test_gaussian_samples(key):
    distribution = DiagonalGaussian(jnp.full((20_000, 1), 2.0), jnp.full((20_000, 1), jnp.log(0.5)))
    sample = np.asarray(distribution.sample(key))[:, 0]
    assert scipy.stats.kstest(sample, scipy.stats.norm(2.0, 0.5).cdf).pvalue > 1e-3


def test_actions_reach_the_world_in_its_own_units():
    space = Box((2,), (-2.0, 0.0), (2.0, 10.0))
    actions = jnp.array([[0.0, 0.0], [1.0, -1.0], [5.0, 0.5]])
    np.testing.assert_allclose(world_action(space, actions), [[0.0, 5.0], [2.0, 0.0], [2.0, 7.5]])
    np.testing.assert_allclose(world_action(Box((1,)), jnp.array([[37.0]])), [[37.0]])
    assert int(world_action(Discrete(4), jnp.asarray(3))) == 3


def test_actions_take_the_shape_of_the_box():
    assert world_action(Box((2, 3), -1.0, 1.0), jax.numpy.zeros((5, 6))).shape == (5, 2, 3)
