"""Runs from strangers: nothing in them is imported, waited for, followed elsewhere or shown raw on a terminal."""

import itertools
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import evarl
from benchmarks.mutations import SPECIAL, STEERING, digest, read_tensors, write_tensors
from evarl.cli.main import call
from evarl.errors import EvarlError, FileError, InputError, plain_text
from evarl.runs.assessments import load_assessment
from evarl.storage.files import refuse_links_out
from evarl.storage.modules import allow_modules, only_here
from evarl.studies.jobs import Job, Store
from evarl.studies.local import LocalWorkers

CANARY = "evarl_canary"
"""A module that makes a file when it is imported."""
WORLD = f"gymnasium/{CANARY}:CartPole-v1"
SMALL = "--horizon 10 --updates 3 --environments 2 --steps 24 --agent.hidden-sizes 4 --beta 0.05 --gradient critic"
SMALL += " --evaluator.network.kind linear --evaluator.policies 2 --evaluator.warmup 1 --evaluator.initial-steps 2"
SMALL += " --assessment.scenarios 2 --assessment.horizon 5 --log-megabytes 1 --quiet"


def _train(world: str, out: Path, *more: str) -> int:
    return call(["train", "navigation", "--world", world, *SMALL.split(), "--out", str(out), *more])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    """A run whose world comes from the canary, and beside it one in which nothing is odd."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / f"{CANARY}.py").write_text(f"import pathlib\n\npathlib.Path({str(folder / 'imported')!r}).touch()\n")
    sys.path.insert(0, str(folder))
    assert _train(WORLD, folder / "odd") == 0
    assert (folder / "imported").exists(), "what the user types is imported"
    assert _train("gymnasium/CartPole-v1", folder / "plain") == 0
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def imported(folder) -> Iterator[Callable[[], bool]]:
    """Whether the canary has been imported in this test."""
    sys.modules.pop(CANARY, None)
    (folder / "imported").unlink(missing_ok=True)
    yield (folder / "imported").exists
    sys.modules.pop(CANARY, None)
    (folder / "imported").unlink(missing_ok=True)


@contextmanager
def at_once(seconds: int = 20) -> Iterator[None]:
    """Fail where something waits, such as for a FIFO."""

    def stop(number: int, frame: Any) -> None:
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refusal(capsys, *arguments: str) -> str:
    """The one line that a refused command prints, after those that say how far it is."""
    capsys.readouterr()
    with at_once():
        assert call(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *said, last, nothing = err.split("\n")
    assert all(line.endswith(": seed 0") for line in said), err
    assert nothing == ""
    assert last.isprintable(), err
    return last


def opening(run: str) -> dict[str, list[str]]:
    """Every command that opens a run."""
    chain = ["train", "navigation", "--world", "tabular/chain", "--beta", "0.05", "--out", f"{run}-new"]
    return {
        "assess": ["assess", run],
        "evaluate": ["evaluate", run],
        "certify": ["certify", run, "--range", "0", "10", "--rollouts", "20"],
        "compare": ["compare", run, "--threshold", "5", "--range", "0", "10"],
        "ope": ["ope", run],
        "pretrain": ["pretrain", run],
        "base run": [*chain, "--assessment.base-run", run],
        "assessment": [*chain, "--assessment.file", f"{run}/assessment.safetensors"],
    }


@pytest.mark.parametrize("command", opening(""))
def test_a_module_that_only_a_file_names_is_refused(folder, imported, capsys, command):
    run = str(folder / "odd")
    said = refusal(capsys, *opening(run)[command])
    file = "assessment.safetensors" if command == "assessment" else "config.json"
    assert said.startswith(f"evarl: {run}/{file}: names a world of the module '{CANARY}'")
    assert f"allow it with --allow-module {CANARY}, in Python with evarl.allow_modules('{CANARY}')" in said
    assert not imported()


def test_curves_are_drawn_without_the_module_of_the_world(folder, imported):
    assert call(["plot", str(folder / "odd"), "--out", str(folder / "curves.svg")]) == 0
    assert (folder / "curves.svg").exists()
    assert not imported()


def test_a_module_is_imported_when_the_user_allows_it_by_name(folder, imported, capsys):
    run = str(folder / "odd")
    allowed = ["--allow-module", "another", "--allow-module", CANARY]
    assert call([*opening(run)["certify"], *allowed]) == 0
    assert imported()
    sys.modules.pop(CANARY)
    (certificate,) = (path for path in Path(run, "certificates").glob("mean-return-*.json"))
    said = refusal(capsys, "verify", str(certificate))
    assert f"--allow-module {CANARY}" in said
    assert refusal(capsys, *opening(run)["assess"], "--allow-module", f"{CANARY}.inner"), "by its whole name"
    assert call(["verify", str(certificate), *allowed]) == 0
    shutil.rmtree(Path(run, "certificates"))


def test_a_module_is_allowed_in_python_for_one_run_or_for_the_process(folder, imported):
    path = folder / "odd"
    with pytest.raises(InputError, match="files do not decide what is imported"):
        evarl.Run.load(path)
    assert not imported()
    assert evarl.Run.load(path, allow_modules=(CANARY,)).world.horizon == 10
    assert imported()
    sys.modules.pop(CANARY)
    with pytest.raises(InputError):
        evarl.Run.load(path)
    with only_here():
        evarl.allow_modules(CANARY)
        assert evarl.Run.load(path).config.world == WORLD
        assert load_assessment(path / "assessment.safetensors").world.name == WORLD
    sys.modules.pop(CANARY)
    with pytest.raises(InputError):
        load_assessment(path / "assessment.safetensors")
    assert evarl.allow_modules is allow_modules


def test_a_run_is_resumed_with_the_module_that_is_typed(folder, imported):
    assert _train(WORLD, folder / "odd", "--resume") == 0
    assert not imported(), "it was finished"
    Path(shutil.copytree(folder / "odd", folder / "unfinished"), "summary.json").unlink()
    assert _train(WORLD, folder / "unfinished", "--resume") == 0
    assert imported()


TEXTS = (CANARY, f"{CANARY}:CartPole-v1", WORLD, f"gymnasium/{CANARY}:x:CartPole-v1")


def _strings(data: Any) -> list[tuple[Any, Any]]:
    """Where the texts are in plain data, as container and key."""
    if not isinstance(data, dict | list):
        return []
    inside = data.items() if isinstance(data, dict) else enumerate(data)
    return [found for key, one in inside for found in ([(data, key)] if isinstance(one, str) else _strings(one))]


def _with_texts(file: Path) -> Iterator[bytes]:
    """The file with each of its texts replaced by each of `TEXTS`, under checksums that fit."""
    whole = file.read_bytes()
    arrays, about = read_tensors(whole) if file.suffix == ".safetensors" else ({}, json.loads(whole))
    for number, text in itertools.product(range(len(_strings(about))), TEXTS):
        changed = json.loads(json.dumps(about))
        container, key = _strings(changed)[number]
        container[key] = text
        if file.suffix == ".safetensors":
            yield write_tensors(arrays, changed)
            continue
        if key != "hash" and "config" in changed:
            changed["hash"] = digest(changed["config"], 8)
        if key != "sha256" and changed.pop("sha256", None):
            changed["sha256"] = digest(changed)
        yield json.dumps(changed).encode()


def _read_everything(path: Path) -> None:
    run = evarl.Run.load(path)
    parts = [lambda: run.summary, lambda: run.metrics, run.policy_state, run.evaluator_state, run.logged_data]
    for part in parts:
        with suppress(EvarlError):
            part()


SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in ("*/seed-0.safetensors", "*/*/upd*")]


@pytest.mark.parametrize("name", ["config.json", "summary.json", "*.safetensors", *SELDOM])
def test_no_text_in_any_file_of_a_run_is_imported(folder, imported, tmp_path, name):
    path = Path(shutil.copytree(folder / "plain", tmp_path / "run"))
    files, tried = list(path.glob(name)), 0
    for file in files:
        whole = file.read_bytes()
        for changed in _with_texts(file):
            file.write_bytes(changed)
            with suppress(EvarlError):
                _read_everything(path)
            tried += 1
            assert not imported(), f"{file.name}: {changed[:2000]!r}"
        file.write_bytes(whole)
    assert tried >= 4


def test_no_text_in_a_job_file_is_imported(folder, imported, tmp_path):
    store, job = Store(tmp_path), Job("job", "train")
    store.keep(job, {"task": "train", "settings": {"preset": "navigation"}, "result": {"a": "b"}, "commit": "c"})
    file = store.result_file(job)
    for changed in list(_with_texts(file)):
        file.write_bytes(changed)
        with suppress(EvarlError):
            store.record(job)
    assert not imported()


READERS = {
    "config.json": "assess",
    "assessment.safetensors": "assess",
    "evaluator/seed-0.safetensors": "assess",
    "policy/seed-0.safetensors": "assess",
    "log/seeds-0-0/*": "ope",
    "summary.json": "resume",
    "metrics.parquet": "resume, unfinished",
}
"""Files of a run, and a command that reads them."""


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", READERS)
def test_commands_refuse_what_is_no_regular_file_of_the_run(folder, tmp_path, capsys, name, special):
    path = Path(shutil.copytree(folder / "plain", tmp_path / "run"))
    (file,) = path.glob(name)
    copy = Path(shutil.copy(file, tmp_path / "copy"))
    file.unlink()
    SPECIAL[special](file, copy)
    if READERS[name] == "resume, unfinished":
        (path / "summary.json").unlink()
    again = ["train", "navigation", "--world", "gymnasium/CartPole-v1", *SMALL.split(), "--out", str(path), "--resume"]
    said = refusal(capsys, *(again if READERS[name].startswith("resume") else [READERS[name], str(path)]))
    assert str(path) in said


def test_a_link_inside_of_a_run_and_a_link_to_a_run_are_followed(folder, tmp_path):
    path = Path(shutil.copytree(folder / "plain", tmp_path / "run"))
    (path / "summary.json").rename(path / "kept.json")
    (path / "summary.json").symlink_to("kept.json")
    (tmp_path / "link").symlink_to(path)
    assert evarl.Run.load(tmp_path / "link").summary == evarl.Run.load(folder / "plain").summary
    shutil.move(path / "policy", tmp_path / "policy")
    (path / "policy").symlink_to(tmp_path / "policy")
    with pytest.raises(FileError, match=f"^{tmp_path}/link/policy: links to {tmp_path}/policy, outside of"):
        evarl.Run.load(tmp_path / "link")
    (path / "policy").unlink()
    refuse_links_out(path)


@pytest.mark.parametrize("special", ["a FIFO", "a device", "a directory", "a sparse file of 40 GiB"])
def test_special_files_in_the_folder_of_a_reproduction_are_refused(tmp_path, special):
    store, job = Store(tmp_path / "store"), Job("job", "train")
    store.keep(job, {"result": {}})
    store.work(job).mkdir(parents=True)
    for file in (
        store.result_file(job),
        *(store.work(job) / name for name in ("progress.json", "sittings", "output.txt")),
    ):
        file.unlink(missing_ok=True)
        SPECIAL[special](file, file)
    with at_once():
        with pytest.raises(FileError, match=f"{job.name}.json: is (not a regular file|longer than)"):
            store.record(job)
        assert store.progress(job) == (0.0, "")
        with pytest.raises(FileError, match=r"sittings: is (not a regular file|longer than)"), store.locked(job):
            pass
        if special != "a sparse file of 40 GiB":
            with pytest.raises(FileError, match=r"output\.txt: is not a regular file"):
                LocalWorkers(store, 1).start(job)


NAME = "run[/x]\n" + "".join(STEERING)
"""Of a folder, with everything that a terminal or a table could take for something else."""


@pytest.mark.slow
def test_a_name_that_steers_the_terminal_is_shown_by_its_escapes(folder, tmp_path, capsys):
    run = str(shutil.copytree(folder / "plain", tmp_path / NAME))
    assert call(["compare", run, "--threshold", "5", "--range", "0", "10", "--rollouts", "20"]) in (0, 1)
    for command in (
        ["assess", run, "--no-interval"],
        ["ope", run, "--methods", "tis"],
        ["certify", run, "--claim", "single-episode", "--alpha", "0.3"],
    ):
        assert call(command) == 0
    out, err = capsys.readouterr()
    for line in (out + err).split("\n"):
        assert line.isprintable(), line
    assert out.count(plain_text(NAME)) >= 5
    assert call(["assess", f"{run}/nothing"]) == 2
    assert capsys.readouterr().err == f"evarl: {plain_text(run)}/nothing: holds no run (there is no config.json)\n"


@pytest.mark.parametrize("text", [*STEERING, "\n", "\ud800", "\x00"])
def test_texts_of_files_are_escaped_in_errors_and_on_the_display(folder, tmp_path, capsys, text):
    path = Path(shutil.copytree(folder / "plain", tmp_path / "run"))
    data = json.loads((path / "config.json").read_text())
    data["config"]["world"] = f"gymnasium/{text}"
    data["hash"], _ = digest(data["config"], 8), data.pop("sha256")
    (path / "config.json").write_text(json.dumps(data | {"sha256": digest(data)}))
    refusal(capsys, "assess", str(path))
    assert str(InputError(f"a{text}b")) == f"a{text.encode('unicode_escape').decode()}b"
    store, job = Store(tmp_path), Job("job", "train")
    store.work(job).mkdir(parents=True)
    (store.work(job) / "progress.json").write_text(json.dumps({"share": 1e300, "text": f"update{text}"}))
    share, said = store.progress(job)
    assert said.isprintable()
    assert 0 <= share <= 1


@pytest.mark.parametrize(
    "name", ["a" * 5000, "/dev/null", *(pytest.param(one, marks=pytest.mark.slow) for one in ("a\0b", "/dev/null/x"))]
)
def test_paths_that_can_hold_no_run_are_refused(capsys, name):
    train = ["train", "navigation", "--updates", "1", "--environments", "2", "--steps", "8", "--quiet", "--out", name]
    for command in (["assess", name], ["verify", name], train, [*train, "--resume"]):
        refusal(capsys, *command)


def test_a_directory_in_the_place_of_a_log_is_refused_when_training_goes_on(folder, tmp_path, capsys):
    path = Path(shutil.copytree(folder / "plain", tmp_path / "run"))
    (path / "summary.json").unlink()
    (newest,) = path.glob("checkpoints/*/update-000000003.safetensors")
    newest.unlink()
    (log,) = path.glob("log/*/*")
    log.unlink()
    log.mkdir()
    again = ["train", "navigation", "--world", "gymnasium/CartPole-v1", *SMALL.split(), "--out", str(path), "--resume"]
    assert refusal(capsys, *again) == f"evarl: {log}: is not a file, as it must be in a run directory; move it away"
