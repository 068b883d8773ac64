"""What goes wrong outside of evarl while it works: one line that says what, the right exit code, and nothing lost."""

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evarl
from evarl.cli.main import call
from evarl.errors import FaultError, WorldError
from evarl.learning.configuration import TrainConfig
from tests.runs.test_runs import RESULTS, same_files

session = importlib.import_module("evarl.runs.session")
COMMAND = [sys.executable, "-c", "from evarl.cli.main import main; main()"]
TINY = ["--environments", "2", "--steps", "16", "--agent.hidden-sizes", "8", "--quiet"]


def one_line(capfd, code: int, *arguments: str) -> str:
    """The only thing that a failing command says."""
    capfd.readouterr()
    assert call(list(arguments)) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("evarl: ")
    assert err.count("\n") == 1, err
    return err


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two seeds, with checkpoints at updates 0 and 12."""
    config = TrainConfig(environments=2, steps=16, updates=12, seeds=2, agent=evarl.AgentConfig(hidden_sizes=(8,)))
    return evarl.train(config, out=tmp_path_factory.mktemp("faults") / "run", quiet=True, log_megabytes=1)


RESUME = ["train", "navigation", *TINY, "--updates", "12", "--seeds", "2", "--rollouts-per-start", "1", "--resume"]
PLAIN = ["--assessment.scenarios", "5", "--assessment.horizon", "10"]


@pytest.fixture
def unfinished(finished, tmp_path):
    """The same as if it had been killed after update 12, before the policies were written."""
    out = tmp_path / "run"
    shutil.copytree(finished.path, out)
    (out / "summary.json").unlink()
    return out


def resume(out: Path) -> list[str]:
    config = json.loads((out / "config.json").read_text())["config"]
    flags = [*RESUME, *PLAIN]
    for name in ("batch_size", "policies", "learning_rate", "steps", "every", "final_steps"):
        flags += [f"--evaluator.{name.replace('_', '-')}", str(config["evaluator"][name])]
    return [*flags, "--out", str(out)]


def changed_table(path: Path, change) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def cell(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


METRICS = {
    "no return": lambda t: t.drop_columns(["return"]),
    "another column": lambda t: t.append_column("luck", pa.array(np.ones(len(t)))),
    "a column less": lambda t: (
        t.drop_columns(["entropy"]) if "entropy" in t.column_names else t.drop_columns(["episodes"])
    ),
    "text for the update": lambda t: cell(t, "update", pa.array(["a"] * len(t))),
    "text for the return": lambda t: cell(t, "return", pa.array(["a"] * len(t))),
    "lists": lambda t: cell(t, "return", pa.array([[1.0]] * len(t))),
    "null updates": lambda t: cell(t, "update", pa.array([None, *range(1, len(t))], pa.int64())),
    "null seeds": lambda t: cell(t, "seed", pa.array([None] * len(t), pa.int64())),
    "float seeds": lambda t: cell(t, "seed", t["seed"].cast(pa.float64())),
    "two columns of a name": lambda t: t.append_column("seed", t["seed"]),
    "missing rows": lambda t: t.slice(3),
    "rows twice": lambda t: pa.concat_tables([t, t]),
    "other seeds": lambda t: cell(t, "seed", pa.array(np.asarray(t["seed"]) + 5)),
    "no rows": lambda t: t.slice(0, 0),
}


SELDOM = (
    "text for the return",
    "lists",
    "null updates",
    "null seeds",
    "float seeds",
    "rows twice",
    "no rows",
    "a column less",
)
"""Other columns and rows that are wrong in the same way: `make test-slow` only."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.slow) if what in SELDOM else what for what in METRICS]
)
def test_resumed_metrics_that_are_not_the_runs_own(what, unfinished, capfd):
    """The newest checkpoint is dropped, so that training goes on and its rows would have to fit."""
    if what in ("another column", "a column less"):
        state = sorted(unfinished.glob("checkpoints/*/*"))
        state[-1].unlink()
    changed_table(unfinished / "metrics.parquet", METRICS[what])
    before = (unfinished / "metrics.parquet").read_bytes()
    assert str(unfinished / "metrics.parquet") in one_line(capfd, 2, *resume(unfinished))
    assert (unfinished / "metrics.parquet").read_bytes() == before
    assert not (unfinished / "summary.json").exists()


def test_missing_metrics_are_noticed(unfinished, capfd):
    (unfinished / "metrics.parquet").unlink()
    said = one_line(capfd, 2, *resume(unfinished))
    assert "metrics.parquet: does not hold the updates 0 to 11 of the seeds 0 to 1" in said


