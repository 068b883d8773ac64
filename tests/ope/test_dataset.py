"""Logged data: what is refused and in which words, what survives the disk, and what Minari holds."""

import warnings

import numpy as np
import pytest

from evarl.errors import FileError, InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.minari import from_minari


def fields(**changes):
    """Two trajectories, of 3 steps and of 2."""
    plain = {
        "observation": np.arange(12.0).reshape(2, 3, 2),
        "action": np.array([[0, 1, 0], [1, 1, 0]]),
        "reward": np.ones((2, 3)),
        "log_prob": np.log(np.full((2, 3), 0.5)),
        "terminated": np.array([[False, False, True], [False, False, False]]),
        "truncated": np.array([[False, False, False], [False, True, False]]),
        "mask": np.array([[True, True, True], [True, True, False]]),
        "final_observation": np.zeros((2, 2)),
    }
    return plain | changes


def at(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


PLAIN = fields()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.ones(3)}, "reward: has shape (3,); must be [N, T]"),
        ({"log_prob": np.zeros((2, 2))}, "log_prob: has shape (2, 2); must be (2, 3)"),
        ({"mask": np.ones((3, 2), bool)}, "mask: has shape (3, 2); must be (2, 3)"),
        ({"observation": np.zeros((2, 4, 2))}, "observation: has shape (2, 4, 2); must begin with (2, 3)"),
        ({"final_observation": np.zeros((2, 3))}, "final_observation: has shape (2, 3); must be (2, 2)"),
        ({"action": np.zeros((2, 3, 1), int)}, "action: integers of shape (2, 3, 1); must be (2, 3)"),
        ({"action": at(PLAIN["action"], (1, 0), -1)}, "action: -1 in trajectory 1, step 0 is negative"),
        ({"reward": at(PLAIN["reward"], (0, 2), np.nan)}, "reward: is not finite in trajectory 0, step 2"),
        (
            {"observation": at(PLAIN["observation"], (1, 1, 0), np.inf)},
            "observation: is not finite in trajectory 1, step 1",
        ),
        ({"reward": at(PLAIN["reward"], (1, 2), np.nan)}, "reward: is not finite in trajectory 1, step 2"),
        (
            {"final_observation": at(np.zeros((2, 2)), (1, 1), np.nan)},
            "final_observation: is not finite in trajectory 1",
        ),
        ({"log_prob": at(PLAIN["log_prob"], (0, 1), 0.5)}, "log_prob: 0.5 in trajectory 0, step 1 is above 0"),
        ({"mask": at(PLAIN["mask"], (0, 1), False)}, "mask: trajectory 0 has a gap before step 2"),
        ({"mask": np.zeros((2, 3), bool)}, "mask: trajectory 0 has no first step"),
        (
            {"terminated": at(PLAIN["terminated"], (0, 0), True)},
            "terminated: trajectory 0 goes on after step 0",
        ),
        (
            {"truncated": at(PLAIN["truncated"], (1, 0), True)},
            "truncated: trajectory 1 goes on after step 0",
        ),
        (
            {"truncated": at(PLAIN["truncated"], (0, 2), True)},
            "truncated: trajectory 0 is both terminated and truncated at step 2",
        ),
        ({"mask": np.full((2, 3), 2)}, "mask: has values other than 0 and 1"),
        ({"reward": np.full((2, 3), "a")}, "reward: has type <U1; must be numbers"),
        ({"rewards": 1}, "rewards: is not a field of logged data"),
        ({"final_observation": None}, "final_observation: is missing"),
    ],
)
def test_the_offending_field_is_named(changes, message):
    with pytest.raises(InputError) as caught:
        LoggedData.from_arrays(**fields(**changes))
    assert str(caught.value).startswith(message)


def test_densities_may_be_above_one():
    data = LoggedData.from_arrays(**fields(action=np.zeros((2, 3, 1)), log_prob=np.full((2, 3), 2.0)))
    assert not data.discrete


@pytest.mark.parametrize("changes", [{}, {"log_prob": None}, {"action": np.full((2, 3, 4), 0.5)}])
def test_saved_and_loaded_is_the_same(tmp_path, changes):
    data = LoggedData.from_arrays(**fields(**changes))
    data.save(tmp_path / "data.safetensors")
    again = LoggedData.load(tmp_path / "data.safetensors")
    for name in LoggedData.__dataclass_fields__:
        here, there = getattr(data, name), getattr(again, name)
        assert (here is None and there is None) or (here.dtype == there.dtype and np.array_equal(here, there))


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "data.safetensors"
    LoggedData.from_arrays(**PLAIN).save(path)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(FileError, match="checksum"):
        LoggedData.load(path)


def test_episodes_of_various_lengths_are_padded():
    whole = LoggedData.from_arrays(**PLAIN)
    names = ("observation", "action", "reward", "log_prob")
    episodes = [{name: PLAIN[name][i, :length] for name in names} for i, length in enumerate((3, 2))]
    ends = [{"terminated": True}, {"truncated": True}]
    episodes = [e | end | {"final_observation": np.zeros(2)} for e, end in zip(episodes, ends, strict=True)]
    data = LoggedData.from_episodes(episodes)
    assert np.array_equal(data.mask, whole.mask)
    assert np.array_equal(data.terminated, whole.terminated)
    assert np.array_equal(data.truncated, whole.truncated)
    for name in names:
        field, wanted = getattr(data, name), getattr(whole, name)
        assert np.array_equal(field[whole.mask], wanted[whole.mask])
    with pytest.raises(InputError, match="action: is missing in episode 1"):
        LoggedData.from_episodes([episodes[0], {k: v for k, v in episodes[1].items() if k != "action"}])
    with pytest.raises(InputError, match=r"log_prob: episode 0 has shape \(2,\); must have 3 steps"):
        LoggedData.from_episodes([episodes[0] | {"log_prob": np.zeros(2)}])
    with pytest.raises(InputError, match="episodes: there are none"):
        LoggedData.from_episodes([])


