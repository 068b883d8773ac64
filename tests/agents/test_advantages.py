"""Advantages and returns against a slow reference that walks each episode by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.agents.advantages import generalised_advantages, next_values, normalise, returns_to_go

DISCOUNT, LAMBDA = 0.9, 0.7


def random_batch(seed: int, steps: int = 40, environments: int = 3) -> dict[str, np.ndarray]:
    """Ends of all kinds, several truncations in one environment, and a cut at the end."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, size=(steps, environments), p=[0.8, 0.1, 0.1])
    return {
        "reward": rng.normal(size=(steps, environments)).astype(np.float32),
        "value": rng.normal(size=(steps, environments)).astype(np.float32),
        "last_value": rng.normal(size=environments).astype(np.float32),
        "final_value": rng.normal(size=(steps, environments)).astype(np.float32),
        "terminated": kind == 1,
        "truncated": kind == 2,
    }


def slow_next_value(batch: dict[str, np.ndarray], t: int, n: int) -> float:
    if batch["terminated"][t, n]:
        return 0.0
    if batch["truncated"][t, n]:
        return batch["final_value"][int(batch["truncated"][:t, n].sum()), n]
    return batch["value"][t + 1, n] if t + 1 < len(batch["value"]) else batch["last_value"][n]


def slow_advantage(batch: dict[str, np.ndarray], t: int, n: int) -> float:
    """Σ_l (γλ)^l δ_{t+l} up to the end of the episode or of the batch."""
    total, weight = 0.0, 1.0
    for i in range(t, len(batch["reward"])):
        delta = batch["reward"][i, n] + DISCOUNT * slow_next_value(batch, i, n) - batch["value"][i, n]
        total, weight = total + weight * delta, weight * DISCOUNT * LAMBDA
        if batch["terminated"][i, n] or batch["truncated"][i, n]:
            break
    return total


def slow_return(batch: dict[str, np.ndarray], t: int, n: int) -> float:
    total, weight = 0.0, 1.0
    for i in range(t, len(batch["reward"])):
        total, weight = total + weight * batch["reward"][i, n], weight * DISCOUNT
        if batch["terminated"][i, n] or batch["truncated"][i, n]:
            return total
    return total + weight * batch["last_value"][n]


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jitted", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_generalised_advantages_match_the_sum_over_each_episode(seed, wrap):
    batch = random_batch(seed)
    assert batch["truncated"].sum(axis=0).max() > 1, "the case of several truncations must occur"

    def fast(b):
        following = next_values(b["value"], b["last_value"], b["final_value"], b["truncated"])
        ends = b["terminated"], b["truncated"]
        return generalised_advantages(b["reward"], b["value"], following, *ends, DISCOUNT, LAMBDA)

    slow = [[slow_advantage(batch, t, n) for n in range(3)] for t in range(40)]
    np.testing.assert_allclose(wrap(fast)(jax.tree.map(jnp.asarray, batch)), slow, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_returns_end_at_the_time_limit_and_go_on_after_a_cut(seed):
    batch = random_batch(seed)
    b = jax.tree.map(jnp.asarray, batch)
    fast = returns_to_go(b["reward"], b["last_value"], b["terminated"], b["truncated"], DISCOUNT)
    slow = [[slow_return(batch, t, n) for n in range(3)] for t in range(40)]
    np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-5)


def test_one_step_by_hand():
    """r = 1, V = 0.5, γ = 0.9: a cut adds 0.9 · 2, a truncation 0.9 · 3, a termination nothing."""
    value, reward = jnp.full((1, 3), 0.5), jnp.ones((1, 3))
    terminated = jnp.array([[False, False, True]])
    truncated = jnp.array([[False, True, False]])
    following = next_values(value, jnp.full(3, 2.0), jnp.full((1, 3), 3.0), truncated)
    advantage = generalised_advantages(reward, value, following, terminated, truncated, 0.9, 0.95)
    np.testing.assert_allclose(advantage, [[0.5 + 1.8, 0.5 + 2.7, 0.5]], rtol=1e-5)


def test_lambda_one_is_the_return_minus_the_value():
    batch = jax.tree.map(jnp.asarray, random_batch(7))
    batch["truncated"] = jnp.zeros_like(batch["truncated"])
    following = next_values(batch["value"], batch["last_value"], batch["final_value"], batch["truncated"])
    ends = batch["terminated"], batch["truncated"]
    advantage = generalised_advantages(batch["reward"], batch["value"], following, *ends, DISCOUNT, 1.0)
    returns = returns_to_go(batch["reward"], batch["last_value"], *ends, DISCOUNT)
    np.testing.assert_allclose(advantage, returns - batch["value"], atol=1e-5)


def test_normalise_has_mean_zero_and_deviation_one():
    x = normalise(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose([x.mean(), x.std()], [0.0, 1.0], atol=1e-5)