@pytest.mark.parametrize(
    "name",
    ["checkpoints", "checkpoints/seeds-0-1", "tensorboard", "tensorboard/seeds-0-1", "policy", "log", "log/seeds-0-1"],
)
def test_a_file_in_place_of_a_folder(name, unfinished, capfd):
    shutil.rmtree(unfinished / name)
    (unfinished / name).write_text("a file")
    assert f"{unfinished / name}: is not a folder" in one_line(capfd, 2, *resume(unfinished))
    assert (unfinished / name).read_text() == "a file"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "metrics.parquet",
        "summary.json",
        "checkpoints/seeds-0-1/update-000000012.safetensors",
        "policy/seed-1.safetensors",
    ],
)
def test_something_else_in_place_of_a_file(name, kind, unfinished, capfd):
    flags = resume(unfinished)
    (unfinished / name).unlink(missing_ok=True)
    if kind == "folder":
        (unfinished / name).mkdir()
    else:
        os.mkfifo(unfinished / name)
    assert f"{unfinished / name}: is not a file" in one_line(capfd, 2, *flags)


def test_the_same_run_resumes_when_nothing_is_wrong(unfinished, finished):
    """What a killed process was about to rename is removed; other hidden files are not ours."""
    left = [".metrics.parquet.abcd1234", "checkpoints/seeds-0-1/.update-000000005.safetensors.x_y_z_00"]
    for name in (*left, ".notes"):
        (unfinished / name).write_text("half")
    assert call(resume(unfinished)) == 0
    assert [path.name for path in unfinished.rglob(".*")] == [".notes"]
    assert same_files(finished.path, unfinished, RESULTS)


BROKEN = '''
import os
import sys

import gymnasium
import numpy as np

class Broken(gymnasium.Env):
    """Works until the file says otherwise, and then does as it is told in its third step."""
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.how = os.environ.get("BROKEN", "")
        if self.how == "make":
            raise RuntimeError("no\\nlicence")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        if self.how == "reset":
            raise RuntimeError("cannot begin")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        how = self.how if self.steps == 3 else ""
        seen, reward = np.full(2, 0.1, np.float32), 1.0
        if how == "raise":
            raise ValueError("boom\\nand more")
        if how == "exit":
            sys.exit(0)
        if how == "shape":
            seen = np.zeros(3, np.float32)
        if how == "dtype":
            seen = np.array(["a", "b"])
        if how == "nan seen":
            seen[0] = np.nan
        if how == "tuple":
            return seen, reward
        return seen, {"nan": float("nan"), "huge": 1e300, "none": None}.get(how, reward), False, False, {}

gymnasium.register("Broken-v0", Broken, max_episode_steps=8)
'''
FAULTS = {
    "raise": "ValueError: boom and more",
    "exit": "SystemExit: 0",
    "shape": "ValueError: the observation is float32[3]; must be float32[2] as in the space",
    "dtype": "ValueError: the observation is <U1[2]; must be float32[2] as in the space",
    "nan seen": "ValueError: the observation holds NaN or infinity",
    "nan": "ValueError: the reward is nan; must be a finite number",
    "huge": "ValueError: the reward is 1e+300; must be a finite number in 32 bits",
    "none": "TypeError: ",
    "tuple": "ValueError: not enough values to unpack",
}
WORLD = "gymnasium/evarl_broken:Broken-v0"
ON_HOST = ["train", "navigation", "--world", WORLD, *TINY, "--updates", "3", "--checkpoint-seconds", "0.001"]
ON_HOST += ["--assessment.scenarios", "2", "--assessment.horizon", "4", "--evaluator.warmup", "1", "--beta", "0.01"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    (folder / "evarl_broken.py").write_text(BROKEN)
    sys.path.insert(0, str(folder))
    importlib.import_module("evarl_broken")
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def on_host(world):
    """A finished evaluation-aware run on a host world that works."""
    assert call([*ON_HOST, "--out", str(world / "run")]) == 0
    return world / "run"


@pytest.mark.parametrize("how", FAULTS)
def test_a_world_that_fails_in_a_step_is_named(how, world, monkeypatch):
    monkeypatch.setenv("BROKEN", how)
    opened = evarl.make_world(WORLD).open(2)
    for index in range(2):
        opened.reset(index, index)
    opened.step(np.zeros(2, int))
    opened.step(np.zeros(2, int))
    with pytest.raises(WorldError) as error:
        opened.step(np.zeros(2, int))
    assert str(error.value).startswith(f"world: {WORLD} failed (environment 0, step 3 of its episode): {FAULTS[how]}")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("seen", [7, -1, 0.5, "a", np.zeros(2, int)])
def test_an_index_that_its_space_does_not_have(seen):
    from gymnasium import spaces

    from evarl.worlds.gymnasium_spaces import shown_as

    assert shown_as(spaces.Discrete(3, start=4), 6).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="the observation is"):
        shown_as(spaces.Discrete(3, start=4), seen)


