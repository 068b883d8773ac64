"""Run directories and files of another layout are refused on one line that says which version wrote them."""

import json
import shutil
from pathlib import Path

import pytest

import evarl
from benchmarks.mutations import digest, read_tensors, write_tensors
from evarl.cli.main import call
from evarl.errors import FileError
from evarl.runs.assessments import load_assessment, load_evaluator
from evarl.runs.checkpoints import load_newest
from evarl.storage.tensors import load_arrays
from tests.evaluation.tiny import train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("layout") / "run")


def old_run(folder: Path, **changes: object) -> Path:
    """A run directory as version 0.1.0 began it."""
    about = {
        "format": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "hash": "01234567",
        "config": {"world": "navigation"},
        "seed_groups": [[0]],
        "log_megabytes": 0.0,
        "versions": {"python": "3.11.7", "evarl": "0.1.0", "jax": "0.10.2"},
        "commit": None,
    } | changes
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(about | {"sha256": digest(about)}))
    return folder


def refusal(path: Path, kind: str, layout: object, remedy: str, version: str = "0.1.0") -> str:
    return (
        f"{path}: is {kind} of layout {layout}, written by evarl {version}; this version reads layout 2. "
        f"{remedy}, or use that version"
    )


def test_a_run_directory_of_another_layout_is_refused(tmp_path, capsys):
    old = old_run(tmp_path / "old")
    commands = {
        "assess": [str(old)],
        "evaluate": [str(old)],
        "certify": [str(old), "--rollouts", "20"],
        "pretrain": [str(old)],
        "train": ["navigation", "--out", str(old), "--resume", "--quiet"],
    }
    for name, words in commands.items():
        assert call([name, *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"evarl: {refusal(old, 'a run directory', 1, 'Train it again')}\n"
    with pytest.raises(FileError) as error:
        evarl.Run.load(old_run(tmp_path / "new", layout=3, versions={"evarl": "0.9.1"}))
    assert str(error.value) == refusal(tmp_path / "new", "a run directory", 3, "Train it again", "0.9.1")


@pytest.mark.parametrize("odd", [{"layout": "2"}, {"layout": None}, {"layout": 2.5}, {"versions": [1]}, {"format": 99}])
def test_a_layout_that_is_no_number_is_refused_on_one_line(tmp_path, odd):
    with pytest.raises(FileError, match=r"^\S+: is a run directory of layout \S+, written by evarl \S+; this version"):
        evarl.Run.load(old_run(tmp_path / "odd", **odd))


def rewritten(file: Path, target: Path, **changes: str) -> Path:
    """The same file with other texts beside its arrays, and its checksum; as version 0.1.0 wrote it if there are none."""
    arrays, about = read_tensors(file.read_bytes())
    about = {name: text for name, text in about.items() if name not in ("layout", "version")} | changes
    target.write_bytes(write_tensors(arrays, about))
    return target


@pytest.mark.parametrize(
    ("name", "kind"),
    {
        "policy/seed-0.safetensors": "a policy file",
        "evaluator/seed-0.safetensors": "an evaluator file",
        "assessment.safetensors": "an assessment file",
    }.items(),
)
def test_a_file_of_another_layout_is_refused(run, tmp_path, name, kind):
    moved = evarl.Run.load(shutil.copytree(run.path, tmp_path / "run"))
    file = moved.path / name
    readers = {
        "a policy file": lambda: moved.policy_state(0),
        "an evaluator file": lambda: load_evaluator(file, run.config, run.assessment, 0),
        "an assessment file": lambda: load_assessment(file),
    }
    for changes, said in (
        ({}, refusal(file, kind, 1, "Make it again")),
        ({"layout": "3", "version": "0.9.1"}, refusal(file, kind, 3, "Make it again", "0.9.1")),
    ):
        rewritten(run.path / name, file, **changes)
        with pytest.raises(FileError) as error:
            readers[kind]()
        assert str(error.value) == said


def test_a_checkpoint_of_another_layout_is_not_used(run, tmp_path):
    (folder,) = (run.path / "checkpoints").iterdir()
    newest = max(folder.iterdir())
    arrays, _ = load_arrays(newest)
    file, said = rewritten(newest, tmp_path / newest.name), []
    assert load_newest(tmp_path, arrays, said.append) is None
    expected = refusal(file, "a checkpoint file", 1, "Make it again")
    assert said == [f"{expected}; falling back to the checkpoint before it"]


def test_files_record_the_version_that_wrote_them(run):
    about = read_tensors((run.path / "policy" / "seed-0.safetensors").read_bytes())[1]
    config = json.loads((run.path / "config.json").read_text())
    assert (about["layout"], config["layout"]) == ("2", 2)
    assert about["version"] == config["versions"]["evarl"]
