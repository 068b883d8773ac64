"""Logs of other programs: flat arrays, tables and files, what is made of them, and what is said of malformed ones."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from evarl import ope
from evarl.errors import FileError, InputError

N, T = 40, 6
ENDINGS = ("csv", "parquet", "npz", "hdf5", "safetensors")
POLICY = ope.TargetPolicy.from_probabilities(lambda seen: np.where(seen[:, :1] > 0, [0.75, 0.25], [0.25, 0.75]))


def flat_log(seed=0):
    """Trajectories of various lengths in D4RL's layout; every third ends by a time limit, the last is cut."""
    rng = np.random.default_rng(seed)
    lengths = np.where(np.arange(N) % 3 == 0, T, rng.integers(1, T + 1, N))
    count, last = int(lengths.sum()), np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(count, bool), np.zeros(count, bool)
    terminals[last], timeouts[last] = np.arange(N) % 3 != 0, np.arange(N) % 3 == 0
    terminals[-1] = timeouts[-1] = False
    seen = rng.normal(size=(count, 2)).astype(np.float32)
    chance = rng.uniform(0.3, 0.7, count)
    return {
        "observations": seen,
        "actions": rng.integers(2, size=count),
        "rewards": rng.normal(size=count),
        "terminals": terminals,
        "timeouts": timeouts,
        "next_observations": (seen + rng.normal(size=(count, 2))).astype(np.float32),
        "infos/action_log_probs": np.log(chance),
    }