@pytest.mark.parametrize("how", ["raise", pytest.param("exit", marks=pytest.mark.slow)])
def test_a_world_that_fails_in_training(how, world, on_host, tmp_path, capfd, monkeypatch):
    """What was done is kept, and when the world is mended the run goes on."""
    out = tmp_path / "run"
    environments, calls = evarl.worlds.gymnasium.GymnasiumEnvironments, iter(range(10**6))
    step = environments.step

    def failing_later(self, action):
        """Breaks in the second update, in one environment of the two."""
        if next(calls) == 22:  # 16 steps and an assessment of 4 come before
            self._environments[1].unwrapped.how = how
        return step(self, action)

    with monkeypatch.context() as patched:
        patched.setattr(environments, "step", failing_later)
        said = one_line(capfd, 1, *ON_HOST, "--vectorise", "sync", "--out", str(out))
    assert said.startswith(f"evarl: world: {WORLD} failed (environment 1, step 3 of its episode): {FAULTS[how]}"), said
    assert said.endswith("; the run is kept up to update 1, resume with --resume\n")
    assert [p.name for p in sorted(out.glob("checkpoints/*/*"))] == [f"update-00000000{n}.safetensors" for n in (0, 1)]
    assert evarl.Run.load(out).metrics["update"].to_pylist() == [0]
    assert call([*ON_HOST, "--out", str(out), "--resume"]) == 0
    assert evarl.Run.load(out).metrics["update"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("command", "how", "said"),
    [
        ("train", "make", "failed (while it was made): RuntimeError: no licence"),
        ("train", "reset", "failed (environment 0, reset with seed 1000003): RuntimeError: cannot begin"),
        ("assess", "exit", "failed (environment 0, step 3 of its episode): SystemExit: 0"),
        ("evaluate", "nan", "failed (environment 0, step 3 of its episode): ValueError: the reward is nan"),
        ("certify", "raise", "failed (environment 0, step 3 of its episode): ValueError: boom and more"),
    ],
)
def test_a_world_that_fails_in_every_command(command, how, said, on_host, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("BROKEN", how)
    flags = {
        "train": [*ON_HOST, "--out", str(tmp_path / "run")],
        "certify": ["certify", str(on_host), "--range", "0", "10"],
    }
    lines = one_line_after_progress(capfd, 1, *flags.get(command, [command, str(on_host)]))
    assert lines.startswith(f"evarl: world: {WORLD} {said}"), lines
    assert not list(tmp_path.iterdir())


def one_line_after_progress(capfd, code: int, *arguments: str) -> str:
    """What it says last, when it may say what it is at before."""
    capfd.readouterr()
    assert call(list(arguments)) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert sum(line.startswith("evarl: ") for line in err.splitlines()) == 1
    return err.splitlines()[-1]


SELDOM = [pytest.param(how, marks=pytest.mark.slow) for how in ("renamed", "emptied")]


@pytest.mark.parametrize("how", ["deleted", "replaced", *SELDOM])
def test_a_run_whose_folder_is_gone_has_failed(how, tmp_path, capfd, monkeypatch):
    """At the end of the last group, after its last checkpoint: nothing would have noticed."""
    out = tmp_path / "run"
    saved = session.Group._save_results

    def lost(self):
        if how == "renamed":
            out.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(out)
        if how in ("replaced", "emptied"):
            out.mkdir()
        if how == "replaced":
            (out / "config.json").write_text("{}")
        saved(self)

    monkeypatch.setattr(session.Group, "_save_results", lost)
    said = one_line(capfd, 1, "train", "navigation", *TINY, "--updates", "3", "--out", str(out))
    assert f"out: {out} was deleted, renamed or replaced during training" in said
    assert not (out / "summary.json").exists()


def test_a_run_that_is_put_back_goes_on(tmp_path, monkeypatch, capfd):
    """Renamed in mid-training, as by a user in another terminal."""
    out, flags = tmp_path / "run", ["train", "navigation", *TINY, "--updates", "40", "--checkpoint-seconds", "0.001"]
    assert call([*flags, "--out", str(tmp_path / "whole")]) == 0
    save = session.Group._save

    def lost(self):
        if self.done > 5 and out.exists():
            out.rename(tmp_path / "elsewhere")
        save(self)

    with monkeypatch.context() as patched:
        patched.setattr(session.Group, "_save", lost)
        one_line(capfd, 1, *flags, "--out", str(out))
    assert not out.exists(), "nothing is written where the run is no more"
    (tmp_path / "elsewhere").rename(out)
    assert call([*flags, "--out", str(out), "--resume"]) == 0
    assert same_files(tmp_path / "whole", out, RESULTS[:2])


OUT_OF_MEMORY = {
    "python": MemoryError(),
    "numpy": np._core._exceptions._ArrayMemoryError((10**15,), np.dtype(float)),
    "xla": RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore"),
}


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_too_little_memory_is_one_line(error, capfd, monkeypatch, tmp_path):
    def advance(*arguments):
        raise error

    monkeypatch.setattr("evarl.learning.engines.CompiledEngine.advance", advance)
    said = one_line(capfd, 1, "train", "navigation", *TINY, "--updates", "3", "--out", str(tmp_path / "run"))
    assert said.startswith("evarl: out of memory (")


def started(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )


def assert_stopped(process: subprocess.Popen, code: int) -> str:
    _, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "Traceback" not in err, err
    assert "KeyboardInterrupt" not in err, err
    return err


LONG = ["train", "navigation", *TINY, "--updates", "100000", "--checkpoint-seconds", "0.2"]


def at_work(folder: Path, process: subprocess.Popen) -> None:
    """Wait until a checkpoint after the first is there."""
    while not list(folder.glob("checkpoints/*/update-0000*[1-9]*")) and process.poll() is None:
        time.sleep(0.02)


def begun(process: subprocess.Popen) -> None:
    """Wait until the command catches signals; what comes before is Python's own start."""
    while process.poll() is None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        if int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_impatient_ctrl_c_saves_and_stops(tmp_path):
    out = tmp_path / "run"
    process = started(*LONG, "--out", str(out))
    at_work(out, process)
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    said = assert_stopped(process, 130)
    assert "--resume" in said
    done = int(said.split("stopped after update ")[1].split()[0])
    assert (out / f"checkpoints/seeds-0-0/update-{done:09d}.safetensors").exists()
    assert not list(out.rglob(".*"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signals_at_any_moment_show_no_traceback(tmp_path, number):
    """While modules are imported, the program is compiled, trained and saved; several signals each time."""
    randomness = random.Random(int(number))
    for index, wait in enumerate((0.1, 0.3, 0.6, 1.0, 1.5, 2.5)):
        process = started(*LONG, "--out", str(tmp_path / str(index)))
        begun(process)
        time.sleep(wait * randomness.uniform(0.0, 1.1))
        for _ in range(randomness.choice([1, 2, 5])):
            process.send_signal(number)
            time.sleep(randomness.uniform(0.0, 0.05))
        assert_stopped(process, 128 + number)
        assert not list((tmp_path / str(index)).rglob(".*.safetensors.*"))


def test_a_signal_ends_a_command_that_is_stuck_in_a_compiled_program():
    """Python handles signals between its own instructions only."""
    endless = (
        "jax.jit(lambda x: jax.lax.while_loop(lambda x: x > 0, lambda x: x * 3 % 7 + 1, x))(1).block_until_ready()"
    )
    code = f"from evarl import stopping; stopping.catch(); import jax; print('begun', flush=True); {endless}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert "evarl: stopped" in assert_stopped(process, 143)


def test_sigterm_saves_and_exits_with_143(tmp_path):
    out = tmp_path / "run"
    process = started(*LONG, "--out", str(out))
    at_work(out, process)
    process.send_signal(signal.SIGTERM)
    said = assert_stopped(process, 143)
    assert "stopped after update" in said
    assert "--resume" in said


def worker_pids(folder: Path) -> list[int]:
    return [int(line) for path in folder.glob("work/*/sittings") for line in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_reproduction_takes_its_workers_with_it(tmp_path, number):
    """Its workers are in sessions of their own; they end with it, whether it can tell them or not."""
    process = started("reproduce", "mismatch", "--scale", "laptop", "--workers", "1", "--out", str(tmp_path / "out"))
    deadline = time.monotonic() + 120
    while not worker_pids(tmp_path / "out") and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = worker_pids(tmp_path / "out")
    assert [alive(pid) for pid in pids] == [True]
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (143 if number == signal.SIGTERM else -9)
    assert "Traceback" not in err
    if number == signal.SIGTERM:
        assert err.splitlines()[-1] == "evarl: stopped; finished jobs are kept, go on with the same command"
    deadline = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def test_python_gets_the_same_errors(tmp_path, monkeypatch, world):
    monkeypatch.setenv("BROKEN", "reset")
    config = TrainConfig(world=WORLD, environments=2, steps=16, updates=3, agent=evarl.AgentConfig(hidden_sizes=(8,)))
    with pytest.raises(WorldError, match="reset with seed") as error:
        evarl.train(config, out=tmp_path / "run", quiet=True)
    assert isinstance(error.value, FaultError)
