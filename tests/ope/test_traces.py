"""Targets over several steps, and whole numbers as observations of fitted Q evaluation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe import fit, fit_policy, programmed, trace_coefficients
from evarl.ope.fqe_network import action_value, expected, initial
from evarl.ope.fqe_table import prepare, target_actions
from evarl.ope.fqe_training import backup, traced_backup
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig
from evarl.truth.exact import policy_values
from evarl.worlds.tabular import Tabular, chain
from tests.ope.test_exact import numbered, table_policy
from tests.ope.test_fqe import QUICK, SMALL, SWITCH, gaussian_log, gaussian_policy, logged, tabular

TRACED = dataclasses.replace(QUICK, trace=0.7, trace_steps=3)


def with_log_prob(policy: np.ndarray) -> TargetPolicy:
    table = jnp.asarray(policy, jnp.float32)
    take = lambda seen, action: jnp.log((seen @ table)[jnp.arange(len(action)), action])  # noqa: E731
    return tabular(policy)._replace(log_prob=take)


def on_device(*arguments):
    rows, program = programmed(*arguments)
    return jax.tree.map(jnp.asarray, rows), program


@pytest.fixture(scope="module")
def chain_log():
    return logged(chain(), np.full((2, 2), 0.5), 60, 6)


@pytest.mark.parametrize("kind", ["retrace", "tree-backup", "q-lambda"])
def test_targets_are_those_of_the_formula(chain_log, kind, key):
    """Q_t + Σ_k (Π γ c_j) δ_k over three steps after the first, or to the end of the trajectory, computed step by step."""
    config = dataclasses.replace(TRACED, trace_kind=kind)
    policy = with_log_prob(np.array([[0.9, 0.1], [0.2, 0.8]]))
    table, target = prepare(config, chain_log, 0.9, key), target_actions(config, chain_log, policy, key)
    trace = trace_coefficients(config, chain_log, table, policy, target)
    rows, program = on_device(config, table, target, trace)
    parameters, _ = initial(key, program.sizes)
    parameters = jax.tree.map(lambda leaf: leaf + 0.1, parameters)  # the last layer is 0 otherwise
    row = np.arange(7 * 4, dtype=np.int32)
    row = row[row % 7 < 6]  # four trajectories of six steps
    found = traced_backup(parameters, rows, jnp.asarray(row), 3, jnp.zeros(len(row), jnp.int32))
    everything = jnp.arange(29)
    q = np.asarray(action_value(parameters, rows.inputs(everything), rows.action[everything]), np.float64)
    v = np.asarray(expected(parameters, rows.inputs(everything), rows.target[everything]), np.float64)
    chance = target[np.arange(29), table.action[:29]]
    factor = {"retrace": np.minimum(1, chance / 0.5), "tree-backup": chance, "q-lambda": np.ones(29)}[kind]
    for one, value in zip(row, found, strict=True):
        total, weight = q[one], 1.0
        for k in range(one, min(one + 4, one - one % 7 + 6)):
            if k > one:
                weight *= 0.9 * 0.7 * factor[k]
            total += weight * (table.reward[k] + table.discount[k] * v[k + 1] - q[k])
        assert float(value) == pytest.approx(total, rel=1e-4)


def test_a_trace_of_zero_is_one_step(chain_log, key):
    policy = with_log_prob(SWITCH)
    table, target = prepare(TRACED, chain_log, 0.9, key), target_actions(TRACED, chain_log, policy, key)
    rows, program = on_device(TRACED, table, target, np.zeros(len(table.reward), np.float32))
    parameters, _ = initial(key, program.sizes)
    row, none = jnp.asarray(table.training[:50]), jnp.zeros(50, jnp.int32)
    np.testing.assert_allclose(
        traced_backup(parameters, rows, row, 3, none), backup(parameters, rows, row, none), rtol=1e-6
    )
    plain = fit(QUICK, table, target, key)
    zero = fit(dataclasses.replace(TRACED, trace=0.0), table, target, key)
    jax.tree.map(np.testing.assert_array_equal, plain.parameters, zero.parameters)


def test_a_trace_of_one_on_policy_is_the_return(key):
    """λ = 1 over whole trajectories that end, from the policy itself: Q at the end of the sum cancels where V = Q."""
    rng = np.random.default_rng(0)
    reward, length = rng.normal(size=(20, 5)), 5
    data = LoggedData.from_arrays(
        observation=rng.normal(size=(20, length, 2)),
        action=np.zeros((20, length), int),
        reward=reward,
        log_prob=np.zeros((20, length)),
        terminated=np.eye(length, dtype=bool)[[-1] * 20],
        final_observation=np.zeros((20, 2)),
    )
    ones = lambda seen: jnp.ones((len(seen), 1))  # noqa: E731
    policy = TargetPolicy(
        lambda seen, action: jnp.zeros(len(action)), ones, tabular(SWITCH).sample, tabular(SWITCH).mode
    )
    config = dataclasses.replace(QUICK, trace=1.0, trace_steps=length)
    table, target = prepare(config, data, 0.9, key), target_actions(config, data, policy, key)
    rows, program = on_device(config, table, target, trace_coefficients(config, data, table, policy, target))
    parameters = jax.tree.map(lambda leaf: leaf + 0.1, initial(key, program.sizes)[0])
    found = traced_backup(parameters, rows, jnp.asarray(table.starts), length, jnp.zeros(20, jnp.int32))
    raw = float(table.scales.centre) + float(table.scales.spread) * np.asarray(found)
    np.testing.assert_allclose(raw, reward @ 0.9 ** np.arange(length), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["retrace", "tree-backup"])
def test_values_of_the_chain_with_fewer_backups(kind, key):
    data = logged(chain(), np.full((2, 2), 0.5), 200, 20)
    config = dataclasses.replace(SMALL, steps=1500, trace=0.9, trace_kind=kind)
    fitted = fit_policy(config, data, with_log_prob(SWITCH), 0.9, key)
    np.testing.assert_allclose(fitted.v(np.eye(2), SWITCH), [4.21875, 5.78125], rtol=0.015)


@pytest.mark.slow
def test_traces_of_continuous_actions(key):
    config = dataclasses.replace(SMALL, trace=0.5, steps=1500, trace_steps=4)
    data = gaussian_log()
    action = np.asarray(data.action)[..., 0]
    data = data.replace(log_prob=-0.5 * (action / 1.5) ** 2 - np.log(1.5 * np.sqrt(2 * np.pi)))
    fitted = fit_policy(config, data, gaussian_policy(1.0), 0.9, key)
    states = np.array([[-1.0], [0.0], [1.0]])
    np.testing.assert_allclose(
        fitted.v(states, np.full((3, 1, 1), 1.0) + states[:, None] / 2), [9.5, 10.0, 10.5], rtol=0.06
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace": 1.5}, "fqe.trace: 1.5"),
        ({"trace": 0.5, "trace_kind": "sarsa"}, "fqe.trace-kind: unknown 'sarsa'"),
        ({"trace": 0.5, "trace_steps": 0}, "fqe.trace-steps: 0"),
        ({"trace": 0.5, "convention": "greedy-huber"}, "fqe.trace: 0.5 is not allowed with greedy-huber"),
    ],
)
def test_settings_of_traces(changes, message):
    with pytest.raises(InputError) as caught:
        dataclasses.replace(FQEConfig(), **changes).validate()
    assert str(caught.value).startswith(message)


def test_retrace_requires_log_probabilities(chain_log, key):
    with pytest.raises(InputError, match="log_prob: is missing in the log; Retrace requires it"):
        fit_policy(TRACED, chain_log.replace(log_prob=None), with_log_prob(SWITCH), 0.9, key)


class TestWholeNumbers:
    def test_numbers_of_states_are_names(self, key):
        """Ten states with random rewards and moves: neighbouring numbers have nothing in common."""
        rng = np.random.default_rng(2)
        rewards = rng.normal(size=(10, 2))
        world = Tabular(rng.dirichlet(np.full(10, 0.3), size=(10, 2)), rewards, np.full(10, 0.1), discount=0.9)
        policy = rng.dirichlet(np.ones(2), size=10)
        data = numbered(logged(world, np.full((10, 2), 0.5), 400, 30))
        config = dataclasses.replace(SMALL, steps=2500)
        fitted = fit_policy(config, data, table_policy(policy), 0.9, key)
        exact = policy_values(world, policy)
        np.testing.assert_allclose(fitted.v(np.arange(10), policy.astype(np.float32)), exact, atol=0.15 * np.ptp(exact))
        assert fitted.scales.levels == (0, 16)

    @pytest.mark.parametrize(
        ("observation", "levels"),
        [
            (np.array([[0, 3], [7, 1]]), (0, 16)),
            (np.array([[0.0, 3.0], [-2.0, 1.0]])[..., None], (-2, 16)),
            (np.array([[0, 499], [7, 1]]), (0, 512)),
            (np.array([[0, 5000], [7, 1]]), None),
            (np.array([[0.5, 3.0], [7.0, 1.0]]), None),
            (np.array([[[0, 1], [3, 2]], [[7, 1], [0, 0]]]), None),
        ],
    )
    def test_which_are_coded(self, observation, levels, key):
        data = LoggedData.from_arrays(
            observation=observation,
            action=np.zeros((2, 2), int),
            reward=np.ones((2, 2)),
            final_observation=observation[:, 0],
        )
        config = dataclasses.replace(QUICK, held_out=0.0)
        assert prepare(config, data, 0.9, key).scales.levels == levels
        assert prepare(dataclasses.replace(config, one_hot=False), data, 0.9, key).scales.levels is None

    def test_coded_rows_are_the_features_of_queries(self, key):
        """The product with a row of the weights is that with one-hot features, with the clock after them."""
        data = numbered(logged(chain(), np.full((2, 2), 0.5), 60, 6))
        config = dataclasses.replace(QUICK, time_feature=True)
        table, target = prepare(config, data, 0.9, key), target_actions(config, data, table_policy(SWITCH), key)
        rows, program = on_device(config, table, target)
        parameters = jax.tree.map(lambda leaf: leaf + 0.1, initial(key, program.sizes)[0])
        coded = action_value(parameters, rows.inputs(jnp.arange(6)), rows.action[:6])
        dense = table.scales.features(jnp.asarray(data.observation)[0], jnp.arange(6))
        np.testing.assert_allclose(coded, action_value(parameters, dense, rows.action[:6]), rtol=1e-5)
