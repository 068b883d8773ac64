"""What is asked of a policy before it is evaluated."""

import jax.numpy as jnp
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from tests.ope.test_estimate import DISCOUNT, EXACT, QUICK, chain_log, switching

TABLE = np.array([0.7, 0.3])
NUMPY = ope.TargetPolicy.from_probabilities(lambda seen: np.broadcast_to(TABLE, (len(seen), 2)))


def estimate(policy, methods=("pdis",), data=None, **settings):
    return ope.estimate(ope.Log(data or chain_log(200), DISCOUNT), policy, ope.Settings(**settings), methods)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"log_prob": lambda seen, action: np.log(TABLE)[action][:, None]},
            r"policy.log_prob: has shape \(\d+, 1\) for",
        ),
        ({"log_prob": lambda seen, action: np.full(len(seen), np.nan)}, "policy.log_prob: is NaN or infinite"),
        ({"log_prob": lambda seen, action: TABLE[action]}, "policy.log_prob: 0.7 is above 0; must be logarithms"),
        (
            {"log_prob": lambda seen, action: np.log(TABLE / 2)[action]},
            "policy.log_prob: differs from policy.probabilities by",
        ),
        (
            {"log_prob": lambda seen, action: np.log(TABLE / 2)[action], "probabilities": None},
            "policy.log_prob: probabilities of actions 0 to 1 sum to 0.5; must be 1",
        ),
        (
            {"probabilities": lambda seen: np.broadcast_to(TABLE / 2, (len(seen), 2))},
            "policy.probabilities: are below 0 or",
        ),
        (
            {"probabilities": lambda seen: np.ones((len(seen), 1))},
            r"policy.probabilities: have shape \(\d+, 1\); must be .* the log has action 1",
        ),
    ],
)
def test_policies_that_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        estimate(NUMPY._replace(**changes))


def test_actions_beyond_the_policy_are_not_clamped():
    """JAX takes the last entry of a table for every index beyond it."""
    data = chain_log(200)
    more = data.replace(action=np.where(data.action == 1, 5, 0))
    clamped = ope.TargetPolicy(lambda seen, action: jnp.log(jnp.asarray(TABLE))[action], None, None, None)
    with pytest.raises(InputError, match=r"probabilities of actions 0 to 5 sum to 2\.2"):
        estimate(clamped, data=more)


def test_actions_that_the_log_never_shows_are_reported():
    three = ope.TargetPolicy.from_probabilities(lambda seen: np.broadcast_to([0.5, 0.3, 0.2], (len(seen), 3)))
    one = estimate(three)["pdis"]
    assert "20.0% of the policy's actions are never taken in the log" in " ".join(one.warnings)
    assert one.standard_error is None  # the mean weight is 0.8^5


def test_functions_of_numpy_are_called_on_the_host():
    exact = estimate(switching(0.3), ("pdis", "wis"))
    found = estimate(NUMPY, ("pdis", "wis"))
    assert [one.value for one in found.values()] == pytest.approx([one.value for one in exact.values()], rel=1e-6)


def _numpy_probabilities(seen):
    right = np.asarray(seen, np.float64)[:, 0] > 0
    return np.where(right[:, None], [0.75, 0.25], [0.5, 0.5])


def _jax_probabilities(seen):
    return jnp.where((seen[:, 0] > 0)[:, None], jnp.asarray([[0.75, 0.25]]), jnp.asarray([[0.5, 0.5]]))


@pytest.mark.slow
def test_fitted_q_evaluation_of_a_numpy_policy_is_that_of_the_same_jax_policy():
    """The probabilities are powers of a half, so that 32 and 64 bits agree."""
    methods, settings = ("fqe", "fqe-tabular", "dr"), {"fqe": QUICK}
    numpy, jax = (ope.TargetPolicy.from_probabilities(one) for one in (_numpy_probabilities, _jax_probabilities))
    on_host, traced = estimate(numpy, methods, **settings), estimate(jax, methods, **settings)
    assert [on_host[name].value for name in methods[:2]] == [traced[name].value for name in methods[:2]]
    assert on_host["dr"].value == pytest.approx(traced["dr"].value, rel=1e-6)  # logarithms differ
    assert on_host["fqe"].bellman_error == traced["fqe"].bellman_error


@pytest.mark.slow
def test_continuous_actions_of_a_numpy_policy_in_fitted_q_evaluation():
    rng = np.random.default_rng(0)
    data = ope.LoggedData.from_arrays(
        observation=rng.normal(size=(40, 3, 2)),
        action=rng.normal(size=(40, 3, 1)),
        reward=rng.normal(size=(40, 3)),
        final_observation=np.zeros((40, 2)),
    )

    def policy(numbers):
        mean = lambda seen: numbers.asarray(seen)[:, :1] * 0.5  # noqa: E731
        return ope.TargetPolicy(lambda seen, action: None, None, lambda key, seen: mean(seen), mean)

    found = [estimate(policy(numbers), ("fqe",), data, fqe=QUICK)["fqe"].value for numbers in (np, jnp)]
    assert found[0] == found[1]


def test_a_policy_that_raises_is_refused_before_the_fit():
    broken = ope.TargetPolicy.from_probabilities(lambda seen: np.asarray(seen) @ np.ones((7, 2)))
    with pytest.raises(
        InputError, match=r"policy\.probabilities: raises \w+ at logged observations of shape \(\d+, 2\)"
    ):
        estimate(broken, ("fqe",))


def test_a_policy_from_probabilities_is_the_whole_policy(key):
    whole = ope.TargetPolicy.from_probabilities(lambda seen: jnp.broadcast_to(jnp.asarray([0.7, 0.3]), (len(seen), 2)))
    seen = np.zeros((4000, 2), np.float32)
    np.testing.assert_allclose(whole.log_prob(seen[:2], np.array([0, 1])), np.log(TABLE), rtol=1e-6)
    assert np.asarray(whole.mode(seen)).max() == 0
    assert np.asarray(whole.sample(key, seen)).mean() == pytest.approx(0.3, abs=0.03)
    one = estimate(whole, ("fqe",), fqe=QUICK)["fqe"]
    assert one.value == pytest.approx(EXACT.mean(), rel=0.5)
