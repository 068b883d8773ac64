"""Errors on held-out policies: exact without noise of returns, and those of a real evaluator in a tiny study."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.assessment.behaviour import part_of
from evarl.errors import FileError, InputError
from evarl.evaluation.held_out import folds, held_out_errors, squared_error, truth_noise
from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.learning.base_policies import build_assessment
from evarl.learning.configuration import with_settings
from evarl.learning.played import RecordSize, play_policies, visited_places
from evarl.learning.presets import preset
from evarl.runs.played import load_played, save_played
from evarl.storage.tensors import save_tree

TINY = {
    "updates": 2,
    "environments": 2,
    "steps": 8,
    "horizon": 6,
    "agent.hidden_sizes": [8],
    "evaluator_mode": "colearned",
    "evaluator.network.kind": "linear",
    "assessment.behaviour": "returns+fingerprint",
}


def test_noise_of_returns_averages_out_of_the_squared_error():
    """V = 1, V̂ = 0.5 and four returns V ± 1, all 16 outcomes alike: the mean is (V − V̂)²; a mean's square has a variance more."""
    returns = 1.0 + np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    error = returns - 0.5
    assert squared_error(error).mean() == 0.25
    assert (error.mean(axis=1) ** 2).mean() == 0.25 + 1 / 4


def test_every_seed_is_held_out_once():
    assert folds(9, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_states_are_drawn_from_both_halves_of_the_episodes_before_their_end():
    """Lengths 1, 4, 2 and 3: all steps of a half are equally likely, so that 4 of 5 states are of the longer one."""
    length = np.array([1, 4, 2, 3])
    alive = np.arange(4)[:, None] < length[None]
    step, episode = visited_places(jnp.asarray(alive), 4000, jax.random.PRNGKey(0))
    assert (np.asarray(step) < length[np.asarray(episode)]).all()
    first, second = np.asarray(episode).reshape(2, -1)
    assert set(first) == {0, 1}
    assert set(second) == {2, 3}
    deviation = (0.16 / 2000) ** 0.5
    assert abs((first == 1).mean() - 0.8) < 5 * deviation
    assert abs((second == 3).mean() - 0.6) < 5 * (0.24 / 2000) ** 0.5


def test_halves_must_be_equal():
    with pytest.raises(InputError, match="episodes: 3 is not allowed"):
        RecordSize(1, 3, 2).validate()


@pytest.fixture(scope="module")
def study():
    config = with_settings(preset("navigation"), TINY).resolved()
    return config, play_policies(config, build_assessment(config, print), RecordSize(3, 4, 6), [0, 1, 2])


@pytest.mark.slow
def test_records_of_whole_episodes(study):
    """In six steps of −1.2 to 0 nobody arrives, so that all returns are sums of six rewards; at the start they are the least."""
    _, played = study
    assert played.visited.updates == [0, 1, 2]
    assert played.start.target.shape == (3, 3, 4)
    assert played.visited.policies.target.shape == (3, 3, 6)
    np.testing.assert_array_equal(played.start.observation, np.full((3, 3, 4, 2), 0.05, np.float32))
    assert (played.start.target < -4.0).all()
    assert (played.visited.policies.target < 0.0).all()
    np.testing.assert_allclose(played.start.behaviour.pathwise["fingerprint"].sum(axis=-1), 1.0, rtol=1e-5)
    halves = played.start.target.astype(np.float64).reshape(3, 3, 2, 2).mean(axis=3)
    noise = ((halves[:, :, 0] - halves[:, :, 1]) ** 2 / 4).mean(axis=1)
    np.testing.assert_allclose(truth_noise(played)["start"], noise)


@pytest.mark.slow
def test_errors_on_policies_of_other_seeds(study):
    config, played = study
    returns = with_settings(config, {"assessment.behaviour": "returns"})
    errors = held_out_errors(played, returns, [2], steps=5)
    assert errors.keys() == {"start", "visited"}
    for states, records in (("start", played.start), ("visited", played.visited.policies)):
        assert errors[states].keys() == {EVALUATOR, SHUFFLED, BLIND, CONSTANT}
        target = np.asarray(records.target, np.float64)
        difference = target[2].reshape(3, 2, -1).mean(axis=2) - target[:2].mean()
        np.testing.assert_allclose(errors[states][CONSTANT], [difference.prod(axis=1)], rtol=1e-4)
        assert all(np.isfinite(error).all() for error in errors[states].values())
        assert (errors[states][EVALUATOR] != errors[states][SHUFFLED]).any()
    assert part_of(played.start.behaviour, "returns").pathwise is None


def test_files_of_records(study, tmp_path):
    config, played = study
    file, size = tmp_path / "played.safetensors", RecordSize(3, 4, 6)
    save_played(file, played)
    read = load_played(file, config, played.visited.assessment, size, 3)
    assert read.visited.updates == played.visited.updates
    jax.tree.map(
        np.testing.assert_array_equal, (read.visited.policies, read.start), (played.visited.policies, played.start)
    )
    with pytest.raises(FileError, match="must be"):
        load_played(file, config, played.visited.assessment, size, 2)
    save_tree(file, {}, {"kind": "assessment"})
    with pytest.raises(FileError, match="does not hold a record of policies"):
        load_played(file, config, played.visited.assessment, size, 3)
