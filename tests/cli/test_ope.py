"""`evarl ope` and `evarl evaluate --ope`: what they print, what they keep, and what they refuse."""

import json
from pathlib import Path

import pytest

import evarl
from evarl.cli.main import call
from tests.evaluation.tiny import train_once, train_tiny

SMALL = {"environments": 4, "steps": 60, "seeds": 2, "updates": 4}
FEW = ["--methods", "fqe", "pdis", "--fqe.steps", "200", "--fqe.hidden-sizes", "8", "--resamples", "50"]


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    out = tmp_path_factory.mktemp("logged") / "run"
    return str(train_once(evarl.with_settings(evarl.preset("navigation"), SMALL), out, log_megabytes=5).path)


def test_ope_of_every_seed(logged, capsys):
    assert call(["ope", logged, *FEW, "--range", "-1e9", "1e9", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(Path(record["file"]).read_text())["seeds"] == record["seeds"]
    assert [seed["seed"] for seed in record["seeds"]] == [0, 1]
    for seed in record["seeds"]:
        assert seed["trajectories"] >= 16
        pdis, fqe = seed["estimates"]["pdis"], seed["estimates"]["fqe"]
        assert {"bernstein", "hoeffding"} <= pdis["intervals"].keys()
        assert ("t" in pdis["intervals"]) == (not any("no interval" in warning for warning in pdis["warnings"]))
        assert pdis["estimand"] == fqe["estimand"] != ""
        assert pdis["effective_sample_size"] > 1
        assert fqe["bellman_error"] > 0
        assert fqe["converged"] in (True, False)


def test_ope_prints_a_table(logged, capsys):
    assert call(["ope", logged, "--seeds", "1", *FEW]) == 0
    out = capsys.readouterr().out
    assert "seed 1:" in out
    assert "seed 0:" not in out
    assert "effective sample" in out
    assert "fqe, pdis: return of the policy over 50 steps" in out


def test_evaluate_puts_them_beside_the_others(logged, capsys):
    few = [f"--log.{word[2:]}" if word.startswith("--") else word for word in FEW]
    assert call(["evaluate", logged, "--ope", *few, "--states", "4", "--rollouts", "4", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {(row["predictor"], row["queries"]) for row in record["rows"]}
    assert {("FQE", "start"), ("FQE", "visited"), ("PDIS", "start"), ("PDIS", "visited"), ("critic", "start")} <= rows
    assert record["policies"].keys() == {"critic", "FQE", "PDIS"}
    assert record["policies"]["FQE"]["policies"] == 2
    assert record["seeds"][0]["logged"]["estimates"]["pdis"]["rule"] == "neighbours"


def test_a_run_without_log_is_refused_in_one_line(tmp_path, capsys):
    out = str(tmp_path / "run")
    train_tiny(Path(out), beta=0.0, seeds=1)
    for command in (["ope", out], ["evaluate", out, "--ope"]):
        assert call(command) == 2
        assert (
            capsys.readouterr().err.splitlines()[-1].endswith("has no log of trajectories; train with --log-megabytes")
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--range", "1", "0"], "range: (1.0, 0.0) is not allowed"),
        (["--fqe.steps", "0"], "fqe.steps: 0 is not allowed"),
        (["--updates", "0"], "updates: 0 is not allowed"),
        (["--confidence", "2"], "confidence: 2.0 is not allowed"),
        (["--seeds", "7"], "seed: 7 is not one of this run's seeds"),
    ],
)
def test_bad_input(logged, capsys, arguments, message):
    assert call(["ope", logged, *arguments]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
