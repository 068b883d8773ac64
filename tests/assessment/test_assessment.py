"""The driver's test: what cannot be built, returns worked out by hand, two worlds with a mapping, and keeping it on disk."""

import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.assessment.assessment import Assessment
from evarl.assessment.configuration import AssessmentConfig
from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import FileError, InputError
from evarl.runs.assessments import load_assessment, save_assessment
from evarl.simulation import AssessmentRollout
from evarl.worlds.navigation import Navigation, open_field
from evarl.worlds.registry import make_world
from evarl.worlds.tabular import Tabular, chain

RIGHT, UP = 0, 1
CORNERS = np.array([[0.2, 0.2], [0.8, 0.2]], np.float32)


def always(action):
    def act(key, observation):
        return jnp.full(observation.shape[0], action, jnp.int32), jnp.zeros(observation.shape[0])

    return act


def returns(assessment, act, deployment, replicates=1, seed=0):
    showing = assessment.take(act, jax.random.PRNGKey(seed), replicates, deployment)
    return showing, np.asarray(showing.rewards_to_go(assessment.discount)[0])


# --- What cannot be built


@pytest.mark.parametrize("horizon", [0, -3])
def test_a_horizon_of_nothing_is_refused(horizon):
    with pytest.raises(InputError, match=f"assessment.horizon: {horizon} is not allowed; must be at least 1"):
        Assessment(open_field(), CORNERS, horizon)
    with pytest.raises(InputError, match=f"assessment.horizon: {horizon} is not allowed; must be at least 1"):
        Assessment(make_world("gymnasium/CartPole-v1"), (1,), horizon)


@pytest.mark.parametrize(
    "states", [np.zeros((0, 2), np.float32), np.float32(0.5), {}, {"x": np.zeros(2), "y": np.zeros(3)}]
)
def test_no_scenarios_are_refused(states):
    with pytest.raises(InputError, match=r"assessment.start-states: .* must be k ≥ 1 stacked states"):
        Assessment(open_field(), states, 3)


@pytest.mark.parametrize("seeds", [(), (3, -1)])
def test_reset_seeds_that_are_none_are_refused(seeds):
    with pytest.raises(InputError, match="must be k ≥ 1 reset seeds of at least 0"):
        Assessment(make_world("gymnasium/CartPole-v1"), seeds, 3)


@pytest.mark.parametrize(
    ("states", "got"),
    [
        (np.zeros((2, 3), np.float32), "float32[3]"),
        (np.zeros(2, np.float32), "float32[]"),
        (np.zeros((2, 2), np.int32), "int32[2]"),
        ({"x": np.zeros((2, 2), np.float32)}, "float32[2]"),
        ((CORNERS, CORNERS), "float32[2], float32[2]"),
    ],
    ids=["shape", "rank", "dtype", "structure", "leaves"],
)
def test_states_of_another_world_are_refused(states, got):
    with pytest.raises(InputError) as error:
        Assessment(open_field(), states, 3)
    wanted = f"assessment.start-states: {got} is not allowed; a state of navigation/open-field is float32[2]"
    assert str(error.value) == wanted


def test_an_observation_that_the_policy_does_not_know_is_refused():
    assessment = Assessment(chain(), np.array([0, 1], np.int32), 3)
    with pytest.raises(InputError) as error:
        assessment.check_compatible(make_world("gymnax/CartPole-v1"))
    said = str(error.value)
    assert "tabular/chain shows float32[2], gymnax/CartPole-v1 float32[4] in the observation space" in said
    assert "map_observation" in said


def test_an_observation_of_another_dtype_is_refused():
    assessment = Assessment(open_field(), CORNERS, 3, map_observation=lambda x: x > 0.5)
    with pytest.raises(InputError, match=re.escape("shows bool[2], navigation float32[2] in the observation space")):
        assessment.check_compatible(Navigation())


