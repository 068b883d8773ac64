"""The README, docs/reproduce.md and docs/studies.md have the numbers of the job files."""

import json
import math
import random
import re
from pathlib import Path

import pytest

from evarl.cli.main import call
from evarl.errors import FileError
from evarl.report.markdown import escaped
from evarl.storage.tensors import load_arrays
from evarl.studies.catalogue import PAPER_STUDIES, STUDIES, study
from evarl.studies.documents import FOLDER, blocks, finding_blocks, main_table, paper_blocks, study_blocks, study_scale
from evarl.studies.findings import claims_table, read_checks, read_scale, relative
from evarl.studies.jobs import Store, with_needs
from evarl.studies.reports import CONTROL, MeanAndError
from evarl.studies.scales import FULL, LAPTOP, SCALES

ROOT = Path(__file__).parents[2]


PAGES = [("README.md", blocks), ("docs/reproduce.md", paper_blocks), ("docs/findings.md", finding_blocks)]


@pytest.mark.parametrize(("page", "made"), PAGES)
def test_the_tables_of_the_documents_are_those_of_the_results(page, made):
    text = (ROOT / page).read_text()
    for name, block in made(ROOT / FOLDER).items():
        assert f"<!-- {name} -->\n{block}\n<!-- end {name} -->" in text, f"{name}: `make results` writes it anew"
        assert block.count("\n") > 2


def test_the_sentence_of_the_readme_is_one_of_the_findings():
    readme, page = (" ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/findings.md"))
    (quoted,) = re.findall("“(In no single world [^”]+)”", readme)
    assert quoted in page


def test_every_claim_of_the_paper_stands_in_the_findings():
    """With its verdict, beside the number of seeds; controls stand in tables of their own."""
    page = (ROOT / "docs/findings.md").read_text()
    for name in PAPER_STUDIES:
        for check in read_checks(ROOT / FOLDER / name / "checks.json"):
            row = next(
                line for line in page.splitlines() if f"| {escaped(check['claim'].replace(CONTROL, ''))} |" in line
            )
            assert f"| {check['verdict']} |" in row


def test_relative_differences_of_printed_numbers():
    theirs = MeanAndError(-4.0, 0.1)
    assert relative(MeanAndError(-3.0), theirs) == "+25 %"
    assert relative(MeanAndError(-4.2, 9.0), theirs) == "−5.0 %"
    assert relative(None, theirs) is None


def test_a_row_of_a_claim_by_hand():
    check = {"claim": f"a above b{CONTROL}", "verdict": "undecided", "effect": 0.4123, "interval": [-0.1, 0.9]}
    open_ = check | {"seeds": 3, "seeds_needed": 1001, "detectable": 1.5}
    assert claims_table([open_], controls=False).rows == ()
    (row,) = claims_table([open_], controls=True).rows
    assert row == ("a above b", "+0.41", "−0.10 to +0.90", "3", "undecided", "not feasible: more than 1000", "1.5")
    (old,) = claims_table([check], controls=True).rows  # of a report before there were such numbers
    assert old[3:] == ("—", "undecided", "", "")


def finish(store, study_name, scale, left_out):
    for job in study(study_name).jobs(scale):
        if job.task == "train" and not re.search(left_out, job.label):
            changes = job.settings["changes"]
            seeds = range(changes["seed"], changes["seed"] + changes["seeds"])
            asked = {"scores": {"evaluator": {"mae": 1.0}, "FQE": {"mae": 2.0}}, "scores_all": {"FQE": {"mae": 3.0}}}
            rows = [{"seed": seed, "return": 1.0, "queries": {"start": asked, "visited": asked}} for seed in seeds]
            store.keep(job, {"result": {"seeds": rows, "curves": {"steps": [10_000_000]}}})