def episode(length=2, **changes):
    plain = {
        "observation": np.zeros((length, 1)),
        "action": np.zeros(length, int),
        "reward": np.ones(length),
        "final_observation": np.zeros(1),
    }
    return plain | changes


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        (
            [episode(), episode(log_prob=np.zeros(2))],
            "log_prob: is missing in episode 0; must be in all episodes or in none",
        ),
        (
            [episode(log_prob=np.zeros(2)), episode()],
            "log_prob: is missing in episode 1; must be in all episodes or in none",
        ),
        ([episode(terminal=True)], "episode 0: unknown 'terminal'; did you mean 'terminated'?"),
        (
            [episode(terminated=[True, False])],
            "terminated: episode 0 goes on after step 0; must be set at the last step only",
        ),
        (
            [episode(truncated=[False, False, True])],
            "truncated: episode 0 has shape (3,); must be one flag, or one for each",
        ),
        ([{k: v for k, v in episode().items() if k != "reward"}], "reward: is missing in episode 0"),
        (
            [{k: v for k, v in episode().items() if k != "final_observation"}],
            "final_observation: is missing in episode 0",
        ),
        (
            [episode(), episode(final_observation=np.zeros(3))],
            "final_observation: episode 1 has shape (3,); must be (1,)",
        ),
        (
            [episode(), episode(observation=np.zeros((2, 3)))],
            "observation: episode 1 has shape (2, 3); must be (L, ...) as in",
        ),
    ],
)
def test_episodes_that_are_refused(episodes, message):
    with pytest.raises(InputError) as caught:
        LoggedData.from_episodes(episodes)
    assert str(caught.value).startswith(message)


def test_one_flag_and_one_for_each_step_are_the_same():
    for flags in (True, [True], [False, True], np.array([0, 1])):
        assert LoggedData.from_episodes([episode(terminated=flags)]).terminated.tolist() == [[False, True]]


def test_numbers_keep_their_precision():
    """Rewards of 1e7 with noise in the last digits, and whole numbers that float32 does not have."""
    reward = 1e7 + np.random.default_rng(0).normal(size=(2, 3))
    whole = np.full((2, 3, 2), 2**24 + 1)
    data = LoggedData.from_arrays(**fields(reward=reward, observation=whole, final_observation=whole[:, 0]))
    assert np.array_equal(data.reward, reward)
    assert np.array_equal(data.observation, whole)
    assert data.log_prob.dtype == np.float64
    assert np.issubdtype(data.observation.dtype, np.integer)


def test_steps_that_no_trajectory_has_are_left_out():
    wide = {
        name: np.pad(PLAIN[name], [(0, 0), (0, 4)] + [(0, 0)] * (PLAIN[name].ndim - 2))
        for name in PLAIN
        if name != "final_observation"
    }
    assert LoggedData.from_arrays(**PLAIN | wide).length == 3


def test_cut_trajectories():
    """Before T, neither flag or a time limit is a cut; an end is not, and T is not."""
    whole = LoggedData.from_episodes(
        [episode(3), episode(2, terminated=True), episode(2, truncated=True), episode(2), episode(3, truncated=True)]
    )
    assert whole.cut.tolist() == [False, False, True, True, False]


@pytest.fixture
def minari_data(tmp_path, monkeypatch):
    """A real Minari data set on disk: a random walk of two episodes."""
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari")
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=np.arange(2.0 * (length + 1), dtype=np.float32).reshape(length + 1, 2),
            actions=np.arange(length) % 2,
            rewards=np.arange(1.0, length + 1),
            terminations=[False] * (length - 1) + [length == 2],
            truncations=[False] * (length - 1) + [length == 3],
            infos={"log_prob": np.log(np.full(length + 1, 0.25))},
        )
        for length in (3, 2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there is no environment to recover
        return create(minari, gymnasium, buffers)


def create(minari, gymnasium, buffers):
    return minari.create_dataset_from_buffers(
        "walk/test-v0",
        buffers,
        algorithm_name="random",
        author="test",
        author_email="test@example.org",
        code_permalink="https://example.org",
        description="a walk",
        observation_space=gymnasium.spaces.Box(-100, 100, (2,), np.float32),
        action_space=gymnasium.spaces.Discrete(2),
    )


def test_minari(minari_data):
    data = from_minari("walk/test-v0", log_prob="log_prob")
    assert data.mask.sum(axis=1).tolist() == [3, 2]
    assert data.reward[0].tolist() == [1, 2, 3]
    assert data.final_observation.tolist() == [[6, 7], [4, 5]]
    assert data.terminated.any(axis=1).tolist() == [False, True]
    assert data.truncated.any(axis=1).tolist() == [True, False]
    assert np.allclose(data.log_prob[data.mask], np.log(0.25))
    same = from_minari(minari_data, log_prob=lambda observation, action: np.log(np.full(len(action), 0.25)))
    assert np.array_equal(same.log_prob, data.log_prob)
    assert from_minari(minari_data).log_prob is None
    with pytest.raises(InputError, match="have no 'logp'; must be one of: log_prob"):
        from_minari(minari_data, log_prob="logp")
    with pytest.raises(InputError, match="minari: cannot load 'walk/other-v0'"):
        from_minari("walk/other-v0")
