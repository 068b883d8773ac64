"""A short `make fuzz`, and that it would notice if something went wrong."""

import dataclasses
import importlib
import json
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import evarl
from benchmarks import fuzz as script
from benchmarks.fuzz import fuzz, importable, watch
from benchmarks.loaders import Kind, fits, kinds_of, make_files, make_payload, same
from benchmarks.mutations import MODULE, SPECIAL, digest, pickled, read_tensors, write_tensors
from evarl.certificates.protocol import Protocol
from evarl.errors import FileError, InputError
from evarl.runs.assessments import load_assessment
from evarl.runs.directory import open_run


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Iterator[tuple[Path, list[Kind]]]:
    folder = tmp_path_factory.mktemp("files")
    run = make_files(folder)
    make_payload(folder, folder / "executed")
    with importable(folder):
        yield folder, kinds_of(folder, run, folder / "executed")


@pytest.mark.slow
def test_damaged_files_end_in_one_clean_line_or_load_as_before(files):
    folder, kinds = files
    results = fuzz(kinds, folder / "executed", range(20 * len(kinds)), seed=1)
    assert [result for result in results if result.outcome == "failures"] == []
    for kind in kinds:
        found = [result.outcome for result in results if result.kind == kind.name]
        assert len(found) == 20
        assert found.count("errors") > 5, kind.name


@pytest.mark.slow
def test_payloads_would_have_worked(files):
    """The proof that nothing is executed is worth no more than what was waiting to be executed."""
    marker = files[0] / "executed"
    pickle.loads(pickled(marker)).close()
    assert marker.exists()
    marker.unlink()
    importlib.import_module(MODULE)
    assert marker.exists()
    marker.unlink()


def _wrong(loader: str, marker: Path):
    """A loader that does something that it must not do."""

    def load(path: Path):
        data = path.read_bytes()
        if data == b"whole":
            return "whole"
        if loader == "raises":
            raise ValueError("damaged")
        if loader == "says too much":
            raise FileError("damaged, very much so" * 100)
        if loader == "warns":
            warnings.warn("damaged", stacklevel=1)
        if loader == "executes":
            pickle.loads(pickled(marker)).close()
            return "whole"
        while loader == "hangs":
            pass
        return "guessed"

    return load


@pytest.mark.parametrize("loader", ["swallows", "raises", "says too much", "warns", "executes", "hangs"])
def test_a_loader_that_does_otherwise_is_reported(tmp_path, monkeypatch, loader):
    monkeypatch.setattr(script, "SECONDS", 0.1)
    marker, file = tmp_path / "executed", tmp_path / "file"
    file.write_bytes(b"whole")
    kind = Kind(
        "file", file, _wrong(loader, marker), lambda rng, data: ("another", b"other"), lambda found, data: False
    )
    results = fuzz([kind], marker, range(7, 9), seed=5)
    assert [(result.number, result.outcome) for result in results] == [(7, "failures"), (8, "failures")]
    assert file.read_bytes() == b"whole"


@pytest.mark.parametrize("special", SPECIAL)
def test_what_is_no_regular_file_is_refused_in_the_place_of_any_file(files, special):
    """Each at once: a worker that hangs would hang this test."""
    folder, kinds = files
    for kind in kinds:
        whole = kind.file.read_bytes()
        original = kind.load(kind.file)
        damaged = script.Mutant(special, whole, False, SPECIAL[special])
        with script.damaged_file(kind.file, whole, damaged, folder / "executed"):
            found, said = script.outcome(kind, original, damaged)
        followed = kind.linked and special == "a link to a copy"
        assert found == ("identical" if followed else "errors"), (kind.name, said)


WORKER = """
import json, os, sys, time
print('"ready"', flush=True)
for number in range(int(sys.argv[1]), int(sys.argv[2])):
    begun = ["file", number, "damage", "failures", "it never ended"]
    print(json.dumps(begun), flush=True)
    if number == 8:
        time.sleep(60)
    if number == 9:
        os._exit(1)
    print(json.dumps([*begun[:3], "errors", "corrupt"]), flush=True)
"""


