"""The README says what the job files say."""

import json
import math
import random
from pathlib import Path

import pytest

from evarl.cli.main import call
from evarl.errors import FileError
from evarl.studies.experiment_tables import differences_table, gradients_table, held_out_table, read_results
from evarl.studies.jobs import Store, with_needs
from evarl.studies.readme import FOLDER, blocks
from evarl.studies.results import NAMES, result
from evarl.studies.scales import SCALES

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text()
    for name, block in blocks(ROOT / FOLDER).items():
        assert f"<!-- {name} -->\n{block}\n<!-- end {name} -->" in readme, f"{name}: `make results` writes it anew"
        assert block.count("\n") > 2


def numbers(data, path=()):
    """Where every number of a file is."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path


def with_number(data, path, value):
    """The same with one number changed; as text, so that no number is rounded on the way."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(copy, ensure_ascii=False)


def every_job():
    return {
        job.name: job for scale in SCALES.values() for name in NAMES for job in with_needs(result(name).jobs(scale))
    }


def test_any_edited_number_of_any_job_file_is_noticed(tmp_path):
    """Three numbers of each file, through the store that reports read."""
    jobs, store, rng = every_job(), Store(tmp_path), random.Random(0)
    files = sorted((ROOT / FOLDER / "jobs").glob("*.json"))
    assert len(files) > 30
    (tmp_path / "jobs").mkdir()
    for path in files:
        whole = json.loads(path.read_text())
        copy = tmp_path / "jobs" / path.name
        copy.write_bytes(path.read_bytes())
        assert store.result(jobs[path.stem]) == whole["result"]
        places = list(numbers(whole))
        for place in rng.sample(places, min(3, len(places))):
            value = whole
            for key in place:
                value = value[key]
            for other in (value + 1, math.nextafter(value, math.inf), math.nan, -value if value else 1, None):
                copy.write_text(with_number(whole, place, other))
                with pytest.raises(FileError) as error:
                    store.result(jobs[path.stem])
                assert str(error.value) == (
                    f"{copy}: corrupt (its checksum does not fit its contents); delete it and run the reproduction again"
                )


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "", "null", '{"sha256": NaN}', '{"a": ' * 60 + "1" + "}" * 60])
def test_a_job_file_of_anything_else_is_one_line(tmp_path, text, capsys):
    """Through the command: it does not run a job whose result is there and damaged, nor overwrite it."""
    (job,) = result("tabular").jobs(SCALES["smoke"])
    file = tmp_path / "jobs" / f"{job.name}.json"
    file.parent.mkdir()
    file.write_text(text)
    assert call(["reproduce", "tabular", "--scale", "smoke", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evarl: {file}: ")
    assert err.count("\n") == 1
    assert file.read_text() == text


@pytest.mark.parametrize("folder", ["gradients", "held-out"])
def test_any_edited_number_of_a_study_is_noticed(tmp_path, folder):
    path = sorted((ROOT / "results" / folder).glob("*.json"))[0]
    whole = json.loads(path.read_text())
    for place in random.Random(0).sample(list(numbers(whole)), 20):
        (tmp_path / path.name).write_text(with_number(whole, place, 12345.5))
        with pytest.raises(FileError, match=f"{path.name}: corrupt"):
            read_results(tmp_path)
    assert read_results(ROOT / "results" / folder)


def test_the_page_of_the_studies_says_what_their_files_say(tmp_path):
    page = (ROOT / "docs" / "studies.md").read_text()
    by_gradient, by_kind = (read_results(ROOT / "results" / name) for name in ("gradients", "held-out"))
    for table in (gradients_table(by_gradient), differences_table(by_gradient), held_out_table(by_kind)):
        assert table in page
