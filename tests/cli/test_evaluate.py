"""`evarl evaluate` as a user meets it."""

import json

import pytest

import evarl
from evarl.cli.main import call
from evarl.report import figures
from tests.evaluation.tiny import train_tiny

QUICK = ["--rollouts", "4", "--states", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    return train_tiny(tmp_path_factory.mktemp("tiny") / "run")


def test_the_table_has_every_control_and_the_files_are_written(run, capsys):
    assert call(["evaluate", str(run.path), *QUICK]) == 0
    out, err = capsys.readouterr()
    for text in (
        "Ξ zeroed",
        "Ξ shuffled",
        "critic",
        "last batch's mean",
        "1 distinct of 8 drawn from μ_D",
        "visited states",
    ):
        assert text in out
    assert "remembered policies of other seeds" in out
    assert err.count("seed") == 2, "progress"
    kept = json.loads((run.path / "evaluation.json").read_text())
    assert len(kept["seeds"][0]["queries"]["visited"]["truth"]) == 8
    assert (run.path / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    assert not list(run.path.glob(".evaluation*")), "no temporary file is left"


def test_json_is_one_line_and_the_last(run, tmp_path, capsys):
    file = tmp_path / "results" / "mine.json"
    assert call(["evaluate", str(run.path), *QUICK, "--seeds", "1", "--json", "--out", str(file)]) == 0
    out, _ = capsys.readouterr()
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["file"] == str(file)
    assert found["start_states"] == "1 distinct of 8 drawn from μ_D"
    assert [seed["seed"] for seed in found["seeds"]] == [1]
    assert {row["predictor"] for row in found["rows"]} >= {"evaluator", "critic"}
    assert sorted(path.name for path in file.parent.iterdir()) == ["mine.json", "mine.png"]


def test_what_was_there_is_intact_when_something_fails(run, tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.json"
    file.mkdir()  # cannot be replaced by a file
    assert call(["evaluate", str(run.path), *QUICK, "--seeds", "1", "--out", str(file)]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"], "neither half a file nor a picture"
    monkeypatch.setattr(figures, "evaluation_picture", lambda found: 1 / 0)
    kept = run.path / "evaluation.json"
    before = kept.read_bytes() if kept.exists() else None
    with pytest.raises(ZeroDivisionError):
        call(["evaluate", str(run.path), *QUICK, "--random-seed", "5"])
    assert (kept.read_bytes() if kept.exists() else None) == before, "both files or none"


def test_a_run_without_evaluator_has_truth_and_critic(tmp_path, capsys):
    plain = train_tiny(tmp_path / "plain", beta=0.0, seeds=1)
    assert call(["evaluate", str(plain.path), *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["predictor"] for row in found["rows"]} == {"critic"}
    assert found["return_undiscounted"]["standard_error"] > 0
    assert "this run has no evaluator" in " ".join(found["notes"])
    assert call(["evaluate", str(plain.path), *QUICK]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "7"], "seeds: 7 is not one of this run's seeds 0 to 1"),
        (["--seeds", "one"], "seeds: 'one' is not allowed; must be all, or a list"),
        (["--rollouts", "1"], "rollouts: 1 is not allowed"),
        (["--states", "0"], "states: 0 is not allowed"),
        (["--replicates", "0"], "replicates: 0 is not allowed"),
        (["--passive", "nowhere"], "nowhere: holds no run"),
        (["--sites", "4"], "was trained without contexts; only a family of worlds has sites"),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, message, capsys):
    assert call(["evaluate", str(run.path), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