def test_an_action_that_the_world_does_not_know_is_refused():
    assessment = Assessment(chain(), np.array([0, 1], np.int32), 3)
    with pytest.raises(InputError) as error:
        assessment.check_compatible(Navigation())
    said = str(error.value)
    assert "tabular/chain takes Discrete(2), navigation Discrete(4) as action space" in said
    assert "map_action" in said
    mapped = Assessment(chain(), np.array([0, 1], np.int32), 3, map_action=lambda action: action % 2)
    mapped.check_compatible(Navigation())


@pytest.mark.parametrize(
    ("world", "text", "message"),
    [
        ("navigation", "0.1", "a state of navigation has 2 numbers"),
        ("tabular/chain", "0 2", "[0, 2] is not allowed; tabular/chain has states 0 to 1"),
        ("tabular/chain", "0.5", "must be one whole number for each state"),
        ("gymnax/Asterix-MinAtar", "1 2", "is more than a list of numbers"),
    ],
)
def test_written_states_that_do_not_fit_are_refused(world, text, message):
    with pytest.raises(InputError) as error:
        given_states(make_world(world), parse_start_states(text))
    assert message in str(error.value)


def test_written_states():
    states = given_states(Navigation(), parse_start_states("0.2,0.2  0.8,0.2"))
    np.testing.assert_array_equal(states, CORNERS)
    assert states.dtype == np.float32
    states = given_states(chain(), parse_start_states("1 0 1"))
    assert states.tolist() == [1, 0, 1]
    assert states.dtype == np.int32


def test_only_one_source_of_start_states():
    with pytest.raises(InputError, match="only one of them is allowed, since each determines the start states"):
        AssessmentConfig(start_states="1 2", file="some.safetensors").validate()


# --- Returns by hand


def test_always_right_on_the_open_field():
    """Steps of 0.4, clipped at 1. From (0.2, 0.2): x = 0.6, 1, 1, and from (0.8, 0.9): 1 at once, 0.1 from the goal.
    That is beyond its radius of 0.08, so nothing ends."""
    starts = np.array([[0.2, 0.2], [0.8, 0.9]], np.float32)
    assessment = Assessment(open_field(), starts, 3)
    showing, total = returns(assessment, always(RIGHT), Navigation(), replicates=2)
    distance = [np.hypot(0.3, 0.7), np.hypot(0.1, 0.7), np.hypot(0.1, 0.7)]
    np.testing.assert_allclose(total, [[-sum(distance)] * 2, [-0.3] * 2], rtol=1e-5)
    to_go = showing.rewards_to_go(1.0)[:, 0, 0]
    np.testing.assert_allclose(to_go, [-sum(distance), -sum(distance[1:]), -distance[2]], rtol=1e-5)
    to_go = showing.rewards_to_go(0.5)[:, 0, 0]
    np.testing.assert_allclose(to_go[0], -(distance[0] + 0.5 * distance[1] + 0.25 * distance[2]), rtol=1e-5)
    np.testing.assert_allclose(showing.observation[:, 0, 0, 0], [0.2, 0.6, 1.0], rtol=1e-6)
    assert showing.observation.shape == (3, 2, 2, 2)
    assert showing.alive.all()
    np.testing.assert_array_equal(np.asarray(assessment.observations()), starts)


def test_nothing_counts_after_the_end():
    """From (0.5, 0.9) a step right ends at the goal itself: −0 + 1. Three steps are asked for, one is counted."""
    assessment = Assessment(open_field(), np.array([[0.5, 0.9], [0.5, 0.1]], np.float32), 3)
    showing, total = returns(assessment, always(RIGHT), Navigation())
    np.testing.assert_allclose(total[0], [1.0], atol=1e-6)
    assert showing.alive[:, 0, 0].tolist() == [True, False, False]
    assert showing.alive[:, 1, 0].tolist() == [True, True, True]
    np.testing.assert_array_equal(showing.reward[1:, 0, 0], [0.0, 0.0])
    assert total[1] < -2.0


