"""Running statistics against NumPy over everything at once."""

import jax.numpy as jnp
import numpy as np

from evarl.agents.normalisation import CLIP, RewardScale, RunningStatistics


def test_statistics_of_batches_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(300, 2)) * np.array([1.0, 50.0]) + np.array([3.0, -70.0])).astype(np.float32)
    statistics = RunningStatistics.create((2,))
    for part in np.split(data, [10, 50, 51, 200]):
        statistics = statistics.update(jnp.asarray(part))
    np.testing.assert_allclose(statistics.mean, data.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(statistics.variance, data.var(axis=0), rtol=1e-4)
    standardised = np.asarray(statistics.standardise(jnp.asarray(data)))
    np.testing.assert_allclose(standardised.std(axis=0), 1.0, rtol=1e-3)
    assert np.abs(statistics.standardise(jnp.full((1, 2), 1e9))).max() == CLIP


def test_reward_scale_is_the_deviation_of_the_discounted_sum():
    rng = np.random.default_rng(1)
    reward, done = rng.normal(size=(50, 3)).astype(np.float32), rng.random((50, 3)) < 0.1
    sums, running = [], np.zeros(3)
    for t in range(50):
        running = 0.9 * running + reward[t]
        sums.append(running.copy())
        running[done[t]] = 0.0
    scale = RewardScale.create(3)
    for part in (slice(0, 20), slice(20, 50)):
        scale = scale.update(jnp.asarray(reward[part]), jnp.asarray(done[part]), 0.9)
    np.testing.assert_allclose(scale.deviation(), np.std(sums), rtol=1e-4)