def test_a_worker_that_hangs_or_dies_is_reported_and_the_next_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(script, "make_files", lambda folder: None)
    monkeypatch.setattr(
        script,
        "worker",
        lambda folder, numbers, seed: [sys.executable, "-c", WORKER, str(numbers[0]), str(numbers[-1] + 1)],
    )
    with pytest.raises(SystemExit) as ended:
        script.main(files=4, seed=5, first=7)
    assert ended.value.code == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "file, damage: took more than 0.5 s (again with --seed 5 --first 8 --files 1)"
    assert out[1] == "file, damage: the process died (again with --seed 5 --first 9 --files 1)"
    assert out[-2].split() == ["all", "4", "2", "0", "0", "2"]
    with pytest.raises(RuntimeError, match="did not begin"):
        watch(lambda numbers: [sys.executable, "-c", ""], range(2))


@pytest.mark.slow
def test_the_memory_of_a_worker_is_limited():
    code = "from benchmarks.fuzz_worker import limit_memory; limit_memory(); bytearray(2**30); bytearray(5 * 2**29)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1] == "MemoryError"


def test_only_what_is_declared_counts_as_valid(files):
    assert fits(float | None, None)
    assert fits(float, 3)
    assert not fits(float, True)
    assert not fits(float, float("nan"))
    assert not fits(int, 3.0)
    assert not fits(tuple[int, ...], [1])
    assert not same(1, 1.0)
    assert not same(0.0, -0.0)
    assert not same(np.zeros(2, np.float32), np.zeros(2))
    kind = next(kind for kind in files[1] if kind.name == "certificate")
    whole = kind.file.read_bytes()
    certificate, data = kind.load(kind.file), json.loads(whole)
    assert kind.allowed(certificate, whole)
    changed = dataclasses.replace(certificate, earlier=())
    assert not kind.allowed(changed, whole), "what was loaded is not what the file says"
    data["protocol"]["alpha"] = 0.5
    data["sha256"] = digest({name: value for name, value in data.items() if name != "sha256"})
    assert not fits(Protocol, dataclasses.replace(certificate.protocol, alpha="0.5"))
    kind.file.write_text(json.dumps(data))
    with pytest.raises(FileError, match="protocol has been changed since it was fixed"):
        kind.load(kind.file)
    kind.file.write_bytes(whole)


def test_a_run_without_checksums_or_with_a_changed_configuration_is_refused(files, tmp_path):
    path = Path(shutil.copytree(files[0] / "run", tmp_path / "run"))
    for name, read in (("summary.json", lambda: evarl.Run.load(path).summary), ("config.json", lambda: open_run(path))):
        data = json.loads((path / name).read_text())
        del data["sha256"]
        (path / name).write_text(json.dumps(data))
        with pytest.raises(FileError, match=rf"{name}: corrupt \(its checksum does not fit its contents\)"):
            read()
    data["config"]["updates"] += 1
    (path / "config.json").write_text(json.dumps(data | {"sha256": digest(data)}))
    with pytest.raises(FileError, match="the configuration has been changed since the run was made"):
        open_run(path)


def test_a_module_is_imported_for_the_user_and_not_for_a_file(files, tmp_path):
    arrays, about = read_tensors((files[0] / "host.safetensors").read_bytes())
    name, path = f"gymnasium/{MODULE}:CartPole-v1", tmp_path / "assessment.safetensors"
    path.write_bytes(write_tensors(arrays, about | {"world": name}))
    marker = files[0] / "executed"
    sys.modules.pop(MODULE, None)
    with pytest.raises(InputError, match=f"names a world of the module '{MODULE}', and files do not decide what is"):
        load_assessment(path)
    assert not marker.exists()
    assert load_assessment(path, named=(name,)).start_states.tolist() == [3, 7]
    assert marker.exists()
    marker.unlink()
    sys.modules.pop(MODULE)