def test_replicates_of_a_scenario_are_neighbours_and_independent():
    """A coin as policy in the chain: rewards differ between replicates, and each replicate begins at its own scenario."""

    def act(key, observation):
        return jax.random.bernoulli(key, 0.5, observation.shape[:1]).astype(jnp.int32), jnp.zeros(observation.shape[0])

    assessment = Assessment(chain(), np.array([0, 1], np.int32), 4)
    showing, total = returns(assessment, act, chain(), replicates=50)
    np.testing.assert_array_equal(showing.observation[0], np.broadcast_to(np.eye(2)[:, None], (2, 50, 2)))
    assert np.unique(total[0]).size > 2
    assert abs(total.mean() - 2.0) < 0.4  # E = 0 + ½ + ½ + ½ and 1 + ½ + ½ + ½


def test_two_worlds_with_permuted_states_and_actions_are_one():
    """An MDP and the same with its states and actions renamed: with the mappings, a policy shows the same in both."""
    rng = np.random.default_rng(0)
    S, A = 3, 2
    states, actions = np.array([2, 0, 1]), np.array([1, 0])  # new name of each state and action
    successor, rewards = rng.integers(0, S, (S, A)), rng.normal(size=(S, A))
    one = Tabular(np.eye(S)[successor], rewards, np.ones(S) / S, name="one")
    renamed, moved = np.zeros((S, A), int), np.zeros((S, A))
    for s, a in np.ndindex(S, A):
        renamed[states[s], actions[a]], moved[states[s], actions[a]] = states[successor[s, a]], rewards[s, a]
    other = Tabular(np.eye(S)[renamed], moved, np.ones(S) / S, name="other")

    def act(key, observation):
        """Depends on the state as the deployment world names it."""
        return jnp.array([0, 1, 1])[observation.argmax(axis=1)], jnp.zeros(observation.shape[0])

    starts = np.array([0, 1, 2], np.int32)
    plain = Assessment(one, starts, 4)
    mapped = Assessment(
        other,
        states[starts].astype(np.int32),
        4,
        map_observation=lambda shown: shown[states],
        map_action=lambda action: jnp.asarray(actions)[action],
    )
    mapped.check_compatible(one)
    (showing, total), (seen, got) = returns(plain, act, one), returns(mapped, act, one)
    np.testing.assert_allclose(got, total, rtol=1e-6)
    np.testing.assert_array_equal(seen.observation, showing.observation)
    np.testing.assert_array_equal(seen.action, showing.action)
    np.testing.assert_array_equal(mapped.observations(), plain.observations())
    unmapped = Assessment(other, states[starts].astype(np.int32), 4)
    assert np.abs(returns(unmapped, act, one)[1] - total).max() > 1e-3
    by_hand = []
    for s in starts:
        value = 0.0
        for _ in range(4):
            a = [0, 1, 1][s]
            value, s = value + rewards[s, a], successor[s, a]
        by_hand.append(value)
    np.testing.assert_allclose(total[:, 0], by_hand, rtol=1e-5)


# --- On the host


def test_gymnasium_returns_are_those_of_a_plain_loop():
    """Pushing away from where the pole leans ends the episode within the horizon; what follows is no longer counted."""
    world = make_world("gymnasium/CartPole-v1")
    assessment = Assessment(world, (3, 7), 15, 0.9)

    def act(key, observation):
        push = (observation[:, 2] < 0.05).astype(jnp.int32)
        return push, jnp.full(push.shape, -0.5)

    showing = assessment.take(act, jax.random.PRNGKey(0), 2)
    environment = gymnasium.make("CartPole-v1").unwrapped
    alive, total, first = np.zeros((15, 2), bool), np.zeros(2), []
    for i, seed in enumerate((3, 7)):
        observation, _ = environment.reset(seed=seed)
        first.append(observation)
        for t in range(15):
            alive[t, i] = True
            observation, reward, terminated, _, _ = environment.step(int(observation[2] < 0.05))
            total[i] += 0.9**t * reward
            if terminated:
                break
    environment.close()
    assert not alive.all(), "some rewards lie after the end and must not count"
    np.testing.assert_array_equal(showing.alive, np.repeat(alive[:, :, None], 2, axis=2))
    np.testing.assert_allclose(showing.rewards_to_go(0.9)[0], np.repeat(total[:, None], 2, axis=1), rtol=1e-5)
    np.testing.assert_allclose(assessment.observations(), np.stack(first), rtol=1e-6)
    np.testing.assert_allclose(showing.observation[0, :, 1], np.stack(first), rtol=1e-6)
    assert showing.log_prob.shape == showing.action.shape == (15, 2, 2)