def as_table(flat):
    ends = flat["terminals"] | flat["timeouts"]
    episode = np.concatenate([[0], np.cumsum(ends)[:-1]])
    first = np.flatnonzero(np.diff(episode, prepend=-1))
    columns = {"episode": [f"e{number}" for number in episode], "step": np.arange(len(episode)) - first[episode]}
    for i in range(2):
        columns[f"observation_{i}"] = flat["observations"][:, i].astype(float)
        columns[f"next_observation_{i}"] = flat["next_observations"][:, i].astype(float)
    columns |= {"action": flat["actions"], "reward": flat["rewards"], "log_prob": flat["infos/action_log_probs"]}
    columns |= {"terminated": flat["terminals"], "truncated": flat["timeouts"]}
    return pa.table(columns)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same log in every kind of file; rows of the table are in no order."""
    import h5py

    folder, flat = tmp_path_factory.mktemp("logs"), flat_log()
    table = as_table(flat)
    pa.parquet.write_table(table, folder / "log.parquet")
    texts = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
    (folder / "log.csv").write_text("\n".join(texts) + "\n")
    np.savez(folder / "log.npz", **flat)
    with h5py.File(folder / "log.hdf5", "w") as file:
        for name, array in flat.items():
            file[name] = array
        file["infos/qpos"] = np.zeros(3)
    ope.LoggedData.from_flat(flat).save(folder / "log.safetensors")
    return folder


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_log_to_the_last_bit(files, ending):
    expected, found = ope.LoggedData.from_flat(flat_log()), ope.read(files / f"log.{ending}")
    for name in ("observation", "action", "reward", "log_prob", "terminated", "truncated", "mask", "final_observation"):
        one, other = getattr(expected, name), getattr(found, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_every_format_gives_the_same_estimates_to_the_last_bit(files):
    settings = ope.Settings(cuts="model", fqe=ope.FQEConfig(steps=20, hidden_sizes=(4,)), resamples=20)
    found = [
        ope.estimate(ope.Log(ope.read(files / f"log.{ending}"), 0.9), POLICY, settings, ("fqe", "pdis"))
        for ending in ENDINGS
    ]
    for name in ("fqe", "pdis"):
        assert len({(one[name].value, one[name].effective_sample_size) for one in found}) == 1


def test_flat_logs_are_the_episodes_that_they_were_made_of():
    flat = flat_log()
    bounds = np.split(np.arange(len(flat["rewards"])), np.flatnonzero(flat["terminals"] | flat["timeouts"])[:] + 1)
    episodes = [
        {
            "observation": flat["observations"][rows],
            "action": flat["actions"][rows],
            "reward": flat["rewards"][rows],
            "log_prob": flat["infos/action_log_probs"][rows],
            "terminated": flat["terminals"][rows[-1]],
            "truncated": flat["timeouts"][rows[-1]],
            "final_observation": flat["next_observations"][rows[-1]],
        }
        for rows in bounds
        if len(rows)
    ]
    expected, found = ope.LoggedData.from_episodes(episodes), ope.LoggedData.from_flat(flat)
    for name in ("observation", "action", "reward", "log_prob", "terminated", "truncated", "mask", "final_observation"):
        np.testing.assert_array_equal(getattr(expected, name), getattr(found, name), err_msg=name)


def small(**changes):
    """Two trajectories: one terminates after two steps, one is stopped by a time limit after two."""
    flat = {
        "observations": np.arange(4.0)[:, None],
        "actions": np.array([0, 1, 0, 1]),
        "rewards": np.array([1.0, 2.0, 3.0, 4.0]),
        "terminals": np.array([0, 1, 0, 0]),
        "timeouts": np.array([0, 0, 0, 1]),
    }
    return {name: value for name, value in (flat | changes).items() if value is not None}


def test_without_final_observations_the_last_one_stands_for_it_and_a_warning_says_so():
    with pytest.warns(
        ope.MissingFinalObservation, match=r"in 1 of 2 trajectories that did not terminate, first in traj.* 1"
    ):
        data = ope.LoggedData.from_flat(small())
    assert data.final_observation.ravel().tolist() == [1.0, 3.0]
    assert data.truncated.tolist() == [[False, False], [False, True]]


def test_the_last_step_can_be_left_out_instead():
    with pytest.warns(ope.MissingFinalObservation, match="their last steps are left out"):
        data = ope.LoggedData.from_flat(small(), missing_final="drop")
    assert data.mask.tolist() == [[True, True], [True, False]]
    assert data.final_observation.ravel().tolist() == [1.0, 3.0]
    assert data.reward[1].tolist() == [3.0, 0.0]
    assert not data.truncated.any()


def test_or_the_log_is_refused():
    with pytest.raises(
        InputError, match=r"final_observation: is missing in 1 of 2 .*; must be given, or set missing-final"
    ):
        ope.LoggedData.from_flat(small(), missing_final="refuse")


def test_logs_that_terminate_need_no_final_observations():
    data = ope.LoggedData.from_flat(small(terminals=np.array([0, 1, 0, 1]), timeouts=None))
    assert data.terminated.tolist() == [[False, True], [False, True]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"timeouts": None, "timeout": np.zeros(4)},
            r"^timeout: is not a field of flat logs; did you mean timeouts\?$",
        ),
        ({"log_probs": np.zeros(4)}, "^log_probs: is not a field of flat logs; did you mean infos/action_log_probs"),
        ({"rewards": None}, "^rewards: are missing; must be given for each step$"),
        (
            {"rewards": np.array([1, 2, np.nan, 3])},
            r"^rewards: nan in row 2 \(counted from 0\) is not allowed; must be fin",
        ),
        ({"terminals": np.array([0, 2, 0, 0])}, r"^terminals: 2 in row 1 .* must be 0 or 1"),
        ({"actions": np.zeros(3, int)}, r"^actions: have shape \(3,\); must be \[4\], as the rewards"),
        ({"next_observations": np.zeros((4, 2))}, r"^next_observations: have shape \(4, 2\); must be \(4, 1\)"),
        ({"terminals": np.zeros(4), "timeouts": None}, "^timeouts: are missing, and no step is terminal"),
        ({"observations": np.array(list("abcd"))}, "^observations: have type <U1; must be numbers"),
    ],
)
def test_flat_logs_that_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        ope.LoggedData.from_flat(small(**changes))


HEAD = "episode,step,observation_0,action,reward,terminated,truncated,log_prob"
GOOD = ["a,0,0.5,1,1.0,0,0,-0.5", "a,1,0.25,0,2,1,0,-0.7", "b,0,1.5,1,0,0,1,-0.1"]


def read_text(tmp_path, *rows, head=HEAD):
    (tmp_path / "log.csv").write_text("\n".join([head, *rows]) + "\n")
    return ope.read(tmp_path / "log.csv")


def test_a_row_without_action_and_reward_is_the_final_observation(tmp_path):
    data = read_text(tmp_path, *GOOD, "b,1,9.5,,,,,")
    assert data.final_observation.ravel().tolist() == [0.25, 9.5]
    assert data.mask.tolist() == [[True, True], [True, False]]
    assert data.discrete


def test_rows_may_be_in_any_order_and_flags_are_words(tmp_path):
    rows = [
        GOOD[1].replace("2,1,0", "2,True,False"),
        GOOD[0].replace("1.0,0,0", "1.0,False,False"),
        "b,1,9.5,,,,,",
        GOOD[2],
    ]
    head = HEAD
    data = read_text(tmp_path, *rows[:2], head=head)
    assert data.reward.tolist() == [[1.0, 2.0]]
    assert data.terminated.tolist() == [[False, True]]


def test_whole_numbers_in_one_column_are_discrete_and_entries_are_continuous(tmp_path):
    rows = ["0,0.5,1,1", "1,0.5,0,1"]
    with pytest.warns(ope.MissingFinalObservation):
        assert read_text(tmp_path, *rows, head="episode,observation,action,reward").discrete
    with pytest.warns(ope.MissingFinalObservation):
        data = read_text(tmp_path, *rows, head="episode,observation,action_0,reward")
    assert not data.discrete
    assert data.action.shape == (2, 1, 1)


def counted_from_one(folder):
    """One step each, a reward of 1 for the action 2 of 1 and 2, which are equally frequent."""
    rows = [f"{episode},0.0,{1 + episode % 2},{episode % 2},1,{np.log(0.5)}" for episode in range(100)]
    file = folder / "log.csv"
    file.write_text("\n".join(["episode,observation_0,action,reward,terminated,log_prob", *rows]))
    return file


def test_actions_that_count_from_another_number(tmp_path):
    file = counted_from_one(tmp_path)
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.tile([0.2, 0.8], (len(seen), 1)))
    data = ope.read(file, first_action=1)
    assert ope.estimate(ope.Log(data, 1.0), policy, methods=("tis",))["tis"].value == pytest.approx(0.8)
    with pytest.raises(
        InputError, match=r"with A at least 3, since the log has action 2; if its actions count from 1, set"
    ):
        ope.estimate(ope.Log(ope.read(file), 1.0), policy, methods=("tis",))
    uniform = ope.uniform_policy(ope.read(file))
    found = ope.estimate(ope.Log(ope.read(file), 1.0), uniform, methods=("tis",))["tis"]
    assert any("if its actions count from 1, set first-action to 1" in one for one in found.warnings)
    with pytest.raises(InputError, match="first-action: 2 is not allowed; must be at most 1"):
        ope.read(file, first_action=2)


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        (["a,0,0.5,1,abc,0,0,-0.5"], HEAD, "column reward: 'abc' in row 1 is not allowed; must be a number"),
        ([*GOOD[:2], "b,0,,1,0,0,0,-1"], HEAD, "column observation_0: is empty in row 3; must be a number"),
        ([*GOOD[:2], "b,0,1,1,,0,0,-1"], HEAD, "column reward: is empty in row 3"),
        ([GOOD[0], GOOD[1].replace("a,1", "a,2")], HEAD, "column step: 2 in row 2 is not allowed; must be 1, as steps"),
        ([GOOD[0], GOOD[0]], HEAD, "column step: 0 in row 2 is not allowed; must be 1"),
        (["a,0,1,1,0,yes,0,-1"], HEAD, "column terminated: 'yes' in row 1 is not allowed; must be 0 or 1"),
        (["a,0,1,1,0,1,0,-1", GOOD[1]], HEAD, "column terminated: is set in row 1, after which the episode goes on"),
        (["a,0,1,1,inf,1,0,-1"], HEAD, "column reward: inf in row 1 is not allowed; must be finite"),
        ([",0,1,1,0,1,0,-1"], HEAD, "column episode: is empty in row 1"),
        (["a,0,1,,,0,0,", GOOD[1]], HEAD, "columns action and reward: are empty in row 1; may be so in the last row"),
        (["a,0,1"], HEAD, "cannot be read as CSV .*Expected 8 columns, got 3"),
        (["a,1,0"], "episode,observation,action", "column reward: is missing"),
        (["a,1,0,0,0"], "episode,observation,action,reward,log_probs", "column log_probs: is no column; did you mean log_prob"),
        (["a,1,0,0,0"], "episode,observation_0,observation_2,action,reward", "column observation_1: is missing; must be there"),
        (["a,1,0,0,0"], "episode,observation,reward,action,reward", "column reward: is there twice"),
        (["a,1,0,0", "b,1,0,0", "a,1,0,0"], "episode,observation,action,reward", "column episode: 'a' in row 3 comes after"),
        (["a,1,-2,0"], "episode,observation,action,reward", "action: -2 in trajectory 0, step 0 is negative"),
        ([], HEAD, "there are no rows|Empty CSV"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::evarl.ope.flat.MissingFinalObservation")
def test_malformed_tables_are_refused_in_one_line(tmp_path, rows, head, message):
    with pytest.raises(FileError, match=rf"^{tmp_path}/log.csv: .*({message})") as raised:
        read_text(tmp_path, *rows, head=head)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_files_are_refused_in_one_line(tmp_path, ending):
    (tmp_path / f"log.{ending}").write_bytes(b"\x00\x01nothing")
    with pytest.raises(FileError, match=rf"^{tmp_path}/log.{ending}: ") as raised:
        ope.read(tmp_path / f"log.{ending}")
    assert "\n" not in str(raised.value)


def test_pickles_in_npz_are_not_loaded(tmp_path):
    np.savez(tmp_path / "log.npz", rewards=np.array([object()]))
    with pytest.raises(FileError, match="cannot be read as NPZ without executing code"):
        ope.read(tmp_path / "log.npz")


def test_other_kinds_of_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"log.json: unknown kind of file; must end in .csv, .parquet"):
        ope.read(tmp_path / "log.json")
    with pytest.raises(InputError, match="log-prob: 'x' is allowed for Minari data sets only"):
        ope.read(tmp_path / "log.csv", log_prob="x")


def test_the_example_gives_the_same_in_every_format(tmp_path, monkeypatch, capsys):
    example = Path(__file__).parents[2] / "examples/own_logs.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path)])
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len({line[line.index("pdis") :] for line in lines[:4]}) == 1
    low, high = (float(word) for word in lines[4].split(":")[1].split(" to "))
    assert low < float(lines[5].split()[-1]) < high