def test_studies_are_shown_at_the_full_scale_once_every_condition_has_results_there(tmp_path):
    store = Store(tmp_path)
    assert study_scale(store, "tradeoff") == study_scale(store, "continuous") == "laptop"
    finish(store, "tradeoff", LAPTOP, "seeds-5")
    finish(store, "tradeoff", FULL, "seeds-5|freeway")
    assert study_scale(store, "tradeoff") == "laptop"
    assert {row[1] for row in main_table(store).rows} == {"10.0M × 3 seeds"}
    finish(store, "tradeoff", FULL, "seeds-5|freeway-passive|freeway-frozen-0.1")
    assert study_scale(store, "tradeoff") == "laptop", "EvA-RL has nothing beside it"
    finish(store, "tradeoff", FULL, "seeds-5|frozen")
    assert study_scale(store, "pipelines") == "laptop", "those with own values are missing"
    table = main_table(store)
    shown = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["world"] for row in shown] == ["Asterix", "Freeway", "SpaceInvaders"]
    assert {row["steps"] for row in shown} == {"10.0M × 5 seeds"}
    assert {(row["FQE (sound)"].mean, row["log of FQE, PDIS and DR"]) for row in shown} == {(3.0, "all of training")}
    finish(store, "pipelines", FULL, "seeds-5")
    assert [study_scale(store, name) for name in ("pipelines", "ope-on-eva")] == ["full"] * 2
    assert [row[0] for row in main_table(store).rows][3:] == [
        f"{game}, own values" for game in ("Asterix", "Freeway", "SpaceInvaders")
    ]
    assert study_scale(store, "tradeoff") == "laptop", "frozen evaluators are missing"
    finish(store, "tradeoff", FULL, "seeds-5")
    assert (study_scale(store, "tradeoff"), study_scale(store, "curves")) == ("full", "laptop")
    finish(store, "continuous", FULL, "ppo")
    assert study_scale(store, "continuous") == "laptop"
    finish(store, "continuous", FULL, "nothing")
    assert study_scale(store, "continuous") == "full"
    assert (study_scale(store, "mismatch"), study_scale(store, "families")) == ("paper", "laptop")


def test_the_scale_of_a_report_is_its_own(tmp_path):
    for name, scale in (("mismatch", "paper"), ("tradeoff", "laptop")):
        file = tmp_path / name / "checks.json"
        file.parent.mkdir()
        file.write_text('{"checks": []}')
        assert read_scale(file) == scale, "of a report of an earlier version"
        file.write_text('{"scale": "full", "checks": []}')
        assert read_scale(file) == "full"


def test_the_assessments_of_the_results_can_be_read():
    """So that a new condition can be compared with the finished ones of the same world."""
    files = sorted((ROOT / FOLDER / "files").glob("*-assessment-*.safetensors"))
    assert files
    for file in files:
        _, about = load_arrays(file)
        assert about["kind"] == "assessment"


def numbers(data, path=()):
    """Where every number of a file is."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path


def with_number(data, path, value):
    """The same with one number changed; as text, so that no number is rounded on the way."""
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    kept, inner[path[-1]] = inner[path[-1]], value
    text = json.dumps(data, ensure_ascii=False)
    inner[path[-1]] = kept
    return text


def every_job():
    return {
        job.name: job for scale in SCALES.values() for name in STUDIES for job in with_needs(study(name).jobs(scale))
    }


@pytest.mark.slow
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
                    f"{copy}: corrupt (its checksum does not fit its contents); delete it and run `evarl reproduce` again"
                )


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "", "null", '{"sha256": NaN}', '{"a": ' * 60 + "1" + "}" * 60])
def test_a_job_file_of_anything_else_is_one_line(tmp_path, text, capsys):
    """Through the command: it does not run a job whose result is there and damaged, nor overwrite it."""
    (job,) = study("tabular").jobs(SCALES["smoke"])
    file = tmp_path / "jobs" / f"{job.name}.json"
    file.parent.mkdir()
    file.write_text(text)
    assert call(["reproduce", "tabular", "--scale", "smoke", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evarl: {file}: ")
    assert err.count("\n") == 1
    assert file.read_text() == text


def test_the_tables_of_the_studies_are_those_of_the_results():
    page = (ROOT / "docs" / "studies.md").read_text()
    found = study_blocks(ROOT / FOLDER)
    names = "held-out", "held-out-start", "targets", "targets-squared", "choices"
    assert found.keys() == {"families", "gradients", "differences", *names}
    for name, block in found.items():
        assert f"<!-- {name} -->\n{block}\n<!-- end {name} -->" in page, f"{name}: `make results` writes it anew"