# --- On disk


def test_an_assessment_survives_the_disk(tmp_path):
    assessment = Assessment(open_field(horizon=20), CORNERS, 3, 0.9)
    save_assessment(tmp_path / "assessment.safetensors", assessment)
    back = load_assessment(tmp_path / "assessment.safetensors")
    np.testing.assert_array_equal(np.asarray(back.start_states), CORNERS)
    assert (back.horizon, back.discount, back.world.name, back.world.horizon) == (3, 0.9, "navigation/open-field", 20)
    one, other = (returns(x, always(UP), Navigation())[1] for x in (assessment, back))
    np.testing.assert_array_equal(one, other)


def test_states_that_are_trees_survive_the_disk(tmp_path):
    world = make_world("gymnax/Asterix-MinAtar", 50)
    starts = jax.vmap(world.initial)(jax.random.split(jax.random.PRNGKey(0), 3))
    save_assessment(tmp_path / "assessment.safetensors", Assessment(world, starts, 4))
    back = load_assessment(tmp_path / "assessment.safetensors")
    assert back.scenarios == 3
    for one, other in zip(jax.tree.leaves(starts), jax.tree.leaves(back.start_states), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_an_assessment_on_the_host_survives_the_disk(tmp_path):
    save_assessment(
        tmp_path / "assessment.safetensors", Assessment(make_world("gymnasium/CartPole-v1"), (3, 7), 15, 0.9)
    )
    back = load_assessment(tmp_path / "assessment.safetensors")
    assert (back.start_states.tolist(), back.horizon, back.discount) == ([3, 7], 15, 0.9)


def test_mappings_must_be_given_again(tmp_path):
    path = tmp_path / "assessment.safetensors"
    mappings = {"map_action": lambda action: action % 2}
    save_assessment(path, Assessment(chain(), np.array([0, 1], np.int32), 3, **mappings))
    with pytest.raises(InputError, match="was saved with mappings"):
        load_assessment(path)
    assert load_assessment(path, **mappings).map_action is mappings["map_action"]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "another kind"])
def test_a_damaged_file_is_one_clear_error(damage, tmp_path):
    path = tmp_path / "assessment.safetensors"
    save_assessment(path, Assessment(open_field(), CORNERS, 3))
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[-1] ^= 1
    path.write_bytes({"empty": b"", "cut": data[:-4]}.get(damage, data))
    if damage == "missing":
        path.unlink()
    if damage == "another kind":
        from evarl.storage.tensors import save_tree

        save_tree(path, {"x": np.zeros(2)}, {"kind": "policy"})
    with pytest.raises(FileError, match=r"assessment\.safetensors") as error:
        load_assessment(path)
    assert "\n" not in str(error.value)


def test_rewards_to_go_by_hand():
    reward = jnp.asarray(np.array([[[1.0]], [[2.0]], [[4.0]]], np.float32))
    showing = AssessmentRollout(reward, reward, reward, reward, jnp.ones_like(reward, bool))
    np.testing.assert_allclose(showing.rewards_to_go(0.5)[:, 0, 0], [3.0, 4.0, 4.0])
